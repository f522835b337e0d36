/**
 * The messages of a chat request, checked and brought to the form templates read. What a client left out stays out:
 * templates ask whether a key is there. Arguments of past calls become objects where they are, number lexemes and key
 * order kept; others are rendered as what they are, as a client can not mend its history.
 */
import {
  type ChatMessage,
  holdsNoArguments,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  parseLossless,
} from '../../chat/index.ts';
import { type ContentContext, type Notes, partText } from '../content.ts';
import { type Fields, kindOf, wrongField } from '../fields.ts';

export function readMessages(fields: Fields, context: ContentContext): ChatMessage[] {
  const messages = fields.list('messages');
  if (messages === undefined) throw wrongField('messages', 'is missing');
  if (messages.length === 0) throw wrongField('messages', 'is an empty list, at least one message is needed');
  return messages.map((message, i) => readMessage(message, `messages[${i}]`, context));
}

/** What newer and older clients call a role. */
const roles: ReadonlyMap<string, string> = new Map([
  ['developer', 'system'],
  ['function', 'tool'],
]);

function readMessage(message: JsonValue, at: string, context: ContentContext): ChatMessage {
  if (!isJsonObject(message)) throw wrongField(at, `is ${kindOf(message)}, expected an object`);
  const { role, content, reasoning_content: thought, reasoning, tool_calls, function_call: legacy } = message;
  const calls = tool_calls ?? (isJsonObject(legacy) ? [{ type: 'function', function: legacy }] : tool_calls);
  if (typeof role !== 'string') throw wrongField(`${at}.role`, `is ${kindOf(role)}, expected a text`);
  const reasoningText = thought ?? reasoning;
  if (reasoningText !== undefined && reasoningText !== null && typeof reasoningText !== 'string')
    throw wrongField(`${at}.reasoning_content`, `is ${kindOf(reasoningText)}, expected a text`);
  return {
    ...message,
    role: roles.get(role) ?? role,
    ...(content === undefined ? {} : { content: readContent(content, `${at}.content`, context) }),
    ...(typeof reasoningText === 'string' ? { reasoning_content: reasoningText } : {}),
    ...(calls === undefined ? {} : { tool_calls: readCalls(calls, `${at}.tool_calls`, context.notes) }),
  } as ChatMessage;
}

function readContent(content: JsonValue, at: string, context: ContentContext): string | JsonObject[] | null {
  if (content === null || typeof content === 'string') return content;
  if (!Array.isArray(content))
    throw wrongField(at, `is ${kindOf(content)}, expected a text or a list of parts`);
  return content.map((part: JsonValue, i) => ({
    type: 'text',
    text: partText(part, `${at}[${i}]`, context),
  }));
}

function readCalls(calls: JsonValue, at: string, notes: Notes): JsonObject[] | null {
  if (calls === null) return null;
  if (!Array.isArray(calls)) throw wrongField(at, `is ${kindOf(calls)}, expected a list`);
  return calls.map((call: JsonValue, i) => {
    const fn = isJsonObject(call) ? call.function : undefined;
    if (!isJsonObject(call) || !isJsonObject(fn) || typeof fn.name !== 'string')
      throw wrongField(`${at}[${i}]`, 'is not a function call with a name');
    return { ...call, function: { ...fn, arguments: readArguments(fn.arguments, notes) } };
  });
}

/** An object where the arguments are one or its JSON text; else what they are. */
export function readArguments(args: JsonValue | undefined, notes: Notes): JsonValue {
  if (isJsonObject(args)) return args;
  const value = typeof args === 'string' ? jsonOf(args) : args;
  if (isJsonObject(value)) return value;
  if (holdsNoArguments(args)) return {};
  notes.add('arguments of a past call that are no JSON object are rendered as they are');
  return args as JsonValue;
}

function jsonOf(text: string): JsonValue | undefined {
  try {
    return parseLossless(text);
  } catch {
    return undefined;
  }
}
