/** The files of a finished run, in the official tool's layout, and copse's own report beside them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { JsonNumber } from '../../chat/index.ts';
import type { ServerUsage } from '../run/answer.ts';
import type { Prepared } from '../run/prepare.ts';
import type { ReplayResult } from '../run/replay.ts';
import type { BenchOutcome } from '../run/run.ts';
import type { ServerCounts } from '../run/server-counts.ts';
import type { AccuracyEntry, AccuracyResult } from '../score/accuracy.ts';
import type { Scores } from '../score/inline-score.ts';
import { finalSnapshot, type ResultSummary, type SampleFigures } from '../score/summary.ts';
import { checkReport } from '../submit/check.ts';
import type { EnergyReading } from './cost.ts';
import { buildReport } from './report.ts';
import { htmlReport } from './report-html.ts';
import { textReport } from './report-text.ts';

export interface PerformanceResult {
  readonly result: ReplayResult;
  readonly figures: readonly SampleFigures[];
  readonly summary: ResultSummary;
  readonly scores: Scores;
  /** The server's own counts, where it has a page for them. */
  readonly served: { readonly counts: ServerCounts | null; readonly total: ServerUsage | null };
  readonly energy: EnergyReading;
}

export interface Results {
  readonly performance: PerformanceResult | null;
  readonly accuracy: readonly AccuracyResult[];
  readonly interrupted: boolean;
}

export function writeResults(prepared: Prepared, results: Results): BenchOutcome {
  const { config, notRun } = prepared;
  const { performance, accuracy, interrupted } = results;
  const dir = config.report_dir;
  const save = (name: string, text: string): void => writeFileSync(join(dir, name), text);
  const entries = accuracy.map(({ entry }) => entry);
  if (performance !== null) {
    const { result, figures, summary, scores } = performance;
    save('performance/result_summary.json', json(summary));
    save('metrics/final_snapshot.json', json(finalSnapshot(result, figures, summary)));
    save('scores.json', escapeAscii(json(scores)));
    const inline = inlineEntry(performance, prepared);
    if (inline !== null) entries.push(inline);
  }
  save('accuracy/accuracy_results.json', json(accuracyResults(entries)));
  if (accuracy.length > 0) save('accuracy/verdicts.json', json(verdictsOf(accuracy)));
  save('sample_idx_map.json', json(sampleMap(results)));
  const { checks } = checkReport(dir);
  const report = buildReport({ config, performance, entries, notRun, checks, interrupted });
  save('report.json', json(report));
  save('report.txt', textReport(report));
  save('report.html', htmlReport(report));
  return {
    reportDir: dir,
    summary: performance?.summary ?? null,
    scores: performance?.scores ?? null,
    report,
    interrupted,
  };
}

/** Indented; seeds of 64 bits are written as the whole numbers they are. */
function json(value: unknown): string {
  const text = JSON.stringify(
    value,
    function (this: Record<string, unknown>, key: string, item: unknown) {
      const raw = this[key];
      return raw instanceof JsonNumber ? `lexeme:${raw.lexeme}` : item;
    },
    2,
  );
  return `${text.replace(/"lexeme:(\d+)"/g, '$1')}\n`;
}

/** JSON text as Python's json module writes it by default. */
function escapeAscii(text: string): string {
  return text.replace(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function accuracyResults(entries: readonly AccuracyEntry[]): unknown {
  const scores = entries
    .filter(({ dataset_type }) => dataset_type !== 'performance')
    .map(({ score }) => score ?? 0);
  return {
    average_accuracy: scores.length === 0 ? null : scores.reduce((a, b) => a + b, 0) / scores.length,
    accuracy_scores: entries,
  };
}

const verdictsOf = (accuracy: readonly AccuracyResult[]): unknown =>
  accuracy.map(({ entry, verdicts }) => ({ dataset: entry.dataset_name, verdicts }));

/** null when the dataset is not scored. */
function inlineEntry(result: PerformanceResult, { performance }: Prepared): AccuracyEntry | null {
  if (performance?.dataset.accuracy_config === undefined) return null;
  const { scores, summary } = result;
  return {
    dataset_name: 'performance',
    extractor: null,
    ground_truth_column: null,
    score: scores.score,
    unit_samples: performance.conversations.flat().length,
    num_repeats: performance.dataset.accuracy_config.num_repeats,
    total_samples: result.result.samples.length,
    duration_s: Math.round((summary.duration_ns ?? 0) / 1e6) / 1000,
    complete: summary.complete,
    dataset_type: 'performance',
  };
}

function sampleMap({ performance, accuracy }: Results): unknown {
  const samples = performance?.result.samples ?? [];
  return {
    performance: Object.fromEntries(samples.map(({ uuid, turn }) => [uuid, turn.sampleIndex])),
    ...Object.fromEntries(accuracy.map(({ entry, sampleIndex }) => [entry.dataset_name, sampleIndex])),
  };
}
