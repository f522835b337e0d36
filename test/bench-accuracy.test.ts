/** Both phases over HTTP against scripted answers whose official verdicts are known; interruption, resumption, failures, misuse. */
import { spawn } from 'node:child_process';
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type BenchOutcome, type BenchRun, checkReport, runBench } from '../src/bench/index.ts';
import { type BfclSample, requestBody, selectSamples } from '../src/bench/score/bfcl/index.ts';
import { type OracleRule, oracleCalls } from './support/bfcl-oracle.ts';
import { recordedCommands, type SmallRun, writeSmallRun } from './support/oracle-dataset.ts';
import {
  callDeltas,
  type OracleAnswer,
  type OracleRequest,
  type OracleScript,
  type OracleServer,
  startOracle,
} from './support/oracle-server.ts';
import { publicData } from './support/public-data.ts';

const data = publicData('bfcl_v4');
const categories = ['non_live', 'live', 'hallucination'] as const;
const samples =
  data === null
    ? []
    : selectSamples(data, {
        categories,
        category_sample_pct: { non_live: 62, live: 10, hallucination: 10 },
        subset_floor: 25,
      });
const params = { name: 'M', temperature: 0, seed: 42, max_new_tokens: 1024, streaming: 'on' as const };
const sampleByBody = new Map(samples.map((sample) => [requestBody(sample, params), sample]));

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const act of cleanUp.splice(0)) await act();
});

const accuracyDataset = [
  '  - name: "bfcl_v4::function_calling"',
  '    type: accuracy',
  '    generate_params:',
  '      categories: [non_live, live, hallucination]',
  '      category_sample_pct: {non_live: 62, live: 10, hallucination: 10}',
  '      subset_floor: 25',
  '    accuracy_config: {eval_method: bfcl_v4, ground_truth: ground_truth, extractor: function_call_extractor}',
];

interface Bench {
  readonly small: SmallRun;
  readonly server: OracleServer;
  run(options?: Partial<BenchRun>): Promise<BenchOutcome>;
  read(name: string): unknown;
}

async function bench(script: OracleScript, dataset: readonly string[] = accuracyDataset): Promise<Bench> {
  const server = await startOracle(script);
  cleanUp.push(() => server.close());
  const small = writeSmallRun(server.url);
  cleanUp.push(() => rmSync(small.folder, { recursive: true }));
  const config = readFileSync(small.configPath, 'utf8');
  writeFileSync(small.configPath, config.replace('settings:', [...dataset, 'settings:'].join('\n')));
  const base = { config: small.configPath, reportDir: small.reportDir, bfcl: data ?? '' };
  return {
    small,
    server,
    run: (options) => runBench({ ...base, ...options }),
    read: (name) => JSON.parse(readFileSync(join(small.reportDir, name), 'utf8')),
  };
}

const sessionOf = ({ rawHeaders }: OracleRequest): string | undefined => {
  const at = rawHeaders.indexOf('X-Session-ID');
  return at < 0 ? undefined : rawHeaders[at + 1];
};

function recorded({ json }: OracleRequest, session: string): OracleAnswer {
  const turn = (json.messages as { role: string }[]).filter(({ role }) => role === 'assistant').length;
  const commands = recordedCommands[session]?.[turn] ?? [];
  const calls = commands.map((command) => ({ name: 'bash', arguments: JSON.stringify({ command }) }));
  return { deltas: callDeltas(calls), finishReason: 'tool_calls' };
}

function sampleOf({ body }: OracleRequest): BfclSample {
  const sample = sampleByBody.get(body);
  if (sample === undefined) throw new Error('a request that no sample makes');
  return sample;
}

const answerOf = (request: OracleRequest, rule: OracleRule): OracleAnswer => {
  const calls = oracleCalls(sampleOf(request), rule);
  return calls === null
    ? { deltas: [{ content: 'None of these functions helps.' }] }
    : { deltas: callDeltas(calls, 40), finishReason: 'tool_calls' };
};

