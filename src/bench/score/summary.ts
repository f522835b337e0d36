/** Figures of the performance phase, in the official tool's files and units (times in nanoseconds). */
import { JsonNumber } from '../../chat/index.ts';
import type { BenchConfig } from '../run/config.ts';
import type { ReplayResult, Sample } from '../run/replay.ts';
import type { SampleTokens } from '../run/token-count.ts';
import { type MaybeSeries, summarize } from './series.ts';

const reasons = ['stop', 'length', 'tool_calls', 'content_filter', 'function_call', 'other'] as const;

export interface ResultSummary {
  readonly version: string;
  readonly git_sha: string | null;
  readonly test_started_at: number;
  readonly n_samples_issued: number;
  readonly n_samples_completed: number;
  readonly n_samples_failed: number;
  readonly duration_ns: number | null;
  readonly state: string;
  readonly complete: boolean;
  readonly ttft: MaybeSeries;
  readonly tpot: MaybeSeries;
  readonly latency: MaybeSeries;
  readonly output_sequence_lengths: MaybeSeries;
  readonly input_sequence_lengths: MaybeSeries;
  readonly legacy_loadgen_window_duration_ns: null;
  readonly qps: number | null;
  readonly tps: number | null;
  readonly finish_reason_counts: Record<(typeof reasons)[number], number>;
  readonly run_config: unknown;
}

/** One sample's values; null = it has none. */
export interface SampleFigures {
  readonly sample: Sample;
  readonly tokens: SampleTokens | null;
  /** null when no answer had come when the phase ended. */
  readonly latencyNs: number | null;
  readonly ttftNs: number | null;
  readonly tpotNs: number | null;
}

export function figuresOf(sample: Sample, tokens: SampleTokens | null): SampleFigures {
  const { issuedNs, firstNs, completeNs, answer } = sample;
  const after = tokens?.afterFirst ?? 0;
  return {
    sample,
    tokens,
    latencyNs: completeNs === null ? null : Number(completeNs - issuedNs),
    ttftNs: firstNs === null ? null : Number(firstNs - issuedNs),
    tpotNs:
      firstNs === null || completeNs === null || after === 0 || answer === null
        ? null
        : Number(completeNs - firstNs) / after,
  };
}

const known = (values: readonly (number | null | undefined)[]): number[] =>
  values.filter((value): value is number => value !== null && value !== undefined);

export function summarizeRun(
  result: ReplayResult,
  figures: readonly SampleFigures[],
  config: BenchConfig,
): ResultSummary {
  const tracked = figures.filter(({ sample }) => sample.tracked);
  const ends = tracked.map(({ sample }) => sample.completeNs).filter((ns): ns is bigint => ns !== null);
  const durations = ends.map((ns) => Number(ns - result.startNs));
  const durationNs = durations.length === 0 ? null : durations.reduce((a, b) => Math.max(a, b));
  const estimates = config.settings.early_stopping.enabled;
  const outputs = known(tracked.map(({ tokens }) => tokens?.output));
  const completed = ends.length;
  return {
    version: '0.1.0',
    git_sha: null,
    test_started_at: 0,
    n_samples_issued: tracked.length,
    n_samples_completed: completed,
    n_samples_failed: tracked.filter(({ sample }) => sample.error !== null).length,
    duration_ns: durationNs,
    state: result.state,
    complete: result.state === 'complete',
    ttft: summarize(known(tracked.map(({ ttftNs }) => ttftNs)), { estimates }),
    tpot: summarize(known(tracked.map(({ tpotNs }) => tpotNs)), { estimates }),
    latency: summarize(known(tracked.map(({ latencyNs }) => latencyNs)), { estimates }),
    output_sequence_lengths: summarize(outputs, { estimates: false }),
    input_sequence_lengths: summarize(known(tracked.map(({ tokens }) => tokens?.input)), {
      estimates: false,
    }),
    legacy_loadgen_window_duration_ns: null,
    qps: durationNs === null || durationNs === 0 ? null : completed / (durationNs / 1e9),
    tps:
      durationNs === null || durationNs === 0 || outputs.length === 0
        ? null
        : outputs.reduce((a, b) => a + b, 0) / (durationNs / 1e9),
    finish_reason_counts: countReasons(tracked.map(({ sample }) => sample.answer?.finishReason ?? null)),
    run_config: runConfig(config),
  };
}

