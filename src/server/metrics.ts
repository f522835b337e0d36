/** `/metrics` in Prometheus form, under vLLM's names where it has them; token counts of the cache are in tokens. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { Engine, EngineStats } from '../engine/index.ts';

export interface RequestFigures {
  readonly ttftSeconds: number | null;
  readonly secondsPerToken: number | null;
  readonly seconds: number;
  readonly reason: string;
}

export class Metrics {
  readonly registry = new Registry();
  readonly #engine: Engine;
  readonly #drafts: DraftMetrics;
  readonly #ttft: Histogram;
  readonly #perToken: Histogram;
  readonly #latency: Histogram;
  readonly #success: Counter<'finished_reason'>;
  readonly #totals: readonly { readonly counter: Counter; readonly read: (stats: EngineStats) => number }[];
  readonly #gauges: readonly { readonly gauge: Gauge; readonly read: (stats: EngineStats) => number }[];

  constructor(engine: Engine) {
    this.#engine = engine;
    this.#drafts = new DraftMetrics(this.registry);
    const registers = [this.registry];
    const histogram = (name: string, help: string, buckets: number[]): Histogram =>
      new Histogram({ name, help, buckets, registers });
    const times = [0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.25, 2.5, 5, 10, 20, 60];
    this.#ttft = histogram('vllm:time_to_first_token_seconds', 'Time from request to first token.', times);
    this.#perToken = histogram(
      'vllm:time_per_output_token_seconds',
      'Time per output token after the first.',
      times,
    );
    this.#latency = histogram('vllm:e2e_request_latency_seconds', 'Time of a whole request.', times);
    this.#success = new Counter({
      name: 'vllm:request_success_total',
      help: 'Requests by the reason of their end.',
      labelNames: ['finished_reason'],
      registers,
    });
    const total = (name: string, help: string, read: (stats: EngineStats) => number) => ({
      counter: new Counter({ name, help, registers }),
      read,
    });
    this.#totals = [
      total('vllm:prompt_tokens_total', 'Prompt tokens.', (stats) => stats.promptTokens),
      total('vllm:generation_tokens_total', 'Generated tokens.', (stats) => stats.generatedTokens),
      total(
        'vllm:prefix_cache_queries_total',
        'Prompt tokens looked up in the cache.',
        (stats) => stats.promptTokens,
      ),
      total(
        'vllm:prefix_cache_hits_total',
        'Prompt tokens found in the cache.',
        (stats) => stats.cachedTokens,
      ),
      total('vllm:spec_decode_num_draft_tokens_total', 'Drafted tokens.', (stats) => stats.draftedTokens),
      total(
        'vllm:spec_decode_num_accepted_tokens_total',
        'Drafted tokens that were accepted.',
        (stats) => stats.acceptedTokens,
      ),
      total('copse:steps_total', 'Forward passes of the engine.', (stats) => stats.steps),
      total(
        'copse:evicted_pages_total',
        'Pages evicted from the cache.',
        (stats) => stats.cache.evictedPages,
      ),
      total(
        'copse:evicted_snapshots_total',
        'Snapshots evicted from the cache.',
        (stats) => stats.cache.evictedSnapshots,
      ),
      total(
        'copse:requests_cancelled_total',
        'Requests cancelled by their clients.',
        (stats) => stats.requests.cancelled,
      ),
      total('copse:requests_failed_total', 'Requests that failed.', (stats) => stats.requests.error),
    ];
    const gauge = (name: string, help: string, read: (stats: EngineStats) => number) => ({
      gauge: new Gauge({ name, help, registers }),
      read,
    });
    this.#gauges = [
      gauge('vllm:num_requests_running', 'Sequences in the step.', (stats) => stats.running),
      gauge('vllm:num_requests_waiting', 'Requests that wait for a place.', (stats) => stats.waiting),
      gauge(
        'vllm:kv_cache_usage_perc',
        'Used share of the cache budget, 1 = full.',
        ({ cache }) => cache.usedBytes / cache.budgetBytes,
      ),
      gauge('copse:cache_pages', 'Pages in the cache.', (stats) => stats.cache.pages),
      gauge('copse:cache_snapshots', 'Snapshots in the cache.', (stats) => stats.cache.snapshots),
    ];
  }

  observe({ ttftSeconds, secondsPerToken, seconds, reason }: RequestFigures): void {
    if (ttftSeconds !== null) this.#ttft.observe(ttftSeconds);
    if (secondsPerToken !== null) this.#perToken.observe(secondsPerToken);
    this.#latency.observe(seconds);
    this.#success.inc({ finished_reason: reason });
  }

  async text(): Promise<string> {
    const stats = await this.#engine.stats();
    this.#drafts.update(stats);
    for (const { counter, read } of this.#totals) {
      counter.reset();
      counter.inc(read(stats));
    }
    for (const { gauge, read } of this.#gauges) gauge.set(read(stats));
    return this.registry.metrics();
  }
}

/** Drafted and accepted tokens by source and by depth, and how well step times are predicted. */
class DraftMetrics {
  readonly #bySource: Counter<'source' | 'outcome'>;
  readonly #byDepth: Counter<'depth' | 'outcome'>;
  readonly #stepMs: Counter<'kind'>;
  readonly #meanAccepted: Gauge;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#bySource = new Counter({
      name: 'copse:draft_tokens_by_source_total',
      help: 'Drafted and accepted tokens by where the draft came from.',
      labelNames: ['source', 'outcome'],
      registers,
    });
    this.#byDepth = new Counter({
      name: 'copse:draft_tokens_by_depth_total',
      help: 'Drafted and accepted tokens by their depth in the tree, 0 = right after the last token.',
      labelNames: ['depth', 'outcome'],
      registers,
    });
    this.#stepMs = new Counter({
      name: 'copse:decode_step_milliseconds_total',
      help: 'Time of decode steps as predicted by the cost table and as measured.',
      labelNames: ['kind'],
      registers,
    });
    this.#meanAccepted = new Gauge({
      name: 'copse:mean_accepted_length',
      help: 'Tokens per step: one, and the drafts that were accepted.',
      registers,
    });
  }

  update({ speculation, steps, acceptedTokens }: EngineStats): void {
    for (const counter of [this.#bySource, this.#byDepth, this.#stepMs]) counter.reset();
    for (const [source, { drafted, accepted }] of Object.entries(speculation.bySource)) {
      this.#bySource.inc({ source, outcome: 'drafted' }, drafted);
      this.#bySource.inc({ source, outcome: 'accepted' }, accepted);
    }
    for (const [depth, { drafted, accepted }] of speculation.byDepth.entries()) {
      this.#byDepth.inc({ depth: String(depth), outcome: 'drafted' }, drafted);
      this.#byDepth.inc({ depth: String(depth), outcome: 'accepted' }, accepted);
    }
    this.#stepMs.inc({ kind: 'predicted' }, speculation.predictedMs);
    this.#stepMs.inc({ kind: 'measured' }, speculation.measuredMs);
    this.#meanAccepted.set(steps === 0 ? 1 : 1 + acceptedTokens / steps);
  }
}
