/** `report.txt`: the figures for a terminal. */
import type { AccuracyEntry } from '../score/accuracy.ts';
import { hasFigures, type MaybeSeries } from '../score/series.ts';
import type { ResultSummary } from '../score/summary.ts';
import type { BenchReport } from './report.ts';

const fixed = (value: number | null | undefined, digits = 2): string =>
  value === null || value === undefined ? 'N/A' : value.toFixed(digits);

export function textReport({ summary, entries, notRun, cache, cost, interrupted }: BenchReport): string {
  const lines = [
    ...(summary === null ? [] : summaryLines(summary)),
    ...(interrupted ? ['State:              interrupted'] : []),
    `Cached share:       ${cache === null ? 'not reported by the server' : `${fixed(100 * cache.share)} % of ${cache.promptTokens} prompt tokens`}`,
    ...notRun.map((name) => `Not run:            ${name}`),
    ...entries.flatMap(entryLines),
    ...(summary === null ? [] : allSeries(summary)),
    ...(cost.length === 0 ? [] : ['', '=== Energy and cost ===']),
    ...cost.map(({ name, value, unit, basis }) => `${name}: ${value.toPrecision(4)} ${unit} (${basis})`),
  ];
  return `${lines.join('\n')}\n`;
}

function summaryLines(summary: ResultSummary): string[] {
  return [
    '=== Summary ===',
    `Version:            ${summary.version}`,
    `Git SHA:            ${summary.git_sha ?? 'N/A'}`,
    `Run config:         ${JSON.stringify(summary.run_config)}`,
    `Samples issued:     ${summary.n_samples_issued}`,
    `Samples completed:  ${summary.n_samples_completed}`,
    `Samples failed:     ${summary.n_samples_failed}`,
    `Duration:           ${summary.duration_ns === null ? 'N/A' : `${fixed(summary.duration_ns / 1e9)} s`}`,
    `QPS:                ${fixed(summary.qps)}`,
    `TPS:                ${fixed(summary.tps)}`,
  ];
}

function allSeries(summary: ResultSummary): string[] {
  return [
    ...seriesLines('TTFT', summary.ttft, 1e6, 'ms'),
    ...seriesLines('TPOT', summary.tpot, 1e6, 'ms'),
    ...seriesLines('Latency', summary.latency, 1e6, 'ms'),
    ...seriesLines('Output sequence length', summary.output_sequence_lengths, 1, 'tokens'),
    ...seriesLines('Input sequence length', summary.input_sequence_lengths, 1, 'tokens'),
  ];
}

function entryLines(entry: AccuracyEntry): string[] {
  const subsets =
    entry.breakdown === undefined
      ? []
      : Object.entries(entry.breakdown.subset_scores).map(
          ([name, score]) => `  ${name.padEnd(26)} ${fixed(score)} %`,
        );
  return [
    '',
    `--- ${entry.dataset_name} ---`,
    `Score:              ${entry.score === null ? 'N/A' : entry.score.toPrecision(4)}`,
    `Samples:            ${entry.unit_samples} x ${entry.num_repeats} = ${entry.total_samples}`,
    `Duration:           ${fixed(entry.duration_s, 3)} s`,
    ...(entry.response_counts === undefined
      ? []
      : [`Responses:          ${JSON.stringify(entry.response_counts)}`]),
    ...subsets,
  ];
}

function seriesLines(title: string, series: MaybeSeries, unit: number, unitName: string): string[] {
  const head = ['', `=== ${title} (${unitName}) ===`];
  if (!hasFigures(series)) return [...head, 'no values'];
  const show = (value: number): string => fixed(value / unit);
  const most = Math.max(...series.histogram.counts);
  const bars = series.histogram.counts.map((count, i) => {
    const [low, high] = series.histogram.buckets[i] ?? [0, 0];
    return `  [${show(low).padStart(12)}, ${show(high).padStart(12)}) ${'#'.repeat(Math.round((30 * count) / most))} ${count}`;
  });
  const estimates = Object.entries(series.early_stopping_percentiles ?? {}).map(
    ([p, value]) => `  p${p}: ${value === null ? 'N/A' : show(value)}`,
  );
  return [
    ...head,
    `Min: ${show(series.min)}  Max: ${show(series.max)}  Median: ${show(series.median)}  Avg.: ${show(series.avg)}  Std Dev.: ${show(series.std_dev)}`,
    ...bars,
    'Percentiles:',
    ...Object.entries(series.percentiles).map(([p, value]) => `  p${p}: ${show(value)}`),
    ...(estimates.length === 0 ? [] : ['Early-stopping estimates:', ...estimates]),
  ];
}
