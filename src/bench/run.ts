/**
 * One benchmark run: check everything, replay, ask the accuracy samples, count tokens, score, write the files. The endpoint is
 * reached over HTTP alone, so copse and its rivals are measured by the same code.
 */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../util/index.ts';
import type { AccuracyEntry, AccuracyPhase, AccuracyResult } from './accuracy.ts';
import { type Endpoint, now, openEndpoint, waitUntilReady } from './client.ts';
import {
  type BenchConfig,
  configYaml,
  findData,
  loadBenchConfig,
  type PerformanceDataset,
} from './config.ts';
import { loadConversations } from './dataset.ts';
import { EventLog } from './events.ts';
import { type Scores, scoreTurns } from './inline-score.ts';
import { type ReplayResult, replay, type Sample } from './replay.ts';
import { type BenchReport, buildReport } from './report.ts';
import { htmlReport } from './report-html.ts';
import { textReport } from './report-text.ts';
import { figuresOf, finalSnapshot, type ResultSummary, type SampleFigures, summarizeRun } from './summary.ts';
import { TokenCounter } from './token-count.ts';
import { type Turn, turnsOf } from './wire.ts';

export type BenchMode = 'perf' | 'acc' | 'both';

export interface BenchRun {
  /** A config, and the file it came from (data paths are relative to it). */
  readonly config: BenchConfig | string;
  readonly mode?: BenchMode;
  /** Replaces the config's endpoint. */
  readonly endpoint?: string;
  /** Replaces the config's served model name. */
  readonly model?: string;
  /** Folder with the served model's tokenizer and template; else `tokenizer_name` must be one. */
  readonly tokenizer?: string;
  readonly reportDir?: string;
  readonly concurrency?: number;
  /** Folder in the layout of the BFCL data. */
  readonly bfcl?: string;
  readonly phases?: readonly AccuracyPhase[];
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: BenchProgress) => void;
  readonly warn?: (message: string) => void;
}

export interface BenchProgress {
  readonly phase: 'performance' | 'accuracy' | 'counting';
  readonly done: number;
  readonly total: number;
  /** The turn that was just answered. */
  readonly sample: Sample | null;
}

export interface BenchOutcome {
  readonly reportDir: string;
  readonly summary: ResultSummary | null;
  readonly scores: Scores | null;
  readonly report: BenchReport;
  readonly interrupted: boolean;
}

interface Prepared {
  readonly config: BenchConfig;
  readonly dataset: PerformanceDataset;
  readonly conversations: readonly (readonly Turn[])[];
  readonly counter: TokenCounter | null;
  readonly accuracy: readonly {
    phase: AccuracyPhase;
    dataset: Extract<BenchConfig['datasets'][number], { type: 'accuracy' }>;
    folder: string;
  }[];
  /** Accuracy datasets that nothing here can run. */
  readonly notRun: readonly string[];
}

/** Throws UserError before the first request when config, data, tokenizer or endpoint are not usable. */
export async function runBench(run: BenchRun): Promise<BenchOutcome> {
  const prepared = prepare(run);
  const { config } = prepared;
  const mode = run.mode ?? 'both';
  const signal = run.signal ?? new AbortController().signal;
  const url = config.endpoint_config.endpoints[0] ?? '';
  if (!(await waitUntilReady(url, config.settings.service_ready_timeout_s, signal)) && !signal.aborted)
    throw new UserError(
      'bad_config',
      `nothing answers at ${url} after ${config.settings.service_ready_timeout_s} s`,
    );
  for (const folder of ['', 'performance', 'accuracy', 'metrics'])
    mkdirSync(join(config.report_dir, folder), { recursive: true });
  writeFileSync(join(config.report_dir, 'config.yaml'), configYaml(config));
  const warn = run.warn ?? (() => {});
  const events = new EventLog(join(config.report_dir, 'events.jsonl'));
  const endpoint = openEndpoint(config, warn);
  events.add('session.started', now());
  try {
    const performance =
      mode === 'acc' ? null : await runPerformance(prepared, { endpoint, events, signal, run });
    const accuracy = mode === 'perf' ? [] : await runAccuracy(prepared, { endpoint, events, signal, run });
    events.add('session.ended', now());
    events.flush();
    return writeResults(prepared, { performance, accuracy, interrupted: signal.aborted });
  } finally {
    events.close();
    await endpoint.close();
  }
}

