/**
 * Lays a report folder out as a submission. The official publishing script and the checker that reads its result disagree about
 * the places, so both layouts are written; the files in them are the same.
 */
import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { UserError } from '../../util/index.ts';
import { at, list, numeric, openReportFolder, type ReportFolder } from '../report/report-folder.ts';
import { systemDescription } from './machine.ts';
import { gatedModel, requiredSamples, rulesets } from './rulesets.ts';

export interface Submission {
  readonly reportDir: string;
  /** Where the tree of the submission begins. */
  readonly outDir: string;
  readonly submitter: string;
  readonly system: string;
  /** Default 'closed'. */
  readonly division?: 'closed' | 'open';
  /** Default 'qwen3.6-27b'. */
  readonly benchmark?: string;
  /** Default 'SingleStream'. */
  readonly scenario?: string;
  /** Fields of `measurements.json` that are known better than from the config. */
  readonly measurements?: Readonly<Record<string, string>>;
  /** Fields of the system's description that are known better than from this machine. */
  readonly systemFields?: Readonly<Record<string, string>>;
}

export interface Published {
  /** Relative to the tree. */
  readonly files: readonly string[];
  /** What the checker of the current round will object to. */
  readonly warnings: readonly string[];
}

const safeName = /^[A-Za-z0-9][A-Za-z0-9._-]*$/;

const sources = {
  config: 'config.yaml',
  summary: 'performance/result_summary.json',
  accuracy: 'accuracy/accuracy_results.json',
} as const;

/** Throws UserError when a name can not be a folder's or a result is missing. */
export function publishSubmission(submission: Submission): Published {
  const { division = 'closed', benchmark = gatedModel, scenario = 'SingleStream' } = submission;
  const { submitter, system } = submission;
  for (const [param, name] of Object.entries({ submitter, system, benchmark, scenario }))
    if (!safeName.test(name))
      throw new UserError('bad_option', `${param} '${name}' can not be the name of a folder`, {
        param,
        hint: 'Letters, digits, dots, hyphens and underscores; not a dot or hyphen first.',
      });
  const folder = openReportFolder(submission.reportDir);
  for (const part of [folder.config, folder.summary, folder.accuracy])
    if (part.problem !== null) throw new UserError('not_found', `${submission.reportDir}: ${part.problem}`);
  const home = join(division, submitter);
  const results = join(home, 'results', system, benchmark, scenario);
  const tree = new Tree(submission.outDir);
  for (const place of copies(results)) tree.copy(join(submission.reportDir, sources[place.source]), place.to);
  tree.write(join(results, 'measurements.json'), measurements(folder, submission.measurements));
  tree.write(join(results, 'README.md'), readme(folder, submission));
  const names = { division, submitter, system };
  tree.write(join(home, 'systems', `${system}.json`), systemDescription(names, submission.systemFields));
  tree.write(
    join(home, 'src', 'README.md'),
    'The system under test is copse, built from the version in results.\n',
  );
  return { files: tree.files, warnings: warningsOf(folder, benchmark, scenario) };
}

/** The layout of the publishing script, then that of the checker. */
function copies(results: string): { source: keyof typeof sources; to: string }[] {
  return [
    { source: 'summary', to: join(results, 'performance', 'run_1', 'result_summary.json') },
    { source: 'config', to: join(results, 'performance', 'run_1', 'config.yaml') },
    { source: 'accuracy', to: join(results, 'accuracy', 'accuracy_results.json') },
    { source: 'config', to: join(results, 'accuracy', 'config.yaml') },
    { source: 'config', to: join(results, 'config.yaml') },
    { source: 'summary', to: join(results, 'performance', 'result_summary.json') },
  ];
}

class Tree {
  readonly #root: string;
  readonly files: string[] = [];

  constructor(root: string) {
    this.#root = root;
  }

  copy(from: string, to: string): void {
    this.#make(to);
    cpSync(from, join(this.#root, to));
  }

  /** Text as it is, anything else as JSON. */
  write(to: string, content: string | Readonly<Record<string, string>>): void {
    this.#make(to);
    const text = typeof content === 'string' ? content : `${JSON.stringify(content, null, 2)}\n`;
    writeFileSync(join(this.#root, to), text);
  }

  #make(to: string): void {
    this.files.push(to);
    mkdirSync(dirname(join(this.#root, to)), { recursive: true });
  }
}

function measurements(
  { config }: ReportFolder,
  known: Readonly<Record<string, string>> = {},
): Record<string, string> {
  return {
    input_data_types: 'int32',
    retraining: 'no',
    starting_weights_filename: String(at(config.value, 'model_params', 'name') ?? 'not recorded'),
    weight_data_types: 'not recorded',
    weight_transformations: 'not recorded',
    ...known,
  };
}

function readme({ config, summary }: ReportFolder, { system, submitter }: Submission): string {
  const value = (part: ReportFolder['config'], ...keys: string[]): string =>
    String(at(part.value, ...keys) ?? '–');
  return `# ${system} by ${submitter}

Served model: ${value(config, 'model_params', 'name')}. Endpoint: OpenAI chat completions over HTTP.
Samples issued: ${value(summary, 'n_samples_issued')}, completed: ${value(summary, 'n_samples_completed')}, failed: ${value(summary, 'n_samples_failed')}.

To repeat the run, start the server and pass \`config.yaml\` of this folder to \`copse bench --config\`.
`;
}

function warningsOf(
  { config, summary, accuracy }: ReportFolder,
  benchmark: string,
  scenario: string,
): string[] {
  const runtime = (key: string) => at(config.value, 'settings', 'runtime', key);
  const entries = list(at(accuracy.value, 'accuracy_scores'));
  const samples = entries
    .filter((entry) => at(entry, 'dataset_type') === 'accuracy')
    .reduce<number>((sum, entry) => sum + (numeric(at(entry, 'total_samples')) ?? 0), 0);
  const round = rulesets['mlperf-inference-v6.1'];
  const hasSeeds =
    String(runtime('scheduler_random_seed')) === String(Number(round?.schedulerSeed)) &&
    String(runtime('dataloader_random_seed')) === String(Number(round?.sampleIndexSeed));
  return [
    ...(benchmark === gatedModel ? [] : [`the checker knows the model ${gatedModel}, not ${benchmark}`]),
    ...(scenario === 'SingleStream'
      ? []
      : [`the checker asks for the scenario SingleStream, not ${scenario}`]),
    ...(samples === requiredSamples
      ? []
      : [`${samples} accuracy samples, the checker counts ${requiredSamples} exactly`]),
    ...(at(entries[0], 'dataset_type') === 'accuracy'
      ? []
      : ['the first accuracy entry is the one that is reported, and it is not of an accuracy dataset']),
    ...(at(summary.value, 'complete') === true ? [] : ['the performance phase is not complete']),
    ...((numeric(runtime('min_duration_ms')) ?? 0) >= 600_000
      ? []
      : ['settings.runtime.min_duration_ms is below 600000, which the v6.1 checker asks for']),
    ...(hasSeeds
      ? []
      : [
          'the seeds are not those of mlperf-inference-v6.1: set submission_ref.ruleset to it for that checker (the requests stay the same)',
        ]),
  ];
}
