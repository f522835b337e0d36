/**
 * `/metrics` in Prometheus form, under vLLM's names where it has them. Counts of the cache are in tokens, as there.
 * The engine counts by itself; its totals are copied whenever the page is read.
 */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { type Engine, type EngineStats, meanAcceptedLength } from '../engine/index.ts';

export interface RequestFigures {
  readonly ttftSeconds: number | null;
  readonly secondsPerToken: number | null;
  readonly seconds: number;
  /** As the API tells it. */
  readonly reason: 'stop' | 'length' | 'tool_calls' | 'cancelled';
}

type Read = (stats: EngineStats) => number;

const totals: readonly (readonly [name: string, help: string, read: Read])[] = [
  ['vllm:prompt_tokens_total', 'Prompt tokens.', (s) => s.promptTokens],
  ['vllm:generation_tokens_total', 'Generated tokens.', (s) => s.generatedTokens],
  ['vllm:prefix_cache_queries_total', 'Prompt tokens looked up in the cache.', (s) => s.promptTokens],
  ['vllm:prefix_cache_hits_total', 'Prompt tokens found in the cache.', (s) => s.cachedTokens],
  ['vllm:spec_decode_num_drafts_total', 'Steps that verified a draft.', (s) => s.speculation.drafts],
  ['vllm:spec_decode_num_draft_tokens_total', 'Drafted tokens.', (s) => s.draftedTokens],
  [
    'vllm:spec_decode_num_accepted_tokens_total',
    'Drafted tokens that were accepted.',
    (s) => s.acceptedTokens,
  ],
  ['copse:steps_total', 'Forward passes of the engine.', (s) => s.steps],
  ['copse:step_predicted_ms_total', 'Predicted time of decode steps, ms.', (s) => s.speculation.predictedMs],
  ['copse:step_measured_ms_total', 'Measured time of the same steps, ms.', (s) => s.speculation.measuredMs],
  ['copse:evicted_pages_total', 'Pages evicted from the cache.', (s) => s.cache.evictedPages],
  ['copse:evicted_snapshots_total', 'Snapshots evicted from the cache.', (s) => s.cache.evictedSnapshots],
  ['copse:requests_failed_total', 'Requests that failed in the engine.', (s) => s.requests.error],
];

const gauges: readonly (readonly [name: string, help: string, read: Read])[] = [
  ['vllm:num_requests_running', 'Sequences in the step.', (s) => s.running],
  ['vllm:num_requests_waiting', 'Requests that wait for a place.', (s) => s.waiting],
  [
    'vllm:kv_cache_usage_perc',
    'Used share of the cache budget, 1 = full.',
    ({ cache }) => cache.usedBytes / cache.budgetBytes,
  ],
  [
    'copse:mean_accepted_length',
    'Tokens that a step with a draft brought on average, 0 before the first.',
    (s) => meanAcceptedLength(s.speculation) ?? 0,
  ],
  ['copse:cache_pages', 'Pages in the cache.', (s) => s.cache.pages],
  ['copse:cache_snapshots', 'Snapshots in the cache.', (s) => s.cache.snapshots],
];

/** vLLM's words for how a request ends. */
const finishedReasons = { stop: 'stop', length: 'length', tool_calls: 'stop', cancelled: 'abort' } as const;

/** Seconds. */
const buckets = [0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.25, 2.5, 5, 10, 20, 40, 80, 160];

export class Metrics {
  readonly registry = new Registry();
  readonly #engine: Engine;
  readonly #ttft: Histogram;
  /** Newer dashboards look for the second name. */
  readonly #perToken: readonly Histogram[];
  readonly #latency: Histogram;
  readonly #success: Counter<'finished_reason'>;
  readonly #cancelled: Counter;
  readonly #totals: readonly { readonly counter: Counter; readonly read: Read }[];
  readonly #gauges: readonly { readonly gauge: Gauge; readonly read: Read }[];
  readonly #drafts: DraftCounters;