const follow =
  (rule: OracleRule): OracleScript =>
  (request) => {
    const session = sessionOf(request);
    return session === undefined ? answerOf(request, rule) : recorded(request, session);
  };

interface Entry {
  readonly score: number;
  readonly complete: boolean;
  readonly breakdown: Record<string, unknown>;
  readonly response_counts: Record<string, number>;
}

const entryOf = ({ read }: Bench): Entry =>
  (read('accuracy/accuracy_results.json') as { accuracy_scores: Entry[] }).accuracy_scores[0] as Entry;

describe.skipIf(data === null)('the accuracy phase', () => {
  it('makes a request of its own for each sample', () => {
    expect(sampleByBody.size).toBe(995);
  });

  it.each([
    ['A', 948, 95.28, 96.91, 90.73, 100],
    ['C', 991, 99.6, 99.78, 99.33, 100],
    ['F', 562, 56.48, 75.52, 44.22, 82.35],
    ['J', 549, 55.18, 71.49, 35.65, 78.82],
  ] as const)('gives answers of rule %s their official scores, after a replay', async (...row) => {
    const [rule, correct, overall, normalised, nonLive, live] = row;
    const run = await bench(follow(rule));
    const outcome = await run.run();
    const entry = entryOf(run);
    expect(entry).toMatchObject({
      score: correct / 995,
      complete: true,
      breakdown: {
        overall_accuracy: overall,
        normalized_single_turn_score: normalised,
        category_scores: { non_live: nonLive, live, hallucination: 100 },
        total_samples: 995,
        issued_samples: 995,
      },
      response_counts: { issued: 995, scored: 995, empty: 0, missing: 0 },
    });
    expect(outcome.scores?.score).toBe(1);
    expect(run.server.requests).toHaveLength(1000);
    expect(run.server.requests.slice(0, 5).every((request) => sessionOf(request) !== undefined)).toBe(true);
    const verdicts = (run.read('accuracy/verdicts.json') as { verdicts: { passed: boolean }[] }[])[0]
      ?.verdicts;
    expect(verdicts?.filter(({ passed }) => passed)).toHaveLength(correct);
    const map = run.read('sample_idx_map.json') as Record<string, Record<string, number>>;
    expect(Object.values(map['bfcl_v4::function_calling'] ?? {})).toEqual(samples.map((_, i) => i));
    expect(existsSync(join(run.small.reportDir, 'accuracy/answers.jsonl'))).toBe(false);
    const gates = checkReport(run.small.reportDir).checks.filter(({ name }) => name.startsWith('accuracy:'));
    expect(gates.map(({ passed }) => passed)).toEqual([overall >= 83.6431, normalised >= 85.3212]);
  });

  it('asks in order on one connection, and scores the same on four', async () => {
    const one = await bench(follow('A'));
    await one.run({ mode: 'acc' });
    expect(one.server.requests.map(sampleOf)).toEqual(samples);
    expect(one.server.connections).toBe(1);
    const four = await bench(follow('A'));
    await four.run({ mode: 'acc', concurrency: 4 });
    expect(four.server.connections).toBe(4);
    expect(entryOf(four).breakdown).toEqual(entryOf(one).breakdown);
    expect(four.read('accuracy/verdicts.json')).toEqual(one.read('accuracy/verdicts.json'));
  });

  it('goes on after an interruption without asking twice or changing a score', async () => {
    const stop = new AbortController();
    const run = await bench((request) => {
      if (request.index === 300) stop.abort();
      return follow('F')(request);
    });
    const first = await run.run({ mode: 'acc', signal: stop.signal });
    expect(first.interrupted).toBe(true);
    expect(entryOf(run)).toMatchObject({ complete: false, response_counts: { issued: 995, missing: 695 } });
    const warnings: string[] = [];
    const second = await run.run({ mode: 'acc', warn: (message) => warnings.push(message) });
    expect(second.interrupted).toBe(false);
    expect(warnings).toEqual([expect.stringContaining('going on with 300 answers')]);
    expect(run.server.requests.length).toBe(301 + 695);
    expect(entryOf(run)).toMatchObject({ complete: true, breakdown: { overall_accuracy: 56.48 } });
    const events = readFileSync(join(run.small.reportDir, 'events.jsonl'), 'utf8');
    expect(events.match(/"sample\.complete"/g)).toHaveLength(995);
  });

  it('survives a kill with files that the check reads, and finishes later with the same score', async () => {
    let kill = (): void => {};
    const run = await bench((request) => {
      if (request.index === 200) kill();
      return follow('J')(request);
    });
    const module = new URL('../src/bench/index.ts', import.meta.url).href;
    const options = { config: run.small.configPath, reportDir: run.small.reportDir, bfcl: data, mode: 'acc' };
    const code = `const { runBench } = await import(${JSON.stringify(module)}); await runBench(${JSON.stringify(options)});`;
    const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', code], {
      stdio: 'ignore',
    });
    kill = () => child.kill('SIGKILL');
    const signal = await new Promise((resolve) => child.on('exit', (_, name) => resolve(name)));
    expect(signal).toBe('SIGKILL');
    expect(checkReport(run.small.reportDir).checks.some(({ passed }) => !passed)).toBe(true);
    appendFileSync(join(run.small.reportDir, 'accuracy/answers.jsonl'), '{"id":"cut off he');
    await run.run({ mode: 'acc' });
    expect(entryOf(run)).toMatchObject({ complete: true, breakdown: { overall_accuracy: 55.18 } });
    expect(run.server.requests.length).toBe(996);
  });

  it('counts failed requests as empty answers, says so, and asks only those again in the next run', async () => {
    let isBroken = true;
    const run = await bench((request) =>
      isBroken && request.index % 100 === 50 ? { status: 500, raw: 'out of order' } : follow('A')(request),
    );
    const warnings: string[] = [];
    await run.run({ mode: 'acc', warn: (message) => warnings.push(message) });
    expect(warnings).toEqual([
      expect.stringMatching(/^10 accuracy requests failed .*HTTP 500: out of order/),
    ]);
    expect(entryOf(run).response_counts).toEqual({ issued: 995, scored: 985, empty: 10, missing: 0 });
    isBroken = false;
    await run.run({ mode: 'acc' });
    expect(run.server.requests.length).toBe(1005);
    expect(entryOf(run).breakdown.overall_accuracy).toBe(95.28);
  });

  it('scores arguments that are no object as failures, with a warning', async () => {
    const odd = ['null', '[1]', '7'];
    const run = await bench((request) => {
      const text = sampleOf(request).category === 'hallucination' ? undefined : odd[request.index % 3];
      const calls = oracleCalls(sampleOf(request), 'A') ?? [];
      if (text === undefined || request.index > 200) return answerOf(request, 'A');
      return { deltas: callDeltas(calls.map(({ name }) => ({ name, arguments: text }))) };
    });
    const warnings: string[] = [];
    await run.run({ mode: 'acc', warn: (message) => warnings.push(message) });
    expect(warnings[0]).toMatch(/^live_multiple_.*: scorer: the arguments are of type .*counts a failure$/);
    expect(entryOf(run)).toMatchObject({ complete: true, response_counts: { missing: 0 } });
    expect(entryOf(run).breakdown.overall_accuracy).toBeLessThan(95.28);
  });

  it('is refused before the first request when its data or options can not be used', async () => {
    const run = await bench(follow('A'));
    await expect(run.run({ bfcl: run.small.folder })).rejects.toMatchObject({ code: 'bad_dataset' });
    const repeated = await bench(
      follow('A'),
      accuracyDataset.map((line) => line.replace('}', line.includes('eval') ? ', num_repeats: 3}' : '}')),
    );
    await expect(repeated.run()).rejects.toMatchObject({ param: 'accuracy_config.num_repeats' });
    expect(run.server.requests.length + repeated.server.requests.length).toBe(0);
  });
});