function prepare(run: BenchRun): Prepared {
  const path = typeof run.config === 'string' ? run.config : null;
  const loaded = typeof run.config === 'string' ? loadBenchConfig(run.config) : run.config;
  const config: BenchConfig = {
    ...loaded,
    model_params: { ...loaded.model_params, name: run.model ?? loaded.model_params.name },
    endpoint_config: {
      ...loaded.endpoint_config,
      endpoints: run.endpoint === undefined ? loaded.endpoint_config.endpoints : [run.endpoint],
    },
    report_dir: run.reportDir ?? loaded.report_dir,
    settings: {
      ...loaded.settings,
      load_pattern: {
        ...loaded.settings.load_pattern,
        target_concurrency: run.concurrency ?? loaded.settings.load_pattern.target_concurrency,
      },
      client: {
        ...loaded.settings.client,
        max_connections: Math.max(loaded.settings.client.max_connections, run.concurrency ?? 1),
      },
    },
  };
  const dataset = config.datasets.find((entry) => entry.type === 'performance');
  if (dataset === undefined) throw new UserError('bad_config', 'datasets: no performance dataset');
  if (dataset.agentic_inference.enable_salt)
    throw new UserError(
      'bad_config',
      'datasets.agentic_inference.enable_salt: salted prompts are not supported',
      { param: 'enable_salt' },
    );
  let sample = 0;
  const conversations = loadConversations(findData(dataset.path, path)).map((conversation) => {
    const turns = turnsOf(conversation, config, sample);
    sample += turns.length;
    return turns;
  });
  const wanted = config.datasets.filter((entry) => entry.type === 'accuracy');
  const accuracy = wanted.flatMap((entry) => {
    const phase = run.phases?.find(({ evalMethod }) => evalMethod === entry.accuracy_config.eval_method);
    if (phase === undefined || run.mode === 'perf') return [];
    const folder = run.bfcl ?? findData(entry.path ?? 'bfcl_v4', path);
    phase.prepare(entry, folder);
    return [{ phase, dataset: entry, folder }];
  });
  const notRun = wanted
    .map(({ name }) => name)
    .filter((name) => !accuracy.some((entry) => entry.dataset.name === name));
  return { config, dataset, conversations, counter: openCounter(run, config, path), accuracy, notRun };
}

/** A tokenizer that is named must load; without any, lengths are not reported. */
function openCounter(run: BenchRun, config: BenchConfig, path: string | null): TokenCounter | null {
  const name = run.tokenizer ?? config.model_params.tokenizer_name;
  if (name === undefined) return null;
  if (run.tokenizer === undefined && !existsSync(name) && path !== null) {
    throw new UserError('bad_config', `model_params.tokenizer_name: '${name}' is no folder here`, {
      param: 'model_params.tokenizer_name',
      hint: 'Name the folder with tokenizer.json and the chat template of the served model: --tokenizer DIR.',
    });
  }
  return new TokenCounter(name);
}

interface PhaseParts {
  readonly endpoint: Endpoint;
  readonly events: EventLog;
  readonly signal: AbortSignal;
  readonly run: BenchRun;
}

export interface PerformanceResult {
  readonly result: ReplayResult;
  readonly figures: readonly SampleFigures[];
  readonly summary: ResultSummary;
  readonly scores: Scores;
}