  constructor(engine: Engine, modelName: string) {
    this.#engine = engine;
    this.registry.setDefaultLabels({ model_name: modelName });
    const registers = [this.registry];
    const histogram = (name: string, help: string): Histogram =>
      new Histogram({ name, help, buckets, registers });
    this.#ttft = histogram('vllm:time_to_first_token_seconds', 'Time from request to first token.');
    this.#perToken = ['vllm:time_per_output_token_seconds', 'vllm:inter_token_latency_seconds'].map((name) =>
      histogram(name, 'Mean time per output token after the first, per request.'),
    );
    this.#latency = histogram('vllm:e2e_request_latency_seconds', 'Time of a whole request.');
    this.#success = new Counter({
      name: 'vllm:request_success_total',
      help: 'Requests by the reason of their end.',
      labelNames: ['finished_reason'],
      registers,
    });
    // Not the engine's count: it also ends what a stop text made complete.
    this.#cancelled = new Counter({
      name: 'copse:requests_cancelled_total',
      help: 'Requests that were cut short.',
      registers,
    });
    this.#totals = totals.map(([name, help, read]) => ({
      counter: new Counter({ name, help, registers }),
      read,
    }));
    this.#gauges = gauges.map(([name, help, read]) => ({
      gauge: new Gauge({ name, help, registers }),
      read,
    }));
    this.#drafts = new DraftCounters(this.registry);
  }

  observe({ ttftSeconds, secondsPerToken, seconds, reason }: RequestFigures): void {
    if (ttftSeconds !== null) this.#ttft.observe(ttftSeconds);
    if (secondsPerToken !== null) for (const histogram of this.#perToken) histogram.observe(secondsPerToken);
    this.#latency.observe(seconds);
    this.#success.inc({ finished_reason: finishedReasons[reason] });
    if (reason === 'cancelled') this.#cancelled.inc();
  }

  /** A request that met a bug. */
  failed(): void {
    this.#success.inc({ finished_reason: 'error' });
  }

  async text(): Promise<string> {
    const stats = await this.#engine.stats();
    for (const { counter, read } of this.#totals) {
      counter.reset();
      counter.inc(read(stats));
    }
    for (const { gauge, read } of this.#gauges) gauge.set(read(stats));
    this.#drafts.set(stats.speculation);
    return this.registry.metrics();
  }
}

/** Drafted and accepted tokens, by where the draft came from and by its depth in the tree. */
class DraftCounters {
  readonly #bySource: { readonly drafted: Counter<'source'>; readonly accepted: Counter<'source'> };
  readonly #byDepth: { readonly drafted: Counter<'position'>; readonly accepted: Counter<'position'> };

  constructor(registry: Registry) {
    const counter = <T extends string>(name: string, help: string, label: T): Counter<T> =>
      new Counter({ name, help, labelNames: [label], registers: [registry] });
    this.#bySource = {
      drafted: counter('copse:drafted_tokens_by_source_total', 'Drafted tokens by source.', 'source'),
      accepted: counter('copse:accepted_tokens_by_source_total', 'Accepted tokens by source.', 'source'),
    };
    this.#byDepth = {
      drafted: counter('copse:drafted_tokens_per_pos_total', 'Drafted tokens by depth, from 0.', 'position'),
      accepted: counter(
        'vllm:spec_decode_num_accepted_tokens_per_pos_total',
        'Accepted tokens by depth, from 0.',
        'position',
      ),
    };
  }

  set({ bySource, byDepth }: EngineStats['speculation']): void {
    for (const counter of Object.values(this.#bySource)) counter.reset();
    for (const [source, { drafted, accepted }] of Object.entries(bySource)) {
      this.#bySource.drafted.inc({ source }, drafted);
      this.#bySource.accepted.inc({ source }, accepted);
    }
    for (const counter of Object.values(this.#byDepth)) counter.reset();
    for (const [position, { drafted, accepted }] of byDepth.entries()) {
      this.#byDepth.drafted.inc({ position }, drafted);
      this.#byDepth.accepted.inc({ position }, accepted);
    }
  }
}
