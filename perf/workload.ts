/**
 * The real workload under several ways of drafting, one after the other on a quiet machine, and the table of it.
 *
 *   npx tsx perf/workload.ts OUT_DIR MODE...          serves the bundled model per mode and replays the official trace
 *   npx tsx perf/workload.ts --collect RESULT.json DIR...   summarises report folders, the first one being the base of ratios
 *
 * A mode may be given several times: its runs are MODE, MODE@2, and so on. Times are then means over them, and the first
 * mode's runs against each other tell the noise.
 *   npx tsx perf/workload.ts --page DIR PAGE.html     the report page without the texts of the recorded conversations
 */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';
import { type BenchReport, htmlReport, type TurnReport } from '../src/bench/index.ts';

const copse = new URL('../bin/copse.mjs', import.meta.url).pathname;

/** The official config: in `COPSE_DATA`, else beside the checkout. */
function officialConfig(): string {
  const places = [process.env.COPSE_DATA, '../shared/data'].map(
    (root) => `${root}/edge-agentic/online_edge_full_run.yaml`,
  );
  const found = places.find((path) => existsSync(path));
  if (found === undefined)
    throw new Error('set COPSE_DATA to a folder with edge-agentic/online_edge_full_run.yaml');
  return found;
}

const nameOf = (mode: string): string => mode.replace(':', '-');
/** Of a run's folder. */
const modeOf = (dir: string): string => basename(dir).replace(/@\d+$/, '');

