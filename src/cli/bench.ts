/** `copse bench`: the benchmark against any OpenAI endpoint. */
import { writeFileSync } from 'node:fs';
import { type Command, InvalidArgumentError, Option } from 'commander';
import pc from 'picocolors';
import {
  type BenchMode,
  type BenchOutcome,
  type BenchProgress,
  checkReport,
  compareReports,
  publishSubmission,
  runBench,
} from '../bench/index.ts';
import { UserError } from '../util/index.ts';
import { parseCount } from './options.ts';
import { openProgress } from './progress.ts';

interface BenchFlags {
  readonly config?: string;
  readonly endpoint?: string;
  readonly apiKey?: string;
  readonly watts?: number;
  readonly kwhPrice?: number;
  readonly machinePrice?: number;
  readonly years?: number;
  readonly cloudInput?: number;
  readonly cloudCached?: number;
  readonly cloudOutput?: number;
  readonly model?: string;
  readonly tokenizer?: string;
  readonly reportDir?: string;
  readonly concurrency?: number;
  readonly mode: BenchMode;
  readonly accuracyOnly?: boolean;
  readonly bfcl?: string;
  readonly json?: boolean;
}

export function addBench(program: Command): void {
  const command = program
    .command('bench')
    .description('run the MLPerf Edge Agentic benchmark against an OpenAI endpoint')
    .option('--config <file>', 'benchmark config (YAML)')
    .option('--endpoint <url>', 'endpoint instead of the one in the config')
    .option('--api-key <key>', 'API key instead of the one in the config')
    .option('--model <name>', 'served model name instead of the one in the config')
    .option('--tokenizer <folder>', "folder with the served model's tokenizer and template")
    .option('--report-dir <folder>', 'where results go instead of the folder in the config')
    .option(
      '--concurrency <n>',
      'conversations at once instead of the number in the config',
      parseCount(1, 1024),
    )
    .addOption(new Option('--mode <mode>', 'phases to run').choices(['perf', 'acc', 'both']).default('both'))
    .option('--accuracy-only', 'the same as --mode acc')
    .option('--bfcl <folder>', 'folder with the BFCL v4 data')
    .option('--watts <w>', 'power of the machine under load, where it is not measured', parseAmount)
    .option('--kwh-price <amount>', 'price of a kilowatt-hour', parseAmount)
    .option('--machine-price <amount>', 'price of the machine', parseAmount)
    .option('--years <n>', 'years over which the machine is written off', parseAmount)
    .option('--cloud-input <amount>', 'cloud price of a million input tokens', parseAmount)
    .option('--cloud-cached <amount>', 'cloud price of a million cached input tokens', parseAmount)
    .option('--cloud-output <amount>', 'cloud price of a million output tokens', parseAmount)
    .option('--json', 'print the report as JSON')
    .action(bench);
  addCheck(command);
  addCompare(command);
  addPublish(command);
}

function parseAmount(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || !Number.isFinite(value) || value < 0)
    throw new InvalidArgumentError('expected a number from 0');
  return value;
}

function addCheck(bench: Command): void {
  bench
    .command('check')
    .description('check a report folder, of copse or of the official tool, against the rules')
    .argument('<folder>')
    .option('--json', 'print JSON')
    .action((folder: string, flags: { json?: boolean }) => {
      const result = checkReport(folder);
      if (flags.json) console.log(JSON.stringify(result, null, 2));
      else {
        for (const { name, passed, detail } of result.checks)
          console.log(`${passed ? pc.green('pass') : pc.red('FAIL')} ${name}: ${detail}`);
        for (const note of result.notes) console.log(pc.dim(note));
      }
      if (!result.passed) process.exitCode = 1;
    });
}

function addCompare(bench: Command): void {
  bench
    .command('compare')
    .description('lay report folders side by side on one page')
    .argument('<folders...>')
    .option('--out <file>', 'page to write', 'compare.html')
    .action((folders: string[], { out }: { out: string }) => {
      writeFileSync(out, compareReports(folders));
      console.log(out);
    });
}

