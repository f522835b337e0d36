/**
 * The server's own counts of prompt and cached tokens. An answer may carry them; else they are read from the server's Prometheus
 * page between turns, where it has one, one conversation at a time. Requests stay as they are. What the page's counters add
 * up to over the whole phase is known at any concurrency.
 */
import type { Answer, ServerUsage } from './answer.ts';
import { type Endpoint, now } from './client.ts';

interface Counters {
  readonly queried: number;
  readonly hit: number;
  readonly generated: number | null;
  readonly steps: number | null;
  readonly drafted: number | null;
  readonly accepted: number | null;
}

/** Names of each counter, the first that is there counts; all are in tokens, `steps` in steps. */
const names = {
  queried: [
    'vllm:prefix_cache_queries_total',
    'vllm:gpu_prefix_cache_queries_total',
    'sglang:prompt_tokens_total',
  ],
  hit: ['vllm:prefix_cache_hits_total', 'vllm:gpu_prefix_cache_hits_total', 'sglang:cached_tokens_total'],
  generated: ['vllm:generation_tokens_total', 'sglang:generation_tokens_total'],
  steps: ['vllm:spec_decode_num_drafts_total'],
  drafted: ['vllm:spec_decode_num_draft_tokens_total'],
  accepted: ['vllm:spec_decode_num_accepted_tokens_total'],
} as const;

/** Sums over labels, by name. Lines that are no samples are passed over. */
export function parsePrometheus(text: string): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split('\n')) {
    const match = /^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)/.exec(line);
    const [, name = '', value = ''] = match ?? [];
    const sum = (sums.get(name) ?? 0) + Number(value);
    if (match !== null && Number.isFinite(sum)) sums.set(name, sum);
  }
  return sums;
}

function countersOf(text: string | null): Counters | null {
  if (text === null) return null;
  const sums = parsePrometheus(text);
  const find = (of: readonly string[]): number | null => {
    const name = of.find((candidate) => sums.has(candidate));
    return name === undefined ? null : (sums.get(name) ?? null);
  };
  const [queried, hit] = [find(names.queried), find(names.hit)];
  if (queried === null || hit === null) return null;
  return {
    queried,
    hit,
    generated: find(names.generated),
    steps: find(names.steps),
    drafted: find(names.drafted),
    accepted: find(names.accepted),
  };
}

const minus = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? null : a - b;

function difference(after: Counters, before: Counters): ServerUsage {
  return {
    promptTokens: after.queried - before.queried,
    cachedTokens: after.hit - before.hit,
    generated: minus(after.generated, before.generated),
    steps: minus(after.steps, before.steps),
    drafted: minus(after.drafted, before.drafted),
    accepted: minus(after.accepted, before.accepted),
  };
}

export class ServerCounts {
  readonly #endpoint: Endpoint;
  readonly #isPerTurn: boolean;
  readonly #start: Counters;
  readonly #turns = new Map<string, ServerUsage>();
  #last: Counters;
  #readingNs = 0n;

  private constructor(endpoint: Endpoint, start: Counters, isPerTurn: boolean) {
    this.#endpoint = endpoint;
    this.#isPerTurn = isPerTurn;
    this.#start = start;
    this.#last = start;
  }

  /** null where the server has no page with these counters. */
  static async open(endpoint: Endpoint, concurrency: number): Promise<ServerCounts | null> {
    const start = countersOf(await endpoint.metricsText());
    return start === null ? null : new ServerCounts(endpoint, start, concurrency === 1);
  }

  /** Reads the page unless the answer told the counts itself, or other conversations run beside it. */
  async afterTurn(uuid: string, answer: Answer | null): Promise<void> {
    if (!this.#isPerTurn || answer?.usage) return;
    const started = now();
    const read = countersOf(await this.#endpoint.metricsText());
    this.#readingNs += now() - started;
    if (read === null) return;
    this.#turns.set(uuid, difference(read, this.#last));
    this.#last = read;
  }

  usageOf(uuid: string): ServerUsage | null {
    return this.#turns.get(uuid) ?? null;
  }

  /** Time spent reading between turns: part of the phase's duration, of no turn's latency. */
  get readingMs(): number {
    return Number(this.#readingNs) / 1e6;
  }

  /** Over the whole phase. */
  async total(): Promise<ServerUsage | null> {
    const end = countersOf(await this.#endpoint.metricsText());
    return end === null ? null : difference(end, this.#start);
  }
}
