/** From the JSON of an OpenAI request to a completion request. Defaults are OpenAI's, except that nothing is sampled unasked: temperature 0 must be 0. */
import {
  type ChatMessage,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  type ToolDef,
} from '../../chat/index.ts';
import type { ChatRequest, GenerationOptions, TextRequest } from '../../completion/index.ts';
import { defaultSampling, validateSampling } from '../../sampling/index.ts';
import { Fields, kindOf, wrongField } from '../fields.ts';

/** Fields that clients send and that have no meaning here. */
const ignored = [
  'user',
  'store',
  'metadata',
  'service_tier',
  'parallel_tool_calls',
  'reasoning_effort',
  'prompt_cache_key',
  'safety_identifier',
  'verbosity',
];

export interface ReadRequest<T> {
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly request: T;
  readonly unknown: readonly string[];
}

const maxStops = 16;
const maxTopLogprobs = 20;

export function readChatRequest(body: JsonValue): ReadRequest<ChatRequest> {
  const fields = fieldsOf(body);
  const model = requiredModel(fields);
  const kwargs = fields.object('chat_template_kwargs') ?? {};
  const { enable_thinking: thinking, preserve_thinking: preserve, ...templateKwargs } = kwargs;
  const request: ChatRequest = {
    messages: readMessages(fields),
    tools: readTools(fields),
    toolChoice: readToolChoice(fields),
    enableThinking:
      flag(thinking, 'chat_template_kwargs.enable_thinking') ?? fields.boolean('enable_thinking') ?? null,
    preserveThinking: flag(preserve, 'chat_template_kwargs.preserve_thinking') ?? null,
    templateKwargs,
    ...generationOptions(fields, chatLogprobs(fields)),
  };
  return { model, ...streamOptions(fields), request, unknown: unknownFields(fields) };
}

export function readTextRequest(body: JsonValue): ReadRequest<TextRequest> {
  const fields = fieldsOf(body);
  const model = requiredModel(fields);
  if (fields.boolean('echo')) throw wrongField('echo', 'is true, which is not supported');
  const logprobs = fields.count('logprobs');
  const request = {
    prompt: readPrompt(fields),
    ...generationOptions(fields, limitLogprobs(logprobs ?? null, 'logprobs')),
  };
  return { model, ...streamOptions(fields), request, unknown: unknownFields(fields) };
}

function fieldsOf(body: JsonValue): Fields {
  if (!isJsonObject(body)) throw wrongField('body', `is ${kindOf(body)}, expected an object`);
  return new Fields(body);
}

function requiredModel(fields: Fields): string {
  const model = fields.text('model');
  if (model === undefined) throw wrongField('model', 'is missing');
  return model;
}

function unknownFields(fields: Fields): string[] {
  return fields.unknown().filter((name) => !ignored.includes(name));
}

function streamOptions(fields: Fields): { stream: boolean; includeUsage: boolean } {
  const n = fields.count('n', 1) ?? 1;
  if (n !== 1) throw wrongField('n', `is ${n}, only 1 is supported`);
  const options = fields.object('stream_options');
  return {
    stream: fields.boolean('stream') ?? false,
    includeUsage: flag(options?.include_usage, 'stream_options.include_usage') ?? false,
  };
}

function flag(value: JsonValue | undefined, param: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'boolean') throw wrongField(param, `is ${kindOf(value)}, expected true or false`);
  return value;
}

function generationOptions(fields: Fields, topLogprobs: number | null): GenerationOptions {
  const format = fields.object('response_format');
  if (format !== undefined && format.type !== 'text')
    throw wrongField('response_format', `has the type ${kindOf(format.type)}, only text is supported`);
  const maxTokens = fields.count('max_completion_tokens', 1) ?? fields.count('max_tokens', 1) ?? null;
  fields.value('max_tokens');
  const sampling = validateSampling({
    temperature: fields.number('temperature') ?? 1,
    topK: fields.number('top_k') ?? defaultSampling.topK,
    topP: fields.number('top_p') ?? defaultSampling.topP,
    minP: fields.number('min_p') ?? defaultSampling.minP,
    repetitionPenalty: fields.number('repetition_penalty') ?? defaultSampling.repetitionPenalty,
    presencePenalty: fields.number('presence_penalty') ?? 0,
    frequencyPenalty: fields.number('frequency_penalty') ?? 0,
    logitBias: readBias(fields),
    seed: readSeed(fields),
  });
  return { maxTokens, sampling, stop: readStop(fields), topLogprobs };
}

/** Any whole number is a seed; without one, answers differ from request to request. */
function readSeed(fields: Fields): number {
  const seed = fields.number('seed');
  if (seed === undefined) return Math.floor(Math.random() * 2 ** 32);
  if (!Number.isInteger(seed)) throw wrongField('seed', `is ${seed}, expected a whole number`);
  return Number(BigInt.asUintN(32, BigInt(seed)));
}

