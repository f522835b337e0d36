/** Exact statistics of a finished series, in the official tool's shape. */
import { earlyStopping } from './early-stopping.ts';

const percentileKeys = [
  '99.9',
  '99.0',
  '97.0',
  '95.0',
  '90.0',
  '80.0',
  '75.0',
  '50.0',
  '25.0',
  '10.0',
  '5.0',
  '1.0',
];
const bucketCount = 30;

export interface Histogram {
  readonly buckets: [number, number][];
  readonly counts: number[];
}

export interface Series {
  readonly total: number;
  readonly min: number;
  readonly max: number;
  readonly median: number;
  readonly avg: number;
  readonly std_dev: number;
  readonly percentiles: Record<string, number>;
  readonly early_stopping_percentiles?: Record<string, number | null>;
  readonly histogram: Histogram;
}

/** An empty series has no figures, except the early-stopping map, all null. */
export type MaybeSeries = Series | { readonly early_stopping_percentiles?: Record<string, number | null> };

export function hasFigures(series: MaybeSeries): series is Series {
  return 'total' in series;
}

export function summarize(values: readonly number[], options: { readonly estimates: boolean }): MaybeSeries {
  const sorted = [...values].sort((a, b) => a - b);
  const estimates = options.estimates ? { early_stopping_percentiles: earlyStopping(sorted) } : {};
  if (sorted.length === 0) return estimates;
  const n = sorted.length;
  const total = sorted.reduce((sum, value) => sum + value, 0);
  const squares = sorted.reduce((sum, value) => sum + value * value, 0);
  const at = (p: number): number => sorted[Math.floor((p / 100) * (n - 1))] as number;
  return {
    total,
    min: sorted[0] as number,
    max: sorted[n - 1] as number,
    median: at(50),
    avg: total / n,
    std_dev: n === 1 ? 0 : Math.sqrt(Math.max(0, (squares - total ** 2 / n) / (n - 1))),
    percentiles: Object.fromEntries(percentileKeys.map((key) => [key, at(Number(key))])),
    ...estimates,
    histogram: histogramOf(sorted),
  };
}

/** 30 buckets with exponentially spaced edges; values outside fall into the outer ones. */
function histogramOf(sorted: readonly number[]): Histogram {
  const low = Math.max(sorted[0] as number, 1);
  const high = Math.max(sorted.at(-1) as number, 10 * low);
  const edge = (i: number): number => low * (high / low) ** (i / bucketCount);
  const edges = Array.from({ length: bucketCount + 1 }, (_, i) => (i === bucketCount ? high : edge(i)));
  const counts = new Array<number>(bucketCount).fill(0);
  for (const value of sorted) {
    let bucket = 0;
    while (bucket < bucketCount - 1 && value >= (edges[bucket + 1] as number)) bucket++;
    counts[bucket] = (counts[bucket] ?? 0) + 1;
  }
  return { buckets: counts.map((_, i) => [edges[i] as number, edges[i + 1] as number]), counts };
}