async function runPerformance(
  prepared: Prepared,
  { endpoint, events, signal, run }: PhaseParts,
): Promise<PerformanceResult> {
  const { config, dataset, conversations, counter } = prepared;
  const onTurn = (sample: Sample, done: number, total: number): void =>
    run.onProgress?.({ phase: 'performance', done, total, sample });
  const result = await replay({ config, dataset, conversations, endpoint, events, signal, onTurn });
  events.flush();
  // Counting waits until the last answer is in: it must not take time from the server under test.
  const figures: SampleFigures[] = [];
  for (const [i, sample] of result.samples.entries()) {
    figures.push(figuresOf(sample, counter?.count(sample.turn, sample.answer) ?? null));
    if (i % 50 === 49) {
      run.onProgress?.({ phase: 'counting', done: i + 1, total: result.samples.length, sample: null });
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
  return {
    result,
    figures,
    summary: summarizeRun(result, figures, config),
    scores: scoreTurns(result.samples, conversations),
  };
}

async function runAccuracy(
  prepared: Prepared,
  { endpoint, events, signal, run }: PhaseParts,
): Promise<AccuracyResult[]> {
  const results: AccuracyResult[] = [];
  for (const { phase, dataset, folder } of prepared.accuracy) {
    if (signal.aborted) break;
    results.push(
      await phase.run({
        config: prepared.config,
        dataset,
        dataFolder: folder,
        endpoint,
        events,
        counter: prepared.counter,
        journalPath: join(prepared.config.report_dir, 'accuracy', 'answers.jsonl'),
        signal,
        warn: run.warn ?? (() => {}),
        onSample: (done, total) => run.onProgress?.({ phase: 'accuracy', done, total, sample: null }),
      }),
    );
  }
  return results;
}

interface Results {
  readonly performance: PerformanceResult | null;
  readonly accuracy: readonly AccuracyResult[];
  readonly interrupted: boolean;
}

function writeResults(prepared: Prepared, { performance, accuracy, interrupted }: Results): BenchOutcome {
  const { config, dataset, notRun } = prepared;
  const dir = config.report_dir;
  const save = (name: string, value: unknown): void =>
    writeFileSync(join(dir, name), `${JSON.stringify(value, null, 2)}\n`);
  const entries: AccuracyEntry[] = accuracy.map(({ entry }) => entry);
  if (performance !== null) {
    const { result, figures, summary, scores } = performance;
    save('performance/result_summary.json', summary);
    save('metrics/final_snapshot.json', finalSnapshot(result, figures, summary));
    writeFileSync(join(dir, 'scores.json'), escapeAscii(JSON.stringify(scores, null, 2)));
    if (dataset.accuracy_config !== undefined) entries.push(inlineEntry(performance, prepared));
  }
  const scored = entries
    .filter(({ dataset_type }) => dataset_type !== 'performance')
    .map(({ score }) => score ?? 0);
  save('accuracy/accuracy_results.json', {
    average_accuracy: scored.length === 0 ? null : scored.reduce((a, b) => a + b, 0) / scored.length,
    accuracy_scores: entries,
  });
  if (accuracy.length > 0)
    save(
      'accuracy/verdicts.json',
      accuracy.map(({ entry, verdicts }) => ({ dataset: entry.dataset_name, verdicts })),
    );
  save('sample_idx_map.json', sampleMap(performance, accuracy));
  const report = buildReport({ config, performance, entries, notRun, interrupted });
  save('report.json', report);
  const skipped = notRun.map((name) => `Not run:            ${name}`);
  if (performance !== null)
    writeFileSync(join(dir, 'report.txt'), textReport(performance.summary, entries, skipped));
  writeFileSync(join(dir, 'report.html'), htmlReport(report));
  return {
    reportDir: dir,
    summary: performance?.summary ?? null,
    scores: performance?.scores ?? null,
    report,
    interrupted,
  };
}

function inlineEntry(
  { scores, summary, result }: PerformanceResult,
  { conversations }: Prepared,
): AccuracyEntry {
  return {
    dataset_name: 'performance',
    extractor: null,
    ground_truth_column: null,
    score: scores.score,
    unit_samples: conversations.flat().length,
    num_repeats: 1,
    total_samples: result.samples.length,
    duration_s: Math.round((summary.duration_ns ?? 0) / 1e6) / 1000,
    complete: summary.complete,
    dataset_type: 'performance',
  };
}

function sampleMap(performance: PerformanceResult | null, accuracy: readonly AccuracyResult[]): unknown {
  const samples = performance?.result.samples ?? [];
  return {
    performance: Object.fromEntries(samples.map(({ uuid, turn }) => [uuid, turn.sampleIndex])),
    ...Object.fromEntries(accuracy.map(({ entry, sampleIndex }) => [entry.dataset_name, sampleIndex])),
  };
}

/** JSON text as Python's json module writes it by default. */
function escapeAscii(json: string): string {
  return json.replace(/[\u007f-\uffff]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
