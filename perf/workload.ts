/**
 * The real workload under several ways of drafting, one after the other on a quiet machine, and the table of it.
 *
 *   npx tsx perf/workload.ts OUT_DIR MODE...          serves the bundled model per mode and replays the official trace
 *   npx tsx perf/workload.ts --collect RESULT.json DIR...   summarises report folders, the first one being the base of ratios
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

async function replay(mode: string, out: string): Promise<string> {
  const serve = ['serve', 'models/copse-tiny', '--port', '0', '--reasoning', 'off', '--speculation', mode];
  const server = spawn(process.execPath, [copse, ...serve], { stdio: ['ignore', 'pipe', 'inherit'] });
  const url = await new Promise<string>((resolve) => {
    createInterface({ input: server.stdout }).on('line', (line) => {
      const found = /at (http:\S+)\/v1/.exec(line)?.[1];
      if (found !== undefined) resolve(found);
    });
  });
  const dir = `${out}/${mode.replace(':', '-')}`;
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
  return dir;
}

const sum = (turns: readonly TurnReport[], key: keyof TurnReport): number =>
  turns.reduce((total, turn) => total + Number(turn[key] ?? 0), 0);

/** Call ids are random; everything else of an answer must be equal. */
const answerKey = ({ answer }: TurnReport): string => answer.replace(/call_[0-9a-f]+/g, '');

function summarise(dir: string, base: BenchReport | null) {
  const report = JSON.parse(readFileSync(`${dir}/report.json`, 'utf8')) as BenchReport;
  const { perTurn: turns, summary } = report;
  const known = new Map((base ?? report).perTurn.map((turn) => [`${turn.conversation} ${turn.turn}`, turn]));
  const conversations = [...new Set(turns.map(({ conversation }) => conversation))];
  const latency = (list: readonly TurnReport[], name: string): number =>
    sum(
      list.filter(({ conversation }) => conversation === name),
      'latencyMs',
    );
  const ratios = conversations.map((name) => latency(turns, name) / latency((base ?? report).perTurn, name));
  const median = (series: unknown): number => (series as { median: number }).median / 1e6;
  return {
    run: basename(dir),
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
    tokensPerStep: sum(turns, 'outputTokens') / sum(turns, 'steps'),
    acceptedShare:
      sum(turns, 'draftedTokens') === 0 ? null : sum(turns, 'acceptedTokens') / sum(turns, 'draftedTokens'),
    timeAgainstBase: sum(turns, 'latencyMs') / sum((base ?? report).perTurn, 'latencyMs'),
    slowestConversationAgainstBase: Math.max(...ratios),
    answersThatDifferFromBase: turns.filter(
      (turn) => answerKey(turn) !== answerKey(known.get(`${turn.conversation} ${turn.turn}`) ?? turn),
    ).length,
  };
}

function collect(result: string, dirs: readonly string[]): void {
  const base = JSON.parse(readFileSync(`${dirs[0]}/report.json`, 'utf8')) as BenchReport;
  const runs = dirs.map((dir) => summarise(dir, base));
  writeFileSync(
    result,
    `${JSON.stringify({ date: new Date().toISOString(), base: runs[0]?.run, runs }, null, 1)}\n`,
  );
  console.table(runs, [
    'run',
    'seconds',
    'ttftMedianMs',
    'tpotMedianMs',
    'tokensPerStep',
    'timeAgainstBase',
    'slowestConversationAgainstBase',
    'answersThatDifferFromBase',
  ]);
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
  for (const mode of [second ?? 'off', ...rest]) dirs.push(await replay(mode, first));
  collect(`${first}/workload.json`, dirs);
} else console.error('usage: workload.ts OUT_DIR MODE... | --collect RESULT.json DIR...');
