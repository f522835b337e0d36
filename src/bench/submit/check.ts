/** The compliance check of a report folder: how the run was configured, the accuracy gates, and that no turn is missing. */
import {
  at,
  gatedEntry,
  type Json,
  list,
  numeric,
  openReportFolder,
  type ReportFolder,
} from '../report/report-folder.ts';
import { accuracyFloors, requiredSamples } from './rulesets.ts';

export interface Check {
  readonly name: string;
  readonly passed: boolean;
  /** What was found, against what is asked for. */
  readonly detail: string;
}

export interface CheckResult {
  readonly passed: boolean;
  readonly checks: readonly Check[];
  /** What no file shows and a person must see to, and what could not be checked. */
  readonly notes: readonly string[];
}

const requiredSeed = 42;

export function checkReport(dir: string): CheckResult {
  const folder = openReportFolder(dir);
  const entry = gatedEntry(folder);
  const scores = folder.scores.value;
  const checks = [
    ...configChecks(folder),
    ...(entry === undefined ? missingDataset(folder) : accuracyChecks(at(entry, 'breakdown'))),
    ...(scores === null ? [] : turnChecks(scores)),
    ...(entry === undefined && scores === null ? [noOutput(folder)] : []),
  ];
  const notes = [
    'Not shown by any file: the server must run with reasoning off and a context of 32768 tokens.',
    ...(entry === undefined && scores !== null
      ? [`No BFCL accuracy to check: ${missingAccuracy(folder)}.`]
      : []),
    ...(entry !== undefined && scores === null ? [`No turns to check: ${folder.scores.problem}.`] : []),
  ];
  return { passed: checks.every(({ passed }) => passed), checks, notes };
}

const show = (value: Json | undefined): string => (value === undefined ? 'nothing' : JSON.stringify(value));

function configChecks({ config }: ReportFolder): Check[] {
  if (config.problem !== null || at(config.value, 'model_params') === undefined) {
    const detail = config.problem ?? 'config.yaml has no model_params';
    return [{ name: 'config_readable', passed: false, detail }];
  }
  const temperature = at(config.value, 'model_params', 'temperature');
  return [
    {
      name: 'temperature==0',
      passed: numeric(temperature) === 0,
      detail: `temperature is ${show(temperature)}`,
    },
    seedCheck(config.value),
    singleStream(config.value),
  ];
}

/** Every seed that is set must be the one; at least one must be set. */
function seedCheck(config: Json): Check {
  const seeds = [
    ['model_params.seed', at(config, 'model_params', 'seed')],
    ['settings.runtime.dataloader_random_seed', at(config, 'settings', 'runtime', 'dataloader_random_seed')],
  ] as const;
  const set = seeds.filter(([, value]) => value !== undefined && value !== null);
  return {
    name: 'seed==42',
    passed: set.length > 0 && set.every(([, value]) => numeric(value) === requiredSeed),
    detail:
      set.length === 0 ? 'no seed is set' : set.map(([key, value]) => `${key} is ${show(value)}`).join(', '),
  };
}

function singleStream(config: Json): Check {
  const client = at(config, 'settings', 'client');
  const values = [
    ['num_workers', at(client, 'num_workers')],
    ['max_connections', at(client, 'max_connections')],
    ['target_concurrency', at(config, 'settings', 'load_pattern', 'target_concurrency') ?? 1],
  ] as const;
  return {
    name: 'single_stream',
    passed: values.every(([, value]) => numeric(value) === 1),
    detail: values.map(([key, value]) => `${key} is ${show(value)}`).join(', '),
  };
}

function accuracyChecks(breakdown: Json | undefined): Check[] {
  const gates = Object.entries(accuracyFloors).map(([name, floor]) => {
    const value = numeric(at(breakdown, name));
    const passed = value !== null && value >= floor;
    return { name: `accuracy:${name}`, passed, detail: `${show(value)}, at least ${floor.toFixed(4)}` };
  });
  const samples = numeric(at(breakdown, 'total_samples'));
  return [
    ...gates,
    {
      name: 'min_sample_count',
      passed: samples !== null && samples >= requiredSamples,
      detail: `${show(samples)} samples, at least ${requiredSamples}`,
    },
  ];
}

function turnChecks(scores: Json): Check[] {
  const turn = (key: string): number | null => numeric(at(scores, 'turns', key));
  const [missing, observed, expected] = [turn('missing'), turn('observed'), turn('expected')];
  return [
    { name: 'no_dropped_turns', passed: missing === 0, detail: `${show(missing)} turns missing` },
    {
      name: 'all_turns_observed',
      passed: observed !== null && observed === expected,
      detail: `${show(observed)} of ${show(expected)} turns observed`,
    },
  ];
}

/** A config that has an accuracy dataset asks for its result. */
function missingDataset(folder: ReportFolder): Check[] {
  const isAsked = list(at(folder.config.value, 'datasets')).some((entry) => at(entry, 'type') === 'accuracy');
  const detail = missingAccuracy(folder);
  return isAsked ? [{ name: 'accuracy_output_present', passed: false, detail }] : [];
}

const missingAccuracy = ({ accuracy }: ReportFolder): string =>
  accuracy.problem ?? 'accuracy_results.json has no entry with scores by subset';

const noOutput = (folder: ReportFolder): Check => ({
  name: 'scorer_output_present',
  passed: false,
  detail: `${folder.scores.problem}; ${missingAccuracy(folder)}`,
});
