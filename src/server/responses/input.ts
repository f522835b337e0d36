/**
 * The items of a conversation as chat messages. The reasoning, text and calls of one answer become one message, as the
 * chat API has it: the prompt, and what is cached of it, is the same through both.
 */
import {
  type ChatMessage,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  stringifyCompact,
} from '../../chat/index.ts';
import { type ContentContext, partText } from '../content.ts';
import { kindOf, wrongField } from '../fields.ts';
import { readArguments } from '../openai/messages.ts';
import { openReasoning } from './reasoning.ts';
import { customParameter, modelName } from './tools.ts';
import { Turns } from './turns.ts';

/** An item and how errors name it. */
export interface PlacedItem {
  readonly item: JsonObject;
  readonly at: string;
}

/** A text is a message of the user. References are resolved by `find`. */
export function readItems(
  input: JsonValue | undefined,
  find: (id: string, at: string) => JsonObject,
): PlacedItem[] {
  if (typeof input === 'string')
    return [{ item: { type: 'message', role: 'user', content: input }, at: 'input' }];
  if (input === undefined) return [];
  if (!Array.isArray(input))
    throw wrongField('input', `is ${kindOf(input)}, expected a text or a list of items`);
  return input.map((item: JsonValue, i) => {
    const at = `input[${i}]`;
    if (!isJsonObject(item)) throw wrongField(at, `is ${kindOf(item)}, expected an object`);
    const { id, type, role } = item;
    const isReference =
      type === 'item_reference' || (typeof id === 'string' && type === undefined && role === undefined);
    if (!isReference) return { item, at };
    if (typeof id !== 'string') throw wrongField(`${at}.id`, `is ${kindOf(id)}, expected a text`);
    return { item: find(id, at), at };
  });
}

export function messagesOf(items: readonly PlacedItem[], context: ContentContext): ChatMessage[] {
  const turns = new Turns();
  for (const placed of items) addItem(turns, placed, context);
  return turns.finish();
}

/** Calls of tools that OpenAI's clients run themselves: the name that the model is told and where the arguments are. */
const clientCalls: Readonly<Record<string, readonly [name: string, args: readonly string[]]>> = {
  local_shell_call: ['local_shell', ['action']],
  shell_call: ['shell', ['action']],
  apply_patch_call: ['apply_patch', ['operation']],
  computer_call: ['computer', ['action', 'actions']],
  tool_search_call: ['tool_search', ['arguments']],
};

/** Items that only their server could read. */
const leftOut = [
  'web_search_call',
  'file_search_call',
  'code_interpreter_call',
  'image_generation_call',
  'mcp_list_tools',
  'mcp_approval_request',
  'mcp_approval_response',
  'additional_tools',
  'compaction',
  'compaction_summary',
  'compaction_trigger',
  'context_compaction',
  'ghost_snapshot',
  'program',
  'program_output',
];

function addItem(turns: Turns, { item, at }: PlacedItem, context: ContentContext): void {
  const { type = 'message' } = item;
  if (typeof type !== 'string') throw wrongField(`${at}.type`, `is ${kindOf(type)}, expected a text`);
  const client = clientCalls[type];
  if (type === 'message') addMessage(turns, { item, at }, context);
  else if (type === 'reasoning') turns.reason(reasoningOf(item, at, context));
  else if (type === 'function_call')
    turns.call(callId(item, at), calledName(item, at), readArguments(item.arguments, context.notes));
  else if (type === 'custom_tool_call')
    turns.call(callId(item, at), calledName(item, at), { [customParameter]: customInput(item, at) });
  else if (client !== undefined) {
    const [name, fields] = client;
    const args = fields.map((field) => item[field]).find((value) => value !== undefined);
    turns.call(callId(item, at), name, readArguments(args, context.notes));
  } else if (type.endsWith('_call_output') || type === 'tool_search_output') {
    const output = outputText(item.output ?? item.tools, `${at}.output`, context);
    turns.add({ role: 'tool', tool_call_id: callId(item, at), content: output });
  } else if (type === 'mcp_call') addServerCall(turns, { item, at }, context);
  else if (leftOut.includes(type)) context.notes.add(`an item of type ${type} in input is left out`);
  else throw wrongField(`${at}.type`, `is ${kindOf(type)}, which is no item of a conversation`);
}