async function replay(mode: string, dir: string): Promise<void> {
  const serve = ['serve', 'models/copse-tiny', '--port', '0', '--reasoning', 'off', '--speculation', mode];
  const server = spawn(process.execPath, [copse, ...serve], { stdio: ['ignore', 'pipe', 'inherit'] });
  const url = await new Promise<string>((resolve) => {
    createInterface({ input: server.stdout }).on('line', (line) => {
      const found = /at (http:\S+)\/v1/.exec(line)?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  const bench = [
    'bench',
    '--config',
    officialConfig(),
    '--endpoint',
    url,
    '--model',
    'copse-tiny',
    '--tokenizer',
    'models/copse-tiny',
    '--mode',
    'perf',
    '--report-dir',
    dir,
  ];
  await new Promise((resolve) =>
    spawn(process.execPath, [copse, ...bench], { stdio: 'inherit' }).once('exit', resolve),
  );
  server.kill('SIGTERM');
  await new Promise((resolve) => server.once('exit', resolve));
}

const sum = (turns: readonly TurnReport[], key: keyof TurnReport): number =>
  turns.reduce((total, turn) => total + Number(turn[key] ?? 0), 0);

/** Call ids are random; everything else of an answer must be equal. */
const answerKey = ({ answer }: TurnReport): string => answer.replace(/call_[0-9a-f]+/g, '');

interface Run {
  readonly mode: string;
  readonly report: BenchReport;
}

const readRun = (dir: string): Run => ({
  mode: modeOf(dir),
  report: JSON.parse(readFileSync(`${dir}/report.json`, 'utf8')) as BenchReport,
});

const seconds = (turns: readonly TurnReport[]): number => sum(turns, 'latencyMs') / 1000;

const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

function summarise({ mode, report }: Run, base: BenchReport) {
  const { perTurn: turns, summary } = report;
  const known = new Map(base.perTurn.map((turn) => [`${turn.conversation} ${turn.turn}`, turn]));
  const median = (series: unknown): number => (series as { median: number }).median / 1e6;
  return {
    mode,
    machine: report.machine,
    concurrency: report.concurrency,
    turns: turns.length,
    missing: report.turns?.missing,
    seconds: (summary?.duration_ns ?? 0) / 1e9,
    ttftMedianMs: median(summary?.ttft),
    tpotMedianMs: median(summary?.tpot),
    outputTokensPerSecond: summary?.tps,
    promptTokens: report.cache?.promptTokens,
    cachedShare: report.cache?.share,
    iou: report.iou,
    tokensPerStep: sum(turns, 'generatedTokens') / sum(turns, 'steps'),
    acceptedShare:
      sum(turns, 'draftedTokens') === 0 ? null : sum(turns, 'acceptedTokens') / sum(turns, 'draftedTokens'),
    answersThatDifferFromBase: turns.filter(
      (turn) => answerKey(turn) !== answerKey(known.get(`${turn.conversation} ${turn.turn}`) ?? turn),
    ).length,
  };
}

/** Seconds of each conversation under each mode, and how far two runs of the base lie apart at most. */
function compareConversations(runs: readonly Run[]) {
  const modes = [...new Set(runs.map(({ mode }) => mode))];
  const names = [...new Set((runs[0] as Run).report.perTurn.map(({ conversation }) => conversation))];
  const spent = ({ report }: Run, name: string): number =>
    seconds(report.perTurn.filter(({ conversation }) => conversation === name));
  const ofMode = (mode: string): Run[] => runs.filter((run) => run.mode === mode);
  const conversations = names.map((conversation) => ({
    conversation,
    seconds: Object.fromEntries(
      modes.map((mode) => [mode, mean(ofMode(mode).map((run) => spent(run, conversation)))]),
    ),
  }));
  const [base = ''] = modes;
  const total = (mode: string): number =>
    conversations.reduce((all, { seconds: of }) => all + (of[mode] ?? 0), 0);
  const against = Object.fromEntries(
    modes.map((mode) => {
      const ratios = conversations.map(({ seconds: of }) => (of[mode] ?? 0) / (of[base] ?? 1));
      return [
        mode,
        { total: total(mode) / total(base), best: Math.min(...ratios), worst: Math.max(...ratios) },
      ];
    }),
  );
  const apart = names.map((name) => {
    const times = ofMode(base).map((run) => spent(run, name));
    return Math.max(...times) / Math.min(...times) - 1;
  });
  return {
    base,
    against,
    noise: ofMode(base).length > 1 ? { mean: mean(apart), worst: Math.max(...apart) } : null,
    conversations,
  };
}

function collect(result: string, dirs: readonly string[]): void {
  const runs = dirs.map(readRun);
  const summaries = runs.map((run) => summarise(run, (runs[0] as Run).report));
  const compared = compareConversations(runs);
  writeFileSync(
    result,
    `${JSON.stringify({ date: new Date().toISOString(), ...compared, runs: summaries }, null, 1)}\n`,
  );
  console.table(summaries, [
    'mode',
    'seconds',
    'ttftMedianMs',
    'tpotMedianMs',
    'tokensPerStep',
    'answersThatDifferFromBase',
  ]);
  console.table(compared.against);
  console.log('noise between runs of the base, per conversation:', compared.noise);
}

/** The data of the benchmark stay where they are published: no recorded or generated text goes along. */
function page(dir: string, out: string): void {
  const report = JSON.parse(readFileSync(`${dir}/report.json`, 'utf8')) as BenchReport;
  const perTurn = report.perTurn.map((turn) => ({ ...turn, answer: '', expected: '' }));
  writeFileSync(out, htmlReport({ ...report, perTurn }));
}

const [first, second, ...rest] = process.argv.slice(2);
if (first === '--collect' && second !== undefined) collect(second, rest);
else if (first === '--page' && second !== undefined) page(second, rest[0] ?? 'report.html');
else if (first !== undefined) {
  const dirs: string[] = [];
  for (const mode of [second ?? 'off', ...rest]) {
    const times = 1 + dirs.filter((dir) => modeOf(dir) === nameOf(mode)).length;
    const dir = `${first}/${nameOf(mode)}${times > 1 ? `@${times}` : ''}`;
    await replay(mode, dir);
    dirs.push(dir);
  }
  collect(`${first}/workload.json`, dirs);
} else console.error('usage: workload.ts OUT_DIR MODE... | --collect RESULT.json DIR...');
