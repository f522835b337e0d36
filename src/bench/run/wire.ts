/**
 * Requests, byte for byte as the official client sends them: compact JSON, fields in fixed order, absent ones left out. What a
 * model answers never goes into a later request; the recorded assistant message does.
 */
import { type JsonObject, type JsonValue, stringifyCompact } from '../../chat/index.ts';
import { UserError } from '../../util/index.ts';
import { blake2bHex } from './blake2b.ts';
import type { BenchConfig } from './config.ts';
import type { Conversation, DataRow } from './dataset.ts';
import { floatText } from './python.ts';

/** One request: a user or tool row with everything before it. */
export interface Turn {
  readonly conversationId: string;
  /** Turn number of the client row. */
  readonly turn: number;
  /** Position among the client rows of the file. */
  readonly sampleIndex: number;
  readonly messages: readonly JsonObject[];
  readonly tools: JsonValue | undefined;
  readonly body: string;
  /** Where the list of messages stands in `body`, brackets included. */
  readonly messagesAt: { readonly start: number; readonly end: number };
  /** The recorded assistant row that follows, if one does. */
  readonly recorded: DataRow | null;
  readonly delaySeconds: number;
}

const messageFields = ['role', 'content', 'name', 'tool_calls', 'tool_call_id', 'reasoning_content'] as const;

/** A message with its fields in wire order, null ones left out. */
export function wireMessage(fields: JsonObject): JsonObject {
  const present = messageFields.filter((key) => fields[key] !== undefined && fields[key] !== null);
  return Object.fromEntries(present.map((key) => [key, fields[key] as JsonValue]));
}

function messagesOf({ role, json }: DataRow): JsonObject[] {
  if (role !== 'tool') return [wireMessage(json)];
  const results = json.tool_results as readonly JsonObject[];
  return results.map(({ tool_call_id = '', content = null }) =>
    wireMessage({ role: 'tool', tool_call_id, content }),
  );
}

/** Fields of a request that come from the row, from the conversation's first user row, or from the config. */
interface RequestFields {
  readonly model: JsonValue;
  readonly maxTokens: number;
  readonly stream: boolean;
  readonly tools: JsonValue | undefined;
}

export function turnsOf(conversation: Conversation, config: BenchConfig, firstSample: number): Turn[] {
  const system = conversation.rows
    .map(({ json }) => json.system)
    .find((text) => typeof text === 'string' && text !== '');
  const messages: JsonObject[] = typeof system === 'string' ? [{ role: 'system', content: system }] : [];
  const texts = messages.map(stringifyCompact);
  const turns: Turn[] = [];
  for (const [i, row] of conversation.rows.entries()) {
    const added = messagesOf(row);
    messages.push(...added);
    texts.push(...added.map(stringifyCompact));
    if (row.role === 'assistant') continue;
    const next = conversation.rows[i + 1];
    const fields = requestFields(row.json, conversation.rows[0]?.json ?? {}, config);
    const list = `[${texts.join(',')}]`;
    const body = requestBody(list, fields, row.json, config);
    const start = body.indexOf(list);
    turns.push({
      conversationId: conversation.id,
      turn: row.turn,
      sampleIndex: firstSample + turns.length,
      messages: [...messages],
      tools: fields.tools,
      body,
      messagesAt: { start, end: start + list.length },
      recorded: next?.role === 'assistant' ? next : null,
      delaySeconds: Number(row.json.delay_seconds ?? 0),
    });
  }
  return turns;
}

/** The message list of the body, as JSON text. */
export function messagesJson({ body, messagesAt }: Turn): string {
  return body.slice(messagesAt.start, messagesAt.end);
}

/**
 * The turn with its system message between two salts, of the pass and of the conversation, so that no two passes
 * share a prefix. Throws UserError('bad_dataset') where there is no system message.
 */
export function saltedTurn(turn: Turn, pass: number): Turn {
  const [system, ...rest] = turn.messages;
  if (system?.role !== 'system' || typeof system.content !== 'string')
    throw new UserError('bad_dataset', `conversation '${turn.conversationId}' has no system message to salt`);
  const head = `[salt: ${blake2bHex(String(pass), 2)}]`;
  const tail = `[salt: ${blake2bHex(turn.conversationId, 2)}]`;
  const salted: JsonObject = { ...system, content: `${head}\n\n${system.content}\n\n${tail}` };
  const [before, after] = [stringifyCompact(system), stringifyCompact(salted)];
  const { start, end } = turn.messagesAt;
  return {
    ...turn,
    messages: [salted, ...rest],
    body: `${turn.body.slice(0, start + 1)}${after}${turn.body.slice(start + 1 + before.length)}`,
    messagesAt: { start, end: end + after.length - before.length },
  };
}

function requestFields(row: JsonObject, first: JsonObject, config: BenchConfig): RequestFields {
  const inherited = (key: string): JsonValue | undefined => row[key] ?? first[key] ?? undefined;
  const limits = [inherited('max_new_tokens'), inherited('max_completion_tokens'), row.max_tokens];
  const limit = limits.map(Number).find((value) => value > 0);
  const stream = inherited('stream');
  return {
    model: inherited('model') ?? config.model_params.name,
    maxTokens: limit ?? config.model_params.max_new_tokens,
    stream: typeof stream === 'boolean' ? stream : config.model_params.streaming === 'on',
    tools: inherited('tools'),
  };
}

const floats = ['top_p', 'repetition_penalty', 'presence_penalty', 'frequency_penalty'] as const;

function requestBody(
  messages: string,
  fields: RequestFields,
  row: JsonObject,
  { model_params: params }: BenchConfig,
): string {
  const own = (
    key: 'temperature' | 'seed' | 'top_k' | 'chat_template_kwargs' | (typeof floats)[number],
  ): JsonValue | undefined => (row[key] ?? params[key] ?? undefined) as JsonValue | undefined;
  const float = (key: 'temperature' | (typeof floats)[number]): string | undefined =>
    own(key) === undefined ? undefined : floatText(Number(own(key)));
  const json = (value: JsonValue | undefined): string | undefined =>
    value === undefined ? undefined : stringifyCompact(value);
  return joinFields([
    ['model', json(fields.model)],
    ['messages', messages],
    ['temperature', float('temperature')],
    ['max_completion_tokens', String(fields.maxTokens)],
    ['stream', String(fields.stream)],
    ['seed', json(own('seed'))],
    ['top_p', float('top_p')],
    ['top_k', json(own('top_k'))],
    ['repetition_penalty', float('repetition_penalty')],
    ['presence_penalty', float('presence_penalty')],
    ['frequency_penalty', float('frequency_penalty')],
    ['chat_template_kwargs', json(own('chat_template_kwargs'))],
    ['tools', json(fields.tools)],
  ]);
}

/** A JSON object from ready-made values; undefined ones are left out. */
export function joinFields(fields: readonly (readonly [string, string | undefined])[]): string {
  return `{${fields.flatMap(([key, value]) => (value === undefined ? [] : [`"${key}":${value}`])).join(',')}}`;
}
