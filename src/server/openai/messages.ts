/**
 * The messages of a chat request, checked and brought to the form templates read. What a client left out stays out:
 * templates ask whether a key is there. Arguments of past calls become objects, number lexemes and key order kept;
 * arguments that are no JSON object are refused with their place, as no template could render them.
 */
import {
  type ChatMessage,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  parseLossless,
} from '../../chat/index.ts';
import { type Fields, kindOf, wrongField } from '../fields.ts';

export function readMessages(fields: Fields): ChatMessage[] {
  const messages = fields.list('messages');
  if (messages === undefined) throw wrongField('messages', 'is missing');
  if (messages.length === 0) throw wrongField('messages', 'is an empty list, at least one message is needed');
  return messages.map((message, i) => readMessage(message, `messages[${i}]`));
}

function readMessage(message: JsonValue, at: string): ChatMessage {
  if (!isJsonObject(message)) throw wrongField(at, `is ${kindOf(message)}, expected an object`);
  const { role, content, reasoning_content: thought, reasoning, tool_calls: calls } = message;
  if (typeof role !== 'string') throw wrongField(`${at}.role`, `is ${kindOf(role)}, expected a text`);
  const reasoningText = thought ?? reasoning;
  if (reasoningText !== undefined && reasoningText !== null && typeof reasoningText !== 'string')
    throw wrongField(`${at}.reasoning_content`, `is ${kindOf(reasoningText)}, expected a text`);
  return {
    ...message,
    // Newer clients call the system role developer.
    role: role === 'developer' ? 'system' : role,
    ...(content === undefined ? {} : { content: readContent(content, `${at}.content`) }),
    ...(typeof reasoningText === 'string' ? { reasoning_content: reasoningText } : {}),
    ...(calls === undefined ? {} : { tool_calls: readCalls(calls, `${at}.tool_calls`) }),
  } as ChatMessage;
}

function readContent(content: JsonValue, at: string): string | JsonObject[] | null {
  if (content === null || typeof content === 'string') return content;
  if (!Array.isArray(content))
    throw wrongField(at, `is ${kindOf(content)}, expected a text or a list of parts`);
  return content.map((part: JsonValue, i) => {
    if (!isJsonObject(part)) throw wrongField(`${at}[${i}]`, `is ${kindOf(part)}, expected an object`);
    if (part.type !== 'text' && part.type !== 'input_text')
      throw wrongField(`${at}[${i}].type`, `is ${kindOf(part.type)}, supported is text`);
    if (typeof part.text !== 'string')
      throw wrongField(`${at}[${i}].text`, `is ${kindOf(part.text)}, expected a text`);
    return { type: 'text', text: part.text };
  });
}

function readCalls(calls: JsonValue, at: string): JsonObject[] | null {
  if (calls === null) return null;
  if (!Array.isArray(calls)) throw wrongField(at, `is ${kindOf(calls)}, expected a list`);
  return calls.map((call: JsonValue, i) => {
    const fn = isJsonObject(call) ? call.function : undefined;
    if (!isJsonObject(call) || !isJsonObject(fn) || typeof fn.name !== 'string')
      throw wrongField(`${at}[${i}]`, 'is not a function call with a name');
    if (fn.arguments === undefined) return call;
    const args = readArguments(fn.arguments, `${at}[${i}].function.arguments`);
    return { ...call, function: { ...fn, arguments: args } };
  });
}

/** null and empty text stand for no arguments. */
function readArguments(args: JsonValue, at: string): JsonObject {
  if (isJsonObject(args)) return args;
  if (args === null) return {};
  if (typeof args !== 'string') throw wrongField(at, `is ${kindOf(args)}, expected the JSON of an object`);
  if (args.trim() === '') return {};
  const value = parseLossless(args, { what: at, param: at });
  if (!isJsonObject(value)) throw wrongField(at, `holds ${kindOf(value)}, expected the JSON of an object`);
  return value;
}
