/**
 * What a run needs, checked before the first request: the resolved config, the conversations as requests, the tokenizer, the
 * accuracy phases. Throws UserError that names the key, the file or the line.
 */
import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { UserError } from '../../util/index.ts';
import type { PreparedPhase } from '../score/accuracy.ts';
import { bfclPhase } from '../score/bfcl/index.ts';
import { isWorkflow } from '../score/inline-score.ts';
import {
  type AccuracyDataset,
  type BenchConfig,
  findData,
  loadBenchConfig,
  type PerformanceDataset,
} from './config.ts';
import { loadConversations } from './dataset.ts';
import type { BenchRun } from './run.ts';
import { TokenCounter } from './token-count.ts';
import { saltedTurn, type Turn, turnsOf } from './wire.ts';

export interface PreparedPerformance {
  readonly dataset: PerformanceDataset;
  /** Turns of each conversation, in file order. */
  readonly conversations: readonly (readonly Turn[])[];
}

export interface PreparedAccuracy {
  readonly dataset: AccuracyDataset;
  readonly ask: PreparedPhase;
}

export interface Prepared {
  readonly config: BenchConfig;
  /** null when this run has no performance phase. */
  readonly performance: PreparedPerformance | null;
  readonly accuracy: readonly PreparedAccuracy[];
  readonly counter: TokenCounter | null;
  /** Datasets of the config that this run leaves out. */
  readonly notRun: readonly string[];
}

export function prepare(run: BenchRun): Prepared {
  const path = typeof run.config === 'string' ? run.config : null;
  const loaded = typeof run.config === 'string' ? loadBenchConfig(run.config) : run.config;
  const config = withOptions(loaded, run);
  const performance = run.mode === 'acc' ? null : preparePerformance(config, path);
  const accuracy = run.mode === 'perf' ? [] : prepareAccuracy(config, run, path);
  if (performance === null && accuracy.length === 0)
    throw new UserError('bad_config', 'datasets: this run has no dataset to run', {
      param: 'datasets',
      hint: 'Name a dataset of the phase that you ask for.',
    });
  const running = new Set<string>([
    ...(performance === null ? [] : [performance.dataset.name]),
    ...accuracy.map(({ dataset }) => dataset.name),
  ]);
  const notRun = config.datasets.map(({ name }) => name).filter((name) => !running.has(name));
  return { config, performance, accuracy, counter: openCounter(run, config, path), notRun };
}

/** The config with what was asked for in its place. */
function withOptions(config: BenchConfig, run: BenchRun): BenchConfig {
  const { settings, endpoint_config: endpoint, model_params: params } = config;
  const isAccuracyOnly = run.mode === 'acc';
  const concurrency = run.concurrency ?? settings.load_pattern.target_concurrency;
  if (!Number.isInteger(concurrency) || concurrency < 1)
    throw new UserError('bad_option', `concurrency is ${concurrency}, expected a whole number from 1 on`, {
      param: 'concurrency',
    });
  const connections = Math.max(settings.client.max_connections, run.concurrency ?? 1);
  return {
    ...config,
    model_params: { ...params, name: run.model ?? params.name },
    endpoint_config: {
      ...endpoint,
      endpoints: run.endpoint === undefined ? endpoint.endpoints : [checkUrl(run.endpoint)],
      api_key: run.apiKey ?? endpoint.api_key,
    },
    report_dir: run.reportDir ?? config.report_dir,
    settings: {
      ...settings,
      load_pattern: { ...settings.load_pattern, target_concurrency: concurrency },
      client: { ...settings.client, max_connections: isAccuracyOnly ? (run.concurrency ?? 1) : connections },
    },
  };
}

function checkUrl(text: string): string {
  if (URL.canParse(text) && /^https?:$/.test(new URL(text).protocol)) return text;
  throw new UserError('bad_option', `endpoint '${text}' is not an http or https URL`, { param: 'endpoint' });
}

function preparePerformance(config: BenchConfig, path: string | null): PreparedPerformance | null {
  const dataset = config.datasets.find((entry) => entry.type === 'performance');
  if (dataset === undefined) return null;
  let sample = 0;
  const conversations = loadConversations(findData(dataset.path, path)).map((conversation) => {
    if (dataset.accuracy_config !== undefined && isWorkflow(conversation.id))
      throw new UserError(
        'bad_dataset',
        `conversation '${conversation.id}' is of the workflow domain, whose intents this tool does not score`,
        { hint: 'Leave out accuracy_config to measure speed alone.' },
      );
    const turns = turnsOf(conversation, config, sample);
    sample += turns.length;
    return turns;
  });
  // A salt needs a system message in every conversation: found out here, not half-way.
  if (dataset.agentic_inference.enable_salt)
    for (const [first] of conversations) if (first !== undefined) saltedTurn(first, 1);
  return { dataset, conversations };
}

function prepareAccuracy(config: BenchConfig, run: BenchRun, path: string | null): PreparedAccuracy[] {
  return config.datasets.flatMap((dataset) => {
    if (dataset.type !== 'accuracy') return [];
    const phase = (run.phases ?? [bfclPhase]).find(
      ({ evalMethod }) => evalMethod === dataset.accuracy_config.eval_method,
    );
    if (phase === undefined) return [];
    const folder = run.bfcl ?? findData(dataset.path ?? 'bfcl_v4', path);
    return [{ dataset, ask: phase.prepare(dataset, folder) }];
  });
}

/** A tokenizer that is named must load; without any, lengths are not reported. */
function openCounter(run: BenchRun, config: BenchConfig, path: string | null): TokenCounter | null {
  const name = run.tokenizer ?? config.model_params.tokenizer_name;
  if (name === undefined) return null;
  const beside = path === null ? [] : [resolve(dirname(path), name)];
  const places = run.tokenizer === undefined ? [...beside, name, ...hubFolders(name)] : [name];
  const folder = places.find((place) => existsSync(join(place, 'tokenizer.json')));
  if (folder === undefined)
    throw new UserError('bad_config', `model_params.tokenizer_name: '${name}' holds no tokenizer.json here`, {
      param: 'model_params.tokenizer_name',
      hint: 'Name the folder with tokenizer.json and the chat template of the served model: --tokenizer DIR.',
    });
  return new TokenCounter(folder);
}

/** Where the Hugging Face cache of this machine keeps a model's files, if it does. */
function hubFolders(name: string): string[] {
  const home = process.env.HF_HOME ?? join(homedir(), '.cache', 'huggingface');
  const snapshots = join(home, 'hub', `models--${name.replaceAll('/', '--')}`, 'snapshots');
  return existsSync(snapshots) ? readdirSync(snapshots).map((folder) => join(snapshots, folder)) : [];
}
