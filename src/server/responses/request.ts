/** From the JSON of a Responses request to a completion request, and what the answer has to say of it again. */
import { isJsonObject, type JsonObject, type JsonValue } from '../../chat/index.ts';
import type { ChatRequest } from '../../completion/index.ts';
import { Notes, type ReadOptions } from '../content.ts';
import { type Fields, kindOf, wrongField } from '../fields.ts';
import { type NamedFormat, readFormat, refuseFields } from '../openai/constraints.ts';
import {
  fieldsOf,
  flag,
  generationOptions,
  limitLogprobs,
  requiredModel,
  templateOptions,
} from '../openai/request.ts';
import { messagesOf, readItems } from './input.ts';
import { readToolChoice, readTools, type ToolTable } from './tools.ts';

export interface ResponsesRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly request: ChatRequest;
  /** The conversation so far. */
  readonly items: readonly JsonObject[];
  readonly tools: ToolTable;
  readonly stores: boolean;
  readonly sealsReasoning: boolean;
  /** Drop the oldest messages where the context is full, instead of an error. */
  readonly truncates: boolean;
  /** What the response says of its request. */
  readonly echo: JsonObject;
  readonly unknown: readonly string[];
  readonly notes: readonly string[];
}

/** What was stored before. */
export interface Past {
  /** Input and output of a response. Throws UserError for one that is not there. */
  history(responseId: string): readonly JsonObject[];
  /** Throws UserError, which names `at`, for one that is not there. */
  item(id: string, at: string): JsonObject;
}

/** Fields without a meaning here. */
const ignored = [
  'service_tier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'safety_identifier',
  'max_tool_calls',
  'stream_options',
  'moderation',
  'client_metadata',
];

/** Fields that ask for what this server has not. */
const refused: Readonly<Record<string, string>> = {
  conversation: 'send the items, or previous_response_id',
  prompt: 'this server keeps no prompts: send instructions and input',
  functions: 'use tools',
  function_call: 'use tool_choice',
};

/** Throws UserError. */
export function readResponsesRequest(body: JsonValue, past: Past, options: ReadOptions): ResponsesRequest {
  const fields = fieldsOf(body);
  const notes = new Notes();
  refuseFields(fields, refused);
  if (fields.boolean('background'))
    throw wrongField('background', 'is true, which is not supported: wait for the answer, or stream it');
  const model = requiredModel(fields);
  const include = readInclude(fields);
  const tools = readTools(fields, notes);
  const instructions = fields.text('instructions');
  const previous = fields.text('previous_response_id');
  const history = previous === undefined ? [] : past.history(previous);
  const items = [
    ...history.map((item) => ({ item, at: 'previous_response_id' })),
    ...readItems(fields.value('input'), past.item),
  ];
  const messages = messagesOf(items, { options, notes });
  const system = instructions === undefined ? [] : [{ role: 'system', content: instructions }];
  if (messages.length === 0 && system.length === 0)
    throw wrongField('input', 'is missing or empty, at least one item is needed');
  const logprobs = fields.count('top_logprobs');
  const wantsLogprobs = include.includes('message.output_text.logprobs') || (logprobs ?? 0) > 0;
  const topLogprobs = wantsLogprobs ? limitLogprobs(logprobs ?? 0, 'top_logprobs') : null;
  const generation = generationOptions(fields, topLogprobs);
  const request: ChatRequest = {
    messages: [...system, ...messages],
    tools: tools.defs,
    toolChoice: readToolChoice(fields, tools),
    format: readFormat(fields, readTextFormat(fields)),
    parallelToolCalls: fields.boolean('parallel_tool_calls') ?? true,
    ...templateOptions(fields),
    ...generation,
    maxTokens: fields.count('max_output_tokens', 1) ?? generation.maxTokens,
  };
  const read = {
    model,
    stream: fields.boolean('stream') ?? false,
    request,
    items: items.map(({ item }) => item),
    tools,
    stores: fields.boolean('store') ?? true,
    sealsReasoning: include.includes('reasoning.encrypted_content'),
    truncates: readTruncation(fields) === 'auto',
    echo: echoOf(fields),
  };
  const unknown = fields.unknown().filter((name) => !ignored.includes(name));
  return { ...read, unknown, notes: notes.lines };
}

function readInclude(fields: Fields): readonly string[] {
  const include = fields.list('include') ?? [];
  return include.map((item, i) => {
    if (typeof item !== 'string') throw wrongField(`include[${i}]`, `is ${kindOf(item)}, expected a text`);
    return item;
  });
}

function readTruncation(fields: Fields): string {
  const truncation = fields.text('truncation') ?? 'disabled';
  if (truncation !== 'auto' && truncation !== 'disabled')
    throw wrongField('truncation', `is ${kindOf(truncation)}, expected auto or disabled`);
  return truncation;
}

function readTextFormat(fields: Fields): NamedFormat | null {
  const param = 'text.format';
  const format = fields.object('text')?.format;
  if (format === undefined || format === null) return null;
  if (!isJsonObject(format)) throw wrongField('text.format', `is ${kindOf(format)}, expected an object`);
  const { type, schema } = format;
  if (type === 'text') return null;
  if (type === 'json_object') return { type, param };
  if (type !== 'json_schema')
    throw wrongField('text.format.type', `is ${kindOf(type)}, expected text, json_object or json_schema`);
  if (!isJsonObject(schema))
    throw wrongField('text.format.schema', `is ${kindOf(schema)}, expected an object`);
  return { type, schema, param };
}

function readMetadata(fields: Fields): JsonObject {
  const metadata = fields.object('metadata') ?? {};
  for (const [key, value] of Object.entries(metadata))
    if (typeof value !== 'string')
      throw wrongField(`metadata.${key.slice(0, 64)}`, `is ${kindOf(value)}, expected a text`);
  return metadata;
}

function echoOf(fields: Fields): JsonObject {
  const text = fields.object('text');
  const reasoning = fields.object('reasoning');
  flag(fields.object('stream_options')?.include_obfuscation, 'stream_options.include_obfuscation');
  return {
    background: false,
    instructions: fields.text('instructions') ?? null,
    max_output_tokens: fields.count('max_output_tokens', 1) ?? null,
    max_tool_calls: fields.count('max_tool_calls') ?? null,
    parallel_tool_calls: fields.boolean('parallel_tool_calls') ?? true,
    previous_response_id: fields.text('previous_response_id') ?? null,
    prompt_cache_key: fields.text('prompt_cache_key') ?? null,
    reasoning: { effort: reasoning?.effort ?? null, summary: reasoning?.summary ?? null },
    safety_identifier: fields.text('safety_identifier') ?? null,
    service_tier: 'default',
    store: fields.boolean('store') ?? true,
    temperature: fields.number('temperature') ?? 1,
    text: { ...text, format: text?.format ?? { type: 'text' } },
    tool_choice: fields.value('tool_choice') ?? 'auto',
    tools: fields.list('tools') ?? [],
    top_logprobs: fields.count('top_logprobs') ?? 0,
    top_p: fields.number('top_p') ?? 1,
    truncation: readTruncation(fields),
    user: fields.text('user') ?? null,
    metadata: readMetadata(fields),
  };
}
