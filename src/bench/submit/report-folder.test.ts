/** Checks, comparisons and submissions of report folders: copse's own, the official tool's, and broken ones. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { UserError } from '../../util/index.ts';
import { compareReports } from '../report/compare.ts';
import { checkReport } from './check.ts';
import { publishSubmission } from './publish.ts';
import { accuracyFloors } from './rulesets.ts';

const root = mkdtempSync(join(tmpdir(), 'bench-folder-'));
afterAll(() => rmSync(root, { recursive: true }));

interface Fixture {
  readonly config?: string;
  readonly breakdown?: Record<string, unknown> | null;
  readonly turns?: Record<string, unknown> | null;
  readonly perTurn?: readonly Record<string, unknown>[];
  readonly verdicts?: readonly Record<string, unknown>[];
  readonly summary?: Record<string, unknown> | null;
}

const goodConfig = `name: x
model_params: {name: m, temperature: 0, seed: 42, streaming: 'on'}
settings:
  runtime: {min_duration_ms: 0, dataloader_random_seed: 42, scheduler_random_seed: 42}
  client: {num_workers: 1, max_connections: 1, some_official_key: 7}
  load_pattern: {type: agentic_inference, target_concurrency: 1}
`;

const goodBreakdown = {
  overall_accuracy: 86.23,
  normalized_single_turn_score: 87.96,
  subset_scores: { irrelevance: 100, simple_java: 50 },
  total_samples: 995,
};

let count = 0;
function folder(fixture: Fixture = {}): string {
  const {
    config = goodConfig,
    breakdown = goodBreakdown,
    turns = { issued: 1007, expected: 1006, observed: 1006, missing: 0, scored: 1006 },
    summary = { latency: { avg: 5e6 }, tps: 10, complete: true },
  } = fixture;
  const path = join(root, `run${count++}`);
  for (const name of ['performance', 'accuracy']) mkdirSync(join(path, name), { recursive: true });
  const save = (name: string, value: unknown): void => writeFileSync(join(path, name), JSON.stringify(value));
  writeFileSync(join(path, 'config.yaml'), config);
  const inline = {
    dataset_name: 'performance',
    score: 0.6,
    total_samples: 1007,
    dataset_type: 'performance',
  };
  const bfcl = {
    dataset_name: 'bfcl',
    score: 0.8623,
    total_samples: 995,
    dataset_type: 'accuracy',
    breakdown,
  };
  if (breakdown !== null) save('accuracy/accuracy_results.json', { accuracy_scores: [bfcl, inline] });
  if (turns !== null) save('scores.json', { score: 0.6, turns, per_turn: fixture.perTurn ?? [] });
  if (summary !== null) save('performance/result_summary.json', summary);
  if (fixture.verdicts) save('accuracy/verdicts.json', [{ dataset: 'bfcl', verdicts: fixture.verdicts }]);
  return path;
}

const failed = (path: string): string[] =>
  checkReport(path)
    .checks.filter(({ passed }) => !passed)
    .map(({ name }) => name);

describe('the compliance check', () => {
  it('passes a run that keeps every rule, keys it does not know among them', () => {
    const { passed, checks } = checkReport(folder());
    expect(checks.map(({ name }) => name)).toEqual([
      'temperature==0',
      'seed==42',
      'single_stream',
      'accuracy:overall_accuracy',
      'accuracy:normalized_single_turn_score',
      'min_sample_count',
      'no_dropped_turns',
      'all_turns_observed',
    ]);
    expect(passed).toBe(true);
  });

  it('draws the line of accuracy at the unrounded product, and takes numbers that are text', () => {
    const { overall_accuracy: overall, normalized_single_turn_score: normalized } = accuracyFloors;
    const at = (a: unknown, b: unknown) =>
      failed(
        folder({ breakdown: { ...goodBreakdown, overall_accuracy: a, normalized_single_turn_score: b } }),
      );
    expect(at(overall, normalized)).toEqual([]);
    expect(at(String(overall), '88')).toEqual([]);
    expect(at(overall - 1e-9, normalized - 1e-9)).toEqual([
      'accuracy:overall_accuracy',
      'accuracy:normalized_single_turn_score',
    ]);
    expect(at('high', null)).toHaveLength(2);
  });

  it.each<[string, string, string, string]>([
    ['a temperature', 'temperature: 0', 'temperature: 0.1', 'temperature==0'],
    ['no temperature', 'temperature: 0, ', '', 'temperature==0'],
    ['another seed', 'dataloader_random_seed: 42', 'dataloader_random_seed: 2747215439041700203', 'seed==42'],
    ['two workers', 'num_workers: 1', 'num_workers: 2', 'single_stream'],
    ['four conversations', 'target_concurrency: 1', 'target_concurrency: 4', 'single_stream'],
  ])('fails a config with %s', (_, from, to, name) => {
    expect(failed(folder({ config: goodConfig.replace(from, to) }))).toEqual([name]);
  });

  it('needs one seed at least and lets the concurrency be unset', () => {
    const bare = goodConfig.replace(', seed: 42', '').replace(', dataloader_random_seed: 42', '');
    expect(failed(folder({ config: bare }))).toEqual(['seed==42']);
    expect(failed(folder({ config: goodConfig.replace(', target_concurrency: 1', '') }))).toEqual([]);
  });

  it('fails missing turns and samples', () => {
    const turns = { expected: 1006, observed: 1005, missing: 1 };
    expect(failed(folder({ turns, breakdown: { ...goodBreakdown, total_samples: 994 } }))).toEqual([
      'min_sample_count',
      'no_dropped_turns',
      'all_turns_observed',
    ]);
  });

  it('fails a run whose accuracy dataset was left out', () => {
    const config = `${goodConfig}datasets: [{name: p, type: performance}, {name: b, type: accuracy}]\n`;
    expect(failed(folder({ config, breakdown: null }))).toEqual(['accuracy_output_present']);
    expect(failed(folder({ config }))).toEqual([]);
  });

  it('says what a killed run lacks, and reads what it left', () => {
    const path = folder({ breakdown: null, turns: null, summary: null });
    expect(failed(path)).toEqual(['scorer_output_present']);
    writeFileSync(join(path, 'scores.json'), '{"score": 0.5, "tur');
    writeFileSync(join(path, 'config.yaml'), 'a: [');
    const { checks } = checkReport(path);
    expect(checks.map(({ name }) => name)).toEqual(['config_readable', 'scorer_output_present']);
    expect(checks[1]?.detail).toMatch(/scores\.json can not be read/);
    expect(() => checkReport(join(root, 'nowhere'))).toThrow(UserError);
  });
});

describe('a comparison', () => {
  const turn = (n: number, score: number) => ({
    conversation_id: 'a<b>',
    repeat: 1,
    turn: n,
    score,
    model_actions: ['ls'],
  });
  const verdict = (id: string, passed: boolean) => ({
    id,
    passed,
    error: null,
    answer: '<script>alert(1)</script>',
  });
  const one = folder({
    perTurn: [turn(2, 1), turn(4, 0.5)],
    verdicts: [verdict('s1', true), verdict('s2', true)],
  });
  const two = folder({
    perTurn: [turn(2, 1), turn(4, 0)],
    verdicts: [verdict('s1', true), verdict('s2', false)],
    breakdown: { ...goodBreakdown, subset_scores: { irrelevance: 90, simple_java: 60 } },
    summary: { latency: { avg: 10e6 }, tps: 20 },
  });

  it('shows ratios, differences by subset, and the samples and turns that changed', () => {
    const html = compareReports([one, two]);
    expect(html).toContain('2.00×');
    expect(html).toContain('-10.00');
    expect(html).toContain('+10.00');
    expect(html).toContain('Samples that changed: 1 of 2');
    expect(html).toContain('Turns whose IoU changed: 1 of 2');
    expect(html).toContain('a&lt;b&gt;, turn 4');
  });

  it('runs no text of a model and loads nothing', () => {
    const html = compareReports([one, two]);
    expect(html).not.toMatch(/<script|javascript:|src=|url\(|@import/);
    expect(html.replaceAll('http://www.w3.org', '')).not.toMatch(/https?:/);
  });

  it('takes folders of the same name, broken ones, and more than two', () => {
    const broken = folder({ summary: null, turns: null, breakdown: null });
    const html = compareReports([one, one, broken]);
    expect(html).toMatch(/run\d+ \(1\).*run\d+ \(2\)/s);
    expect(html).toContain('result_summary.json is missing');
    expect(() => compareReports([one])).toThrow(/at least 2/);
  });
});

describe('a submission', () => {
  const names = { submitter: 'us', system: 'box-1' };

  it('is laid out for the publishing script and for the checker', () => {
    const outDir = join(root, 'out');
    const { files, warnings } = publishSubmission({ reportDir: folder(), outDir, ...names });
    const scenario = 'closed/us/results/box-1/qwen3.6-27b/SingleStream';
    const expected = [
      'performance/run_1/result_summary.json',
      'performance/run_1/config.yaml',
      'performance/result_summary.json',
      'accuracy/accuracy_results.json',
      'accuracy/config.yaml',
      'config.yaml',
      'measurements.json',
      'README.md',
    ].map((file) => join(scenario, file));
    expect(files).toEqual(
      expect.arrayContaining([...expected, 'closed/us/systems/box-1.json', 'closed/us/src/README.md']),
    );
    expect(files.filter((file) => !existsSync(join(outDir, file)))).toEqual([]);
    const system = JSON.parse(readFileSync(join(outDir, 'closed/us/systems/box-1.json'), 'utf8'));
    expect(Object.keys(system)).toHaveLength(35);
    expect(Object.values(system).filter((value) => value === '')).toEqual([]);
    expect(
      Object.values(JSON.parse(readFileSync(join(outDir, scenario, 'measurements.json'), 'utf8'))),
    ).toHaveLength(5);
    expect(warnings.join()).toMatch(
      /min_duration_ms is below 600000.*seeds are not those of mlperf-inference-v6\.1/,
    );
  });

  it('warns of nothing when the round is pinned', () => {
    const config = goodConfig
      .replace('min_duration_ms: 0', 'min_duration_ms: 600000')
      .replace('scheduler_random_seed: 42', 'scheduler_random_seed: 16159082839903944936')
      .replace('dataloader_random_seed: 42', 'dataloader_random_seed: 2747215439041700203');
    expect(
      publishSubmission({ reportDir: folder({ config }), outDir: join(root, 'o2'), ...names }).warnings,
    ).toEqual([]);
  });

  it.each(['../x', '', '.hidden', 'a/b', 'a b'])('refuses the name %j', (system) => {
    expect(() =>
      publishSubmission({ reportDir: folder(), outDir: join(root, 'o3'), submitter: 'us', system }),
    ).toThrow(/can not be the name of a folder/);
    expect(existsSync(join(root, 'o3'))).toBe(false);
  });

  it('refuses a folder without results', () => {
    const reportDir = folder({ summary: null });
    expect(() => publishSubmission({ reportDir, outDir: join(root, 'o4'), ...names })).toThrow(
      /result_summary\.json is missing/,
    );
  });
});
