/**
 * Server-sent events as the official client reads them: events end at a blank line; in each, every `data:` followed by a JSON
 * object up to the end of the line is a document. `[DONE]` and comments mean nothing to the benchmark, but a comment
 * `: usage {...}` is where a server may report its own counts without being asked.
 *
 * A batch is all events that one read completed. A document that is malformed drops the rest of its batch, no more.
 */
import type { Answer, ServerUsage } from './answer.ts';

// Not `.`: JSON may hold U+2028 and U+2029 as they are.
const documents = /data:[ \t]*(\{[^\n]*\})/g;

export class SseReader {
  readonly #decoder = new TextDecoder('utf-8');
  readonly #answer: Answer;
  readonly #warn: (message: string) => void;
  /** Text without a blank line yet, in pieces: joined only when one may have come. */
  #rest: string[] = [];

  constructor(answer: Answer, warn: (message: string) => void) {
    this.#answer = answer;
    this.#warn = warn;
  }

  /** Reads one batch of bytes. Returns true when it contained the first chunk. */
  push(bytes: Uint8Array): boolean {
    const text = this.#decoder.decode(bytes, { stream: true });
    this.#rest.push(text);
    if (!text.includes('\n')) return false;
    const whole = this.#rest.join('').replaceAll('\r\n', '\n');
    const end = whole.lastIndexOf('\n\n');
    this.#rest = [whole.slice(end < 0 ? 0 : end + 2)];
    return end < 0 ? false : this.#read(whole.slice(0, end));
  }

  /** The last event may lack its blank line. */
  finish(): boolean {
    const text = this.#rest.join('') + this.#decoder.decode();
    this.#rest = [];
    return this.#read(text);
  }

  #read(events: string): boolean {
    let first = false;
    try {
      for (const [, document] of events.matchAll(documents)) {
        if (addDocument(this.#answer, JSON.parse(document as string))) first = true;
      }
    } catch (error) {
      this.#warn(`a malformed event was dropped: ${(error as Error).message}`);
    }
    const usage = events.match(/^: usage (\{[^\n]*\})$/m)?.[1];
    if (usage !== undefined) this.#answer.usage = parseUsage(usage);
    return first;
  }
}

interface Chunk {
  readonly choices?: readonly {
    readonly delta?: Record<string, unknown>;
    readonly message?: Record<string, unknown>;
    readonly finish_reason?: string | null;
  }[];
  readonly timings?: {
    readonly cache_n?: number;
    readonly prompt_n?: number;
    readonly predicted_n?: number;
    readonly draft_n?: number;
    readonly draft_n_accepted?: number;
  };
}

function addDocument(answer: Answer, chunk: Chunk): boolean {
  const choice = chunk.choices?.[0];
  takeTimings(answer, chunk);
  if (choice === undefined) return false;
  const isFirst = answer.add(choice.delta ?? {});
  if (typeof choice.finish_reason === 'string') answer.finishReason = choice.finish_reason;
  return isFirst;
}

/** llama.cpp reports its counts in the last chunk. */
function takeTimings(answer: Answer, { timings }: Chunk): void {
  if (timings?.prompt_n === undefined) return;
  const cachedTokens = timings.cache_n ?? 0;
  answer.usage = {
    promptTokens: timings.prompt_n + cachedTokens,
    cachedTokens,
    generated: timings.predicted_n ?? null,
    steps: null,
    drafted: timings.draft_n ?? null,
    accepted: timings.draft_n_accepted ?? null,
  };
}

function parseUsage(text: string): ServerUsage | null {
  try {
    const json = JSON.parse(text) as Record<string, number | undefined>;
    return {
      promptTokens: json.prompt_tokens ?? 0,
      cachedTokens: json.cached_tokens ?? 0,
      generated: json.completion_tokens ?? null,
      steps: json.steps ?? null,
      drafted: json.drafted_tokens ?? null,
      accepted: json.accepted_tokens ?? null,
    };
  } catch {
    return null;
  }
}

/** An answer that came as one JSON document. Throws when it is none. */
export function readWhole(answer: Answer, text: string): void {
  const chunk = JSON.parse(text) as Chunk;
  const choice = chunk.choices?.[0];
  if (choice?.message === undefined) throw new TypeError('the answer has no choice with a message');
  takeTimings(answer, chunk);
  answer.takeWhole(choice.message);
  if (typeof choice.finish_reason === 'string') answer.finishReason = choice.finish_reason;
}