function countReasons(found: readonly (string | null)[]): ResultSummary['finish_reason_counts'] {
  const counts = Object.fromEntries(
    reasons.map((reason) => [reason, 0]),
  ) as ResultSummary['finish_reason_counts'];
  for (const reason of found) {
    if (reason === null) continue;
    counts[reasons.find((known) => known === reason) ?? 'other']++;
  }
  return counts;
}

function runConfig({ settings }: BenchConfig): unknown {
  const { load_pattern: pattern, warmup, runtime } = settings;
  const seed = (value: number | bigint): number | JsonNumber =>
    typeof value === 'bigint' ? new JsonNumber(String(value)) : value;
  return {
    load_pattern: { type: pattern.type, target_qps: null, target_concurrency: pattern.target_concurrency },
    warmup: { ...warmup, warmup_random_seed: seed(warmup.warmup_random_seed) },
    scheduler_random_seed: seed(runtime.scheduler_random_seed),
    dataloader_random_seed: seed(runtime.dataloader_random_seed),
  };
}

/** `metrics/final_snapshot.json` */
export function finalSnapshot(
  result: ReplayResult,
  figures: readonly SampleFigures[],
  summary: ResultSummary,
): unknown {
  const all = {
    issued: figures.length,
    completed: figures.filter(({ sample }) => sample.completeNs !== null).length,
    failed: figures.filter(({ sample }) => sample.error !== null).length,
  };
  const counters = {
    total_samples_issued: all.issued,
    total_samples_completed: all.completed,
    total_samples_failed: all.failed,
    tracked_samples_issued: summary.n_samples_issued,
    tracked_samples_completed: summary.n_samples_completed,
    tracked_samples_failed: summary.n_samples_failed,
    ...Object.fromEntries(
      Object.entries(summary.finish_reason_counts).map(([reason, count]) => [
        `tracked_finish_reason_${reason}`,
        count,
      ]),
    ),
    tracked_duration_ns: summary.duration_ns ?? 0,
    legacy_loadgen_window_duration_ns: 0,
    total_duration_ns: summary.duration_ns ?? 0,
  };
  const tracked = figures.filter(({ sample }) => sample.tracked);
  const series = {
    sample_latency_ns: known(tracked.map(({ latencyNs }) => latencyNs)),
    isl: known(tracked.map(({ tokens }) => tokens?.input)),
    osl: known(tracked.map(({ tokens }) => tokens?.output)),
    ttft_ns: known(tracked.map(({ ttftNs }) => ttftNs)),
    chunk_delta_ns: [],
    tpot_ns: known(tracked.map(({ tpotNs }) => tpotNs)),
  };
  return {
    counter: 1,
    timestamp_ns: Number(result.startNs) + (summary.duration_ns ?? 0),
    state: summary.state,
    n_pending_tasks: 0,
    metrics: [
      ...Object.entries(counters).map(([name, value]) => ({ type: 'counter', name, value })),
      ...Object.entries(series).map(([name, values]) => seriesMetric(name, values)),
    ],
  };
}

function seriesMetric(name: string, values: readonly number[]): unknown {
  const stats = summarize(values, { estimates: /_ns$/.test(name) && name !== 'chunk_delta_ns' });
  const figures = 'total' in stats ? stats : null;
  return {
    type: 'series',
    name,
    count: values.length,
    total: figures?.total ?? 0,
    min: figures?.min ?? null,
    max: figures?.max ?? null,
    sum_sq: values.reduce((sum, value) => sum + value * value, 0),
    percentiles: figures?.percentiles ?? {},
    ...(stats.early_stopping_percentiles === undefined
      ? {}
      : { early_stopping_percentiles: stats.early_stopping_percentiles }),
    histogram:
      figures === null
        ? []
        : figures.histogram.buckets.map((bucket, i) => [bucket, figures.histogram.counts[i]]),
  };
}
