/**
 * One benchmark run: check everything, replay, ask the accuracy samples, count tokens, score, write the files. The endpoint is
 * reached over HTTP alone, so copse and its rivals are measured by the same code.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../util/index.ts';
import { type CostInputs, checkCostInputs } from '../report/cost.ts';
import type { BenchReport } from '../report/report.ts';
import { type PerformanceResult, writeResults } from '../report/results.ts';
import type { AccuracyPhase, AccuracyResult, SampleProgress } from '../score/accuracy.ts';
import { type Scores, scoreTurns } from '../score/inline-score.ts';
import { figuresOf, type ResultSummary, type SampleFigures, summarizeRun } from '../score/summary.ts';
import { type Endpoint, now, openEndpoint, waitUntilReady } from './client.ts';
import { type BenchConfig, configYaml } from './config.ts';
import { type EnergyMeter, openEnergyMeter } from './energy.ts';
import { EventLog } from './events.ts';
import { type Prepared, type PreparedPerformance, prepare } from './prepare.ts';
import { replay, type Sample } from './replay.ts';
import { ServerCounts } from './server-counts.ts';
import type { TokenCounter } from './token-count.ts';

/** perf and acc leave the other phase out. */
export type BenchMode = 'perf' | 'acc' | 'both';

export interface BenchRun {
  /** A config, or the file it is in (data paths are relative to that). */
  readonly config: BenchConfig | string;
  /** Default 'both'. */
  readonly mode?: BenchMode;
  /** Replaces the config's endpoint. */
  readonly endpoint?: string;
  /** Replaces the config's API key. Never written to a file. */
  readonly apiKey?: string;
  /** Replaces the config's served model name. */
  readonly model?: string;
  /** Folder with the served model's tokenizer and template; else `tokenizer_name` must be one. */
  readonly tokenizer?: string;
  readonly reportDir?: string;
  readonly concurrency?: number;
  /** Folder in the layout of the BFCL data. */
  readonly bfcl?: string;
  /** Accuracy phases to choose from; default BFCL v4. */
  readonly phases?: readonly AccuracyPhase[];
  /** What power and money cost, for that section of the report. */
  readonly cost?: CostInputs;
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
  /** Of the accuracy phase. */
  readonly accuracy?: Pick<SampleProgress, 'passed' | 'secondsLeft'>;
}

export interface BenchOutcome {
  readonly reportDir: string;
  readonly summary: ResultSummary | null;
  readonly scores: Scores | null;
  readonly report: BenchReport;
  /** The person stopped it: the files are complete, the run is not; exit with 130. */
  readonly interrupted: boolean;
}

/** Throws UserError before the first request when config, data, tokenizer or endpoint are not usable. */
export async function runBench(run: BenchRun): Promise<BenchOutcome> {
  if (run.cost !== undefined) checkCostInputs(run.cost);
  const prepared = prepare(run);
  const { config } = prepared;
  const signal = run.signal ?? new AbortController().signal;
  await untilReady(config, signal);
  makeFolders(config);
  const warn = run.warn ?? (() => {});
  const events = new EventLog(join(config.report_dir, 'events.jsonl'));
  const endpoint = openEndpoint(config, warn);
  const parts = { endpoint, events, signal, run };
  events.add('session.started', now());
  try {
    const performance =
      prepared.performance === null ? null : await runPerformance(prepared, prepared.performance, parts);
    const accuracy = await runAccuracy(prepared, parts);
    events.add('session.ended', now());
    events.flush();
    return writeResults(prepared, { performance, accuracy, interrupted: signal.aborted });
  } finally {
    events.close();
    await endpoint.close();
  }
}

async function untilReady(config: BenchConfig, signal: AbortSignal): Promise<void> {
  const url = config.endpoint_config.endpoints[0] ?? '';
  const seconds = config.settings.service_ready_timeout_s;
  if ((await waitUntilReady(url, seconds, signal)) || signal.aborted) return;
  throw new UserError('bad_config', `nothing answers at ${url} after ${seconds} s`, {
    param: 'endpoint_config.endpoints',
    hint: 'Start the server first, or name another with --endpoint.',
  });
}

function makeFolders(config: BenchConfig): void {
  try {
    for (const folder of ['', 'performance', 'accuracy', 'metrics'])
      mkdirSync(join(config.report_dir, folder), { recursive: true });
    writeFileSync(join(config.report_dir, 'config.yaml'), configYaml(config));
  } catch (cause) {
    throw new UserError('io', `can not write to ${config.report_dir}: ${(cause as Error).message}`, {
      param: 'report_dir',
      cause,
    });
  }
}

interface PhaseParts {
  readonly endpoint: Endpoint;
  readonly events: EventLog;
  readonly signal: AbortSignal;
  readonly run: BenchRun;
}

async function runPerformance(
  { config, counter }: Prepared,
  { dataset, conversations }: PreparedPerformance,
  { endpoint, events, signal, run }: PhaseParts,
): Promise<PerformanceResult> {
  const counts = await ServerCounts.open(endpoint, config.settings.load_pattern.target_concurrency);
  // The counters are of this machine: they say nothing of a server elsewhere.
  const meter: EnergyMeter | null = isLocal(config) ? openEnergyMeter() : null;
  const onTurn = (sample: Sample, done: number, total: number): void =>
    run.onProgress?.({ phase: 'performance', done, total, sample });
  const result = await replay({ config, dataset, conversations, endpoint, events, counts, signal, onTurn });
  const joules = meter?.stop() ?? null;
  const served = (await counts?.total()) ?? null;
  events.flush();
  // Counting waits until the last answer is in: it must not take time from the server under test.
  const figures = await countTokens(result.samples, counter, run);
  return {
    result,
    figures,
    summary: summarizeRun(result, figures, config),
    scores: scoreTurns(result.samples, conversations),
    served: { counts, total: served },
    energy: { joules, source: meter?.source ?? null, cost: run.cost ?? {} },
  };
}

function isLocal({ endpoint_config: { endpoints } }: BenchConfig): boolean {
  const { hostname } = new URL(endpoints[0] ?? '');
  return hostname === 'localhost' || hostname === '[::1]' || /^127\./.test(hostname);
}

async function countTokens(
  samples: readonly Sample[],
  counter: TokenCounter | null,
  run: BenchRun,
): Promise<SampleFigures[]> {
  const figures: SampleFigures[] = [];
  for (const [i, sample] of samples.entries()) {
    figures.push(figuresOf(sample, counter?.count(sample.turn, sample.answer) ?? null));
    if (counter === null || i % 20 !== 19) continue;
    run.onProgress?.({ phase: 'counting', done: i + 1, total: samples.length, sample: null });
    await new Promise((resolve) => setImmediate(resolve));
  }
  return figures;
}

async function runAccuracy(
  { config, accuracy, counter }: Prepared,
  { endpoint, events, signal, run }: PhaseParts,
): Promise<AccuracyResult[]> {
  const results: AccuracyResult[] = [];
  for (const { dataset, ask } of accuracy) {
    if (signal.aborted) break;
    const result = await ask({
      config,
      dataset,
      endpoint,
      events,
      counter,
      journalPath: join(config.report_dir, 'accuracy', 'answers.jsonl'),
      signal,
      warn: run.warn ?? (() => {}),
      onSample: ({ done, total, passed, secondsLeft }) =>
        run.onProgress?.({ phase: 'accuracy', done, total, sample: null, accuracy: { passed, secondsLeft } }),
    });
    results.push(result);
  }
  return results;
}