function readBias(fields: Fields): Map<number, number> {
  const bias = fields.object('logit_bias') ?? {};
  return new Map(
    Object.entries(bias).map(([id, value]) => {
      if (value === null || Number.isNaN(Number(value)) || typeof value === 'string')
        throw wrongField(`logit_bias.${id}`, `is ${kindOf(value)}, expected a number`);
      return [Number(id), Number(value)];
    }),
  );
}

function readStop(fields: Fields): string[] {
  const stop = fields.value('stop');
  if (stop === undefined) return [];
  const list = Array.isArray(stop) ? stop : [stop];
  if (list.length > maxStops)
    throw wrongField('stop', `has ${list.length} entries, the limit is ${maxStops}`);
  return list.map((item: JsonValue, i) => {
    if (typeof item !== 'string' || item === '')
      throw wrongField(`stop[${i}]`, `is ${kindOf(item)}, expected a text that is not empty`);
    return item;
  });
}

function chatLogprobs(fields: Fields): number | null {
  const wanted = fields.boolean('logprobs') ?? false;
  const top = fields.count('top_logprobs') ?? 0;
  if (!wanted && top > 0) throw wrongField('top_logprobs', `is ${top}, which needs logprobs to be true`);
  return wanted ? limitLogprobs(top, 'top_logprobs') : null;
}

function limitLogprobs(count: number | null, param: string): number | null {
  if (count !== null && count > maxTopLogprobs)
    throw wrongField(param, `is ${count}, the limit is ${maxTopLogprobs}`);
  return count;
}

function readPrompt(fields: Fields): string | Int32Array {
  const prompt = fields.value('prompt');
  if (typeof prompt === 'string') return prompt;
  const isIds =
    Array.isArray(prompt) &&
    prompt.length > 0 &&
    prompt.every((id) => typeof id === 'number' && Number.isInteger(id) && id >= 0);
  if (!isIds) throw wrongField('prompt', `is ${kindOf(prompt)}, expected a text or a list of token ids`);
  return Int32Array.from(prompt as number[]);
}

function readTools(fields: Fields): ToolDef[] | null {
  const tools = fields.list('tools');
  if (tools === undefined || tools.length === 0) return null;
  return tools.map((tool, i) => {
    const fn = isJsonObject(tool) ? tool.function : undefined;
    if (
      !isJsonObject(tool) ||
      tool.type !== 'function' ||
      !isJsonObject(fn) ||
      typeof fn.name !== 'string' ||
      fn.name === ''
    )
      throw wrongField(`tools[${i}]`, 'is not {type: "function", function: {name, ...}}');
    return tool;
  });
}

function readToolChoice(fields: Fields): 'auto' | 'none' {
  const choice = fields.value('tool_choice');
  if (choice === undefined || choice === 'auto') return 'auto';
  if (choice === 'none') return 'none';
  throw wrongField('tool_choice', `is ${kindOf(choice)}, supported are auto and none`);
}

function readMessages(fields: Fields): ChatMessage[] {
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
    content: readContent(content, `${at}.content`),
    ...(typeof reasoningText === 'string' ? { reasoning_content: reasoningText } : {}),
    tool_calls: readCalls(calls, `${at}.tool_calls`),
  } as ChatMessage;
}

function readContent(content: JsonValue | undefined, at: string): string | JsonObject[] | null {
  if (content === undefined || content === null) return null;
  if (typeof content === 'string') return content;
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

function readCalls(calls: JsonValue | undefined, at: string): JsonObject[] | null {
  if (calls === undefined || calls === null) return null;
  if (!Array.isArray(calls)) throw wrongField(at, `is ${kindOf(calls)}, expected a list`);
  return calls.map((call: JsonValue, i) => {
    const fn = isJsonObject(call) ? call.function : undefined;
    if (!isJsonObject(call) || !isJsonObject(fn) || typeof fn.name !== 'string')
      throw wrongField(`${at}[${i}]`, 'is not a function call with a name');
    const { arguments: args } = fn;
    const isUsable =
      args === undefined ||
      args === null ||
      isJsonObject(args) ||
      (typeof args === 'string' && isObjectText(args));
    if (!isUsable) throw wrongField(`${at}[${i}].function.arguments`, 'is not the JSON of an object');
    return args === '' || args === null ? { ...call, function: { ...fn, arguments: {} } } : call;
  });
}

/** Empty text stands for no arguments. */
function isObjectText(text: string): boolean {
  if (text.trim() === '') return true;
  try {
    return isJsonObject(JSON.parse(text) as JsonValue);
  } catch {
    return false;
  }
}
