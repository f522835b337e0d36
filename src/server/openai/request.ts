/**
 * From the JSON of an OpenAI request to a completion request. Defaults are OpenAI's. A field of the wrong type or out
 * of range is refused by its name, and so is a value that OpenAI has and this server has not; unknown fields are listed.
 */
import { isJsonObject, JsonNumber, type JsonValue } from '../../chat/index.ts';
import type { ChatRequest, GenerationOptions, TextRequest } from '../../completion/index.ts';
import { defaultSampling, validateSampling } from '../../sampling/index.ts';
import { Notes, type ReadOptions } from '../content.ts';
import { Fields, kindOf, wrongField } from '../fields.ts';
import { checkUnsupported, readFormat, refuseFields } from './constraints.ts';
import { readMessages } from './messages.ts';
import { type ReadTools, readToolFields } from './tools.ts';

/** Fields that clients send and that have no meaning here. */
const ignored = ['store', 'metadata', 'service_tier', 'prompt_cache_key', 'safety_identifier', 'verbosity'];

/** Raw completions know no calls. */
const chatOnly = Object.fromEntries(
  ['tools', 'functions', 'tool_choice', 'function_call'].map((name) => [name, 'use /v1/chat/completions']),
);

const efforts = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'];

export interface ReadRequest<T> {
  readonly model: string;
  readonly stream: boolean;
  /** `n` */
  readonly choices: number;
  readonly includeUsage: boolean;
  readonly request: T;
  readonly unknown: readonly string[];
  /** What was changed or left out, for the log. */
  readonly notes: readonly string[];
}

const maxChoices = 8;
const maxStops = 16;
const maxTopLogprobs = 20;

export type ReadChat = ReadRequest<ChatRequest> & Pick<ReadTools, 'legacy' | 'named'>;

export function readChatRequest(body: JsonValue, options: ReadOptions): ReadChat {
  const fields = fieldsOf(body);
  const notes = new Notes();
  const model = requiredModel(fields);
  const { tools, toolChoice, legacy, named } = readToolFields(fields);
  const parallel = fields.boolean('parallel_tool_calls') ?? true;
  const request: ChatRequest = {
    messages: readMessages(fields, { options, notes }),
    tools,
    toolChoice,
    format: readFormat(fields),
    // There is room for one `function_call`.
    parallelToolCalls: parallel && !legacy,
    ...templateOptions(fields),
    ...generationOptions(fields, chatLogprobs(fields)),
  };
  const unknown = unknownFields(fields);
  return { model, ...streamOptions(fields), request, unknown, notes: notes.lines, legacy, named };
}

export function readTextRequest(body: JsonValue): ReadRequest<TextRequest> {
  const fields = fieldsOf(body);
  const model = requiredModel(fields);
  if (fields.boolean('echo')) throw wrongField('echo', 'is true, which is not supported');
  const logprobs = fields.count('logprobs');
  refuseFields(fields, chatOnly);
  const request = {
    prompt: readPrompt(fields),
    format: readFormat(fields),
    ...generationOptions(fields, limitLogprobs(logprobs ?? null, 'logprobs')),
  };
  return { model, ...streamOptions(fields), request, unknown: unknownFields(fields), notes: [] };
}

/** What the template is told: thinking and its further variables. */
export function templateOptions(
  fields: Fields,
): Pick<ChatRequest, 'enableThinking' | 'preserveThinking' | 'templateKwargs'> {
  const kwargs = fields.object('chat_template_kwargs') ?? {};
  const { enable_thinking: thinking, preserve_thinking: preserve, ...templateKwargs } = kwargs;
  const topLevelThinking = fields.boolean('enable_thinking');
  const effort = readEffort(fields);
  const effortThinks = effort === null ? null : effort !== 'none';
  return {
    enableThinking:
      flag(thinking, 'chat_template_kwargs.enable_thinking') ?? topLevelThinking ?? effortThinks,
    preserveThinking: flag(preserve, 'chat_template_kwargs.preserve_thinking') ?? null,
    templateKwargs: effort === null ? templateKwargs : { reasoning_effort: effort, ...templateKwargs },
  };
}

/** The fields of a body; one that constrains the answer and is not supported is refused. */
export function fieldsOf(body: JsonValue): Fields {
  if (!isJsonObject(body)) throw wrongField('body', `is ${kindOf(body)}, expected an object`);
  const fields = new Fields(body);
  checkUnsupported(fields);
  return fields;
}

/** OpenAI's `reasoning_effort`, or `reasoning.effort` as some gateways send it. */
function readEffort(fields: Fields): string | null {
  const nested = fields.object('reasoning')?.effort;
  const effort = fields.value('reasoning_effort') ?? nested ?? null;
  if (effort === null) return null;
  if (typeof effort !== 'string' || !efforts.includes(effort))
    throw wrongField('reasoning_effort', `is ${kindOf(effort)}, expected one of ${efforts.join(', ')}`);
  return effort;
}

export function requiredModel(fields: Fields): string {
  const model = fields.text('model');
  if (model === undefined) throw wrongField('model', 'is missing');
  return model;
}

function unknownFields(fields: Fields): string[] {
  return fields.unknown().filter((name) => !ignored.includes(name));
}

function streamOptions(fields: Fields): { stream: boolean; choices: number; includeUsage: boolean } {
  const choices = fields.count('n', 1) ?? 1;
  if (choices > maxChoices) throw wrongField('n', `is ${choices}, the limit is ${maxChoices}`);
  const options = fields.object('stream_options');
  return {
    stream: fields.boolean('stream') ?? false,
    choices,
    includeUsage: flag(options?.include_usage, 'stream_options.include_usage') ?? false,
  };
}

export function flag(value: JsonValue | undefined, param: string): boolean | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'boolean') throw wrongField(param, `is ${kindOf(value)}, expected true or false`);
  return value;
}

export function generationOptions(fields: Fields, topLogprobs: number | null): GenerationOptions {
  const [newer, older] = [fields.count('max_completion_tokens', 1), fields.count('max_tokens', 1)];
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
  const tenant = fields.text('user') ?? '';
  return { maxTokens: newer ?? older ?? null, sampling, stop: readStop(fields), topLogprobs, tenant };
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
      if (!/^\d{1,9}$/.test(id))
        throw wrongField('logit_bias', `has the key '${id.slice(0, 200)}', expected a token id`);
      if (typeof value !== 'number' && !(value instanceof JsonNumber))
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

export function limitLogprobs(count: number | null, param: string): number | null {
  if (count !== null && count > maxTopLogprobs)
    throw wrongField(param, `is ${count}, the limit is ${maxTopLogprobs}`);
  return count;
}

/** A text or token ids; a list of one text is that text. */
function readPrompt(fields: Fields): string | Int32Array {
  const prompt = fields.value('prompt');
  if (typeof prompt === 'string') return prompt;
  if (!Array.isArray(prompt))
    throw wrongField('prompt', `is ${kindOf(prompt)}, expected a text or a list of token ids`);
  const items: readonly JsonValue[] = prompt;
  if (typeof items[0] === 'string') {
    if (items.length > 1) throw wrongField('prompt', `has ${items.length} entries, only 1 text is supported`);
    return items[0];
  }
  const ids = items.map((id, i) => {
    const isId = typeof id === 'number' && Number.isInteger(id) && id >= 0 && id < 2 ** 31;
    if (!isId) throw wrongField(`prompt[${i}]`, `is ${kindOf(id)}, expected a token id`);
    return id;
  });
  return Int32Array.from(ids);
}