function addMessage(turns: Turns, { item, at }: PlacedItem, context: ContentContext): void {
  const { role, content } = item;
  if (typeof role !== 'string') throw wrongField(`${at}.role`, `is ${kindOf(role)}, expected a text`);
  const parts = readParts(content, `${at}.content`, context);
  if (role === 'assistant') turns.say(typeof parts === 'string' ? parts : parts.join(''));
  else if (role === 'user' || role === 'system' || role === 'developer')
    turns.add({
      role: role === 'developer' ? 'system' : role,
      content: typeof parts === 'string' ? parts : parts.map((text) => ({ type: 'text', text })),
    });
  else throw wrongField(`${at}.role`, `is ${kindOf(role)}, expected user, assistant, system or developer`);
}

function readParts(content: JsonValue | undefined, at: string, context: ContentContext): string | string[] {
  if (typeof content === 'string') return content;
  if (content === undefined || content === null) return '';
  if (!Array.isArray(content))
    throw wrongField(at, `is ${kindOf(content)}, expected a text or a list of parts`);
  return content.map((part: JsonValue, i) => partText(part, `${at}[${i}]`, context));
}

/** Our own words where they are, else those that the item shows. */
function reasoningOf(item: JsonObject, at: string, context: ContentContext): string {
  const sealed = openReasoning(item.encrypted_content);
  if (sealed !== null) return sealed;
  const list = (name: string): string[] => {
    const parts = readParts(item[name], `${at}.${name}`, context);
    return typeof parts === 'string' ? [parts] : parts;
  };
  const content = list('content').join('');
  const text = content === '' ? list('summary').join('\n\n') : content;
  if (text === '') context.notes.add('a reasoning item that this server can not read is left out');
  return text;
}

function callId({ call_id: callIdOf, id }: JsonObject, at: string): string {
  const value = callIdOf ?? id;
  if (typeof value !== 'string') throw wrongField(`${at}.call_id`, `is ${kindOf(value)}, expected a text`);
  return value;
}

function calledName({ name, namespace }: JsonObject, at: string): string {
  if (typeof name !== 'string' || name === '')
    throw wrongField(`${at}.name`, `is ${kindOf(name)}, expected a text that is not empty`);
  return modelName(name, typeof namespace === 'string' ? namespace : null);
}

function customInput({ input }: JsonObject, at: string): string {
  if (typeof input !== 'string') throw wrongField(`${at}.input`, `is ${kindOf(input)}, expected a text`);
  return input;
}

/** A text, content parts as text, anything else as JSON. */
function outputText(
  output: JsonValue | undefined,
  at: string,
  context: ContentContext,
): string | JsonObject[] {
  if (typeof output === 'string') return output;
  if (output === undefined || output === null) return '';
  const isPart = (part: JsonValue): boolean => isJsonObject(part) && typeof part.type === 'string';
  if (!Array.isArray(output) || !output.every(isPart)) return stringifyCompact(output);
  return output.map((part: JsonValue, i) => ({ type: 'text', text: partText(part, `${at}[${i}]`, context) }));
}

/** A call that another server ran: the call and its result. */
function addServerCall(turns: Turns, { item, at }: PlacedItem, context: ContentContext): void {
  const id = callId(item, at);
  turns.call(id, calledName(item, at), readArguments(item.arguments, context.notes));
  const content = outputText(item.output ?? item.error, `${at}.output`, context);
  turns.add({ role: 'tool', tool_call_id: id, content });
}