function addPublish(bench: Command): void {
  bench
    .command('publish')
    .description('lay a report folder out as a submission, in both layouts that are in use')
    .argument('<folder>')
    .requiredOption('--out <folder>', 'where the submission tree begins')
    .requiredOption('--submitter <name>', 'who submits')
    .requiredOption('--system <name>', 'name of the system')
    .action((reportDir: string, flags: { out: string; submitter: string; system: string }) => {
      const { files, warnings } = publishSubmission({
        reportDir,
        outDir: flags.out,
        submitter: flags.submitter,
        system: flags.system,
      });
      for (const file of files) console.log(file);
      for (const warning of warnings) console.error(`${pc.yellow('warning')} ${warning}`);
    });
}

async function bench(flags: BenchFlags): Promise<void> {
  if (flags.config === undefined)
    throw new UserError('bad_option', 'no benchmark config was given', {
      hint: 'Name one with --config FILE, for example demo/bench.yaml.',
    });
  const abort = new AbortController();
  process.once('SIGINT', () => abort.abort());
  process.once('SIGTERM', () => abort.abort());
  const progress = openProgress('benchmark', { quiet: flags.json === true });
  const outcome = await runBench({
    ...given({
      endpoint: flags.endpoint,
      apiKey: flags.apiKey,
      model: flags.model,
      tokenizer: flags.tokenizer,
      reportDir: flags.reportDir,
      concurrency: flags.concurrency,
      bfcl: flags.bfcl,
    }),
    config: flags.config,
    cost: given({
      watts: flags.watts,
      pricePerKwh: flags.kwhPrice,
      machinePrice: flags.machinePrice,
      years: flags.years,
      cloudInputPerMillion: flags.cloudInput,
      cloudCachedInputPerMillion: flags.cloudCached,
      cloudOutputPerMillion: flags.cloudOutput,
    }),
    mode: flags.accuracyOnly ? 'acc' : flags.mode,
    signal: abort.signal,
    onProgress: (now) => progress.update(now.done, now.total, describe(now)),
    warn: (message) => process.stderr.write(`${pc.yellow('warning')} ${message}\n`),
  }).finally(() => progress.stop());
  if (flags.json) console.log(JSON.stringify(outcome.report));
  else printOutcome(outcome);
  if (outcome.interrupted) process.exitCode = 130;
}

/** Only what was given. */
function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

function describe({ phase, sample, done, accuracy }: BenchProgress): string {
  if (accuracy !== undefined) return describeAccuracy(done, accuracy);
  if (phase !== 'performance' || sample === null) return phase === 'counting' ? 'counting tokens' : phase;
  return `${sample.logicalId} turn ${sample.turn.turn}${sample.error === null ? '' : ` failed: ${sample.error.message}`}`;
}

function describeAccuracy(done: number, accuracy: NonNullable<BenchProgress['accuracy']>): string {
  const { passed, secondsLeft } = accuracy;
  const share = `BFCL ${((100 * passed) / done).toFixed(1)} % right so far`;
  return secondsLeft === null ? share : `${share}, about ${Math.ceil(secondsLeft / 60)} min left`;
}

export function printOutcome({ reportDir, report }: BenchOutcome): void {
  const { summary, cache, iou, turns } = report;
  const median = (series: unknown): string => {
    const value = (series as { median?: number } | undefined)?.median;
    return value === undefined ? '–' : (value / 1e6).toFixed(2);
  };
  const lines: [string, string][] = [];
  if (summary !== null) {
    lines.push(
      [
        'turns',
        `${turns?.issued ?? 0} issued, ${turns?.missing ?? 0} missing, ${summary.n_samples_failed} failed`,
      ],
      ['duration', `${((summary.duration_ns ?? 0) / 1e9).toFixed(1)} s`],
      ['TTFT, median', `${median(summary.ttft)} ms`],
      ['TPOT, median', `${median(summary.tpot)} ms`],
      ['output', `${summary.tps?.toFixed(1) ?? '–'} tok/s`],
      [
        'cached share',
        cache === null
          ? 'not reported by the server'
          : `${(100 * cache.share).toFixed(2)} % of ${cache.promptTokens} prompt tokens`,
      ],
      ['IoU', iou?.toFixed(4) ?? '–'],
    );
  }
  for (const { breakdown } of report.entries)
    if (breakdown !== undefined)
      lines.push([
        'BFCL',
        `${breakdown.overall_accuracy} % overall, ${breakdown.normalized_single_turn_score} % normalised`,
      ]);
  for (const name of report.notRun) lines.push(['not run', name]);
  for (const [name, value] of lines) console.log(`${pc.bold(name.padEnd(14))} ${value}`);
  console.log(`\nreport: ${reportDir}/report.html`);
}
