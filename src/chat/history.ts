/**
 * Conversations as clients send them, brought to a form that templates take: arguments of past calls as objects,
 * leading system messages as one, and for interpreted templates what they refuse in a shape that they accept.
 */
import { parseLossless } from './json-parse.ts';
import { isJsonObject, type JsonObject, type JsonValue, ObjectBuilder, orderedKeys } from './json-value.ts';
import type { ChatMessage, ToolCall, ToolDef } from './types.ts';

/**
 * Arguments of past calls that are the JSON text of an object become that object, numbers and key order kept; anything
 * else stays as it is.
 */
export function withParsedArguments(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return messages.map((message) => {
    const calls = message.tool_calls;
    return Array.isArray(calls) ? { ...message, tool_calls: calls.map(parseCall) } : message;
  });
}

function parseCall(call: ToolCall): ToolCall {
  const args = call?.function?.arguments;
  if (typeof args !== 'string') return call;
  const value = tryParse(args);
  return isJsonObject(value) ? { ...call, function: { ...call.function, arguments: value } } : call;
}

function tryParse(text: string): JsonValue {
  try {
    return parseLossless(text);
  } catch {
    return null;
  }
}

/** Text in which there are no arguments at all: nothing, null, or an empty list. */
export function holdsNoArguments(args: JsonValue | undefined): boolean {
  if (args === undefined || args === null) return true;
  if (typeof args === 'string') return /^\s*(?:null|\[\s*\])?\s*$/.test(args);
  return Array.isArray(args) && args.length === 0;
}

/** System messages in front become one. Their texts are joined by an empty line. */
export function withOneSystem(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const end = messages.findIndex(({ role }) => role !== 'system');
  const leading = end < 0 ? messages : messages.slice(0, end);
  return leading.length < 2 ? messages : [joined(leading), ...messages.slice(leading.length)];
}

/**
 * Tools as the model is told of them. `strict` says how an answer is made, and not every API has it: without it, a
 * conversation has the same prompt through all of them.
 */
export function toolsForPrompt(tools: readonly ToolDef[] | null): readonly ToolDef[] | null {
  return (
    tools?.map((tool) => {
      const { function: fn } = tool;
      return isJsonObject(fn) && 'strict' in fn ? { ...tool, function: without(fn, 'strict') } : tool;
    }) ?? null
  );
}

function without(object: JsonObject, name: string): JsonObject {
  const rest = new ObjectBuilder();
  for (const key of orderedKeys(object)) if (key !== name) rest.set(key, object[key] as JsonValue);
  return rest.finish();
}

/** All system messages in front, a user message if there is none, arguments that are objects. */
export function conformed(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const systems = messages.filter(({ role }) => role === 'system');
  const others = messages.filter(({ role }) => role !== 'system').map(withObjectArguments);
  const query = others.some(({ role }) => role === 'user') ? [] : [{ role: 'user', content: '' }];
  return [...(systems.length === 0 ? [] : [joined(systems)]), ...query, ...others];
}

function joined(systems: readonly ChatMessage[]): ChatMessage {
  const texts = systems.map(({ content }) => textOf(content)).filter((text) => text !== '');
  return { ...(systems[0] as ChatMessage), content: texts.join('\n\n') };
}

function textOf(content: ChatMessage['content']): string {
  if (typeof content === 'string') return content.trim();
  const texts = (content ?? []).map(({ text }) => (typeof text === 'string' ? text : ''));
  return texts.join('').trim();
}

function withObjectArguments(message: ChatMessage): ChatMessage {
  const calls = message.tool_calls;
  if (!Array.isArray(calls)) return message;
  const objects = calls.map((call: ToolCall) => {
    const args = call?.function?.arguments;
    if (isJsonObject(args)) return call;
    const object: JsonObject = holdsNoArguments(args) ? {} : { arguments: args as JsonValue };
    return { ...call, function: { ...call?.function, arguments: object } };
  });
  return { ...message, tool_calls: objects };
}
