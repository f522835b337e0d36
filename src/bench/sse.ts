/**
 * Server-sent events as the official client reads them: events end at a blank line; in each, every `data:` followed by a JSON
 * object up to the end of the line is a document. `[DONE]` and comments mean nothing, but a comment `: usage {...}` is
 * where a server may report its own counts without being asked.
 */
import type { Answer, ServerUsage } from './answer.ts';

export class SseReader {
  readonly #decoder = new TextDecoder('utf-8');
  readonly #answer: Answer;
  readonly #warn: (message: string) => void;
  #text = '';

  constructor(answer: Answer, warn: (message: string) => void) {
    this.#answer = answer;
    this.#warn = warn;
  }

  /** Reads one batch of bytes. Returns true when it contained the first chunk. */
  push(bytes: Uint8Array): boolean {
    this.#text += this.#decoder.decode(bytes, { stream: true }).replaceAll('\r\n', '\n');
    const end = this.#text.lastIndexOf('\n\n');
    if (end < 0) return false;
    const events = this.#text.slice(0, end);
    this.#text = this.#text.slice(end + 2);
    return this.#read(events);
  }

  /** The last event may lack its blank line. */
  finish(): boolean {
    const rest = this.#text;
    this.#text = '';
    return this.#read(rest);
  }

  #read(events: string): boolean {
    let first = false;
    try {
      for (const [, document] of events.matchAll(/^data:[ \t]*(\{.*\})[ \t]*$/gm)) {
        if (addDocument(this.#answer, JSON.parse(document as string))) first = true;
      }
    } catch (error) {
      // The rest of this batch is dropped, as the official client does.
      this.#warn(`a malformed event was dropped: ${(error as Error).message}`);
    }
    const usage = events.match(/^: usage (\{.*\})$/m)?.[1];
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
    readonly draft_n?: number;
    readonly draft_n_accepted?: number;
  };
}

function addDocument(answer: Answer, chunk: Chunk): boolean {
  const choice = chunk.choices?.[0];
  // llama.cpp reports counts in its last chunk.
  const { timings } = chunk;
  if (timings?.prompt_n !== undefined) {
    const cachedTokens = timings.cache_n ?? 0;
    answer.usage = {
      promptTokens: timings.prompt_n + cachedTokens,
      cachedTokens,
      steps: null,
      drafted: timings.draft_n ?? null,
      accepted: timings.draft_n_accepted ?? null,
    };
  }
  if (choice === undefined) return false;
  if (choice.finish_reason) answer.finishReason = choice.finish_reason;
  return answer.add(choice.delta ?? choice.message ?? {});
}

function parseUsage(text: string): ServerUsage | null {
  try {
    const json = JSON.parse(text) as Record<string, number | undefined>;
    return {
      promptTokens: json.prompt_tokens ?? 0,
      cachedTokens: json.cached_tokens ?? 0,
      steps: json.steps ?? null,
      drafted: json.drafted_tokens ?? null,
      accepted: json.accepted_tokens ?? null,
    };
  } catch {
    return null;
  }
}

/** An answer that came as one JSON document. */
export function readWhole(answer: Answer, text: string): boolean {
  return addDocument(answer, JSON.parse(text) as Chunk);
}
