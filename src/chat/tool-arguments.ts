/**
 * Templates want the arguments of past tool calls as objects, clients send them as JSON text. Text that is a JSON
 * object becomes that object, numbers and key order kept; anything else stays as it is, and the template refuses it.
 */
import { parseLossless } from './json-parse.ts';
import { isJsonObject, type JsonValue } from './json-value.ts';
import type { ChatMessage, ToolCall } from './types.ts';

export function withParsedArguments(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  return messages.map((message) => {
    const calls = message.tool_calls;
    return Array.isArray(calls) ? { ...message, tool_calls: calls.map(parseCall) } : message;
  });
}

function parseCall(call: ToolCall): ToolCall {
  const text = call?.function?.arguments;
  if (typeof text !== 'string') return call;
  const value = tryParse(text);
  return isJsonObject(value) ? { ...call, function: { ...call.function, arguments: value } } : call;
}

function tryParse(text: string): JsonValue {
  try {
    return parseLossless(text);
  } catch {
    return null;
  }
}
