/**
 * What a server answered, decoded as the official client does: which deltas count, what the first chunk is, how tool calls
 * are put together.
 */
import type { JsonObject } from '../../chat/index.ts';

export interface ToolCallDelta {
  readonly index?: number;
  readonly id?: string | null;
  readonly type?: string | null;
  readonly function?: { readonly name?: string | null; readonly arguments?: string | null } | null;
}

/** Tool calls put together from deltas, with their keys in the official order. */
export interface MergedCall {
  type: string;
  function: { arguments: string; name?: string };
  id?: string;
}

export type ChunkKind = 'content' | 'reasoning' | 'tool';

/** What a server says about its own work, if it does: never asked for, read where it is offered. */
export interface ServerUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  /** Tokens it generated, the end of the turn among them. */
  readonly generated: number | null;
  readonly steps: number | null;
  readonly drafted: number | null;
  readonly accepted: number | null;
}

export class Answer {
  readonly content: string[] = [];
  readonly reasoning: string[] = [];
  readonly toolChunks: ToolCallDelta[][] = [];
  /** What the first chunk was; null while none came. */
  firstKind: ChunkKind | null = null;
  finishReason: string | null = null;
  usage: ServerUsage | null = null;
  /** The message of an answer that was not streamed; its calls are complete and keep the server's form. */
  #whole: { readonly calls: MergedCall[] | null } | null = null;

  /** Takes a message that came as a whole. It has no first chunk. */
  takeWhole(message: Record<string, unknown>): void {
    const calls = callsOf(message.tool_calls);
    this.add({ ...message, tool_calls: null });
    if (calls.length > 0) this.toolChunks.push(calls);
    this.firstKind = null;
    this.#whole = { calls: calls.length === 0 ? null : (calls as unknown as MergedCall[]) };
  }

  /** Adds a delta. Returns true when it is the first chunk. Throws TypeError when it has the wrong shape. */
  add(delta: Record<string, unknown>): boolean {
    const content = textOf(delta.content);
    const [named, other] = [textOf(delta.reasoning_content), textOf(delta.reasoning)];
    const reasoning = named || other;
    const calls = callsOf(delta.tool_calls);
    if (calls.length > 0) this.toolChunks.push(calls);
    if (content !== '') this.content.push(content);
    else if (reasoning !== '') this.reasoning.push(reasoning);
    const kind: ChunkKind | null =
      content !== '' ? 'content' : reasoning !== '' ? 'reasoning' : calls.length > 0 ? 'tool' : null;
    if (kind === null || this.firstKind !== null) return false;
    this.firstKind = kind;
    return true;
  }

  get calls(): MergedCall[] | null {
    if (this.#whole !== null) return this.#whole.calls;
    return this.toolChunks.length === 0 ? null : mergeCalls(this.toolChunks.flat());
  }

  get isEmpty(): boolean {
    return this.content.length + this.reasoning.length + this.toolChunks.length === 0;
  }

  /** `["TextModelOutput", output, reasoning, tool_calls]` of an event. */
  get eventData(): unknown[] {
    if (this.#whole !== null)
      return ['TextModelOutput', this.content.join(''), this.reasoning.join('') || null, this.#whole.calls];
    const split = (chunks: readonly string[]): string[] =>
      chunks.length === 0
        ? []
        : [chunks[0] as string, chunks.slice(1).join('')].filter((part, i) => i === 0 || part !== '');
    const tools = this.toolChunks.length === 0 ? null : this.toolChunks;
    if (this.reasoning.length > 0)
      return ['TextModelOutput', this.content.join(''), split(this.reasoning), tools];
    return ['TextModelOutput', split(this.content), null, tools];
  }
}

function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (typeof value !== 'string') throw new TypeError(`a text is ${JSON.stringify(value)}`);
  return value;
}

function callsOf(value: unknown): ToolCallDelta[] {
  if (value === undefined || value === null) return [];
  if (
    !Array.isArray(value) ||
    value.some((call) => typeof call !== 'object' || call === null || Array.isArray(call))
  )
    throw new TypeError(`tool_calls is ${JSON.stringify(value)}`);
  return value as ToolCallDelta[];
}

export function mergeCalls(deltas: readonly ToolCallDelta[]): MergedCall[] {
  const calls = new Map<number, MergedCall>();
  for (const delta of deltas) {
    const index = delta.index ?? 0;
    let call = calls.get(index);
    if (call === undefined) {
      call = { type: 'function', function: { arguments: '' } };
      calls.set(index, call);
    }
    if (delta.id) call.id = delta.id;
    if (delta.type) call.type = delta.type;
    if (delta.function?.name) call.function.name = delta.function.name;
    const fragment = delta.function?.arguments;
    if (typeof fragment === 'string') call.function.arguments += fragment;
  }
  return [...calls].sort(([a], [b]) => a - b).map(([, call]) => call);
}

/** A message for the chat template: content, reasoning and calls of an answer. */
export function answerMessage(
  content: string,
  reasoning: string,
  calls: readonly MergedCall[] | null,
): JsonObject {
  return {
    role: 'assistant',
    content,
    ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
    ...(calls === null ? {} : { tool_calls: calls as unknown as JsonObject[] }),
  };
}
