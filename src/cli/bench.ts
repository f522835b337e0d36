/** `copse bench`: the benchmark against any OpenAI endpoint. */
import { type Command, Option } from 'commander';
import pc from 'picocolors';
import { type BenchMode, type BenchOutcome, type BenchProgress, runBench } from '../bench/index.ts';
import { parseCount } from './options.ts';
import { openProgress } from './progress.ts';

interface BenchFlags {
  readonly config: string;
  readonly endpoint?: string;
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
  program
    .command('bench')
    .description('run the MLPerf Edge Agentic benchmark against an OpenAI endpoint')
    .requiredOption('--config <file>', 'benchmark config (YAML)')
    .option('--endpoint <url>', 'endpoint instead of the one in the config')
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
    .option('--json', 'print the report as JSON')
    .action(bench);
}

async function bench(flags: BenchFlags): Promise<void> {
  const abort = new AbortController();
  process.once('SIGINT', () => abort.abort());
  process.once('SIGTERM', () => abort.abort());
  const progress = openProgress('replaying', { quiet: flags.json === true });
  const outcome = await runBench({
    ...given({
      endpoint: flags.endpoint,
      model: flags.model,
      tokenizer: flags.tokenizer,
      reportDir: flags.reportDir,
      concurrency: flags.concurrency,
      bfcl: flags.bfcl,
    }),
    config: flags.config,
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

function describe({ phase, sample }: BenchProgress): string {
  if (phase !== 'performance' || sample === null) return phase === 'counting' ? 'counting tokens' : phase;
  return `${sample.logicalId} turn ${sample.turn.turn}${sample.error === null ? '' : ` failed: ${sample.error.message}`}`;
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
