/** Refusals of a config, its written form, and what a run costs. */
import { describe, expect, it } from 'vitest';
import { smallConfig } from '../../../test/support/oracle-dataset.ts';
import { UserError } from '../../util/index.ts';
import { checkCostInputs, costLines } from '../report/cost.ts';
import { summarize } from '../score/series.ts';
import { type BenchConfig, configYaml, findData, parseBenchConfig } from './config.ts';
import { parsePrometheus } from './server-counts.ts';

describe('a config', () => {
  const text = smallConfig('http://user:pw@host:1/base', {});
  const refused = (from: string, to: string): string => {
    try {
      parseBenchConfig(text.replace(from, to), 'c.yaml');
    } catch (error) {
      expect(error).toBeInstanceOf(UserError);
      return (error as Error).message;
    }
    return 'accepted';
  };

  it.each([
    [
      'target_concurrency',
      'target_concurency',
      /c\.yaml:\d+: settings\.load_pattern\.target_concurency: .* is not a key/,
    ],
    ['temperature: 0', 'temperature: hot', /c\.yaml:6: model_params\.temperature: .*found hot/],
    ['type: online', 'type: offline', /c\.yaml:3: type/],
    ['name: small\n', '', /name: is missing/],
    ['type: agentic_inference', 'type: poisson', /settings\.load_pattern\.type/],
    ['seed: 42', 'seed: [', /c\.yaml:\d+: /],
    ['seed: 42', 'seed: 42\n  seed: 43', /c\.yaml:\d+: Map keys must be unique/],
    [
      'report_dir',
      'audit: {test: output_caching_test}\nreport_dir',
      /audit: the output-caching audit accepts/,
    ],
    [
      'settings:',
      'submission_ref: {model: m, ruleset: mlperf-9}\nsettings:',
      /ruleset: 'mlperf-9' is not one of/,
    ],
    ['  load_pattern', '  warmup: {enabled: true}\n  load_pattern', /settings\.warmup\.enabled/],
  ])('with %j as %j is refused with key and line', (from, to, message) => {
    expect(refused(from, to)).toMatch(message);
  });

  it('is written without secrets and read again', () => {
    const config = parseBenchConfig(text.replace('report_dir', '  api_key: sk-123\nreport_dir'), 'c.yaml');
    const yaml = configYaml(config);
    expect(yaml).not.toMatch(/pw|sk-123|null/);
    expect(yaml).toMatch(/streaming: ["']on["']/);
    const again = parseBenchConfig(yaml, 'again.yaml');
    expect({ ...again, endpoint_config: 0 }).toEqual({ ...config, endpoint_config: 0 });
  });

  it('takes the seeds of a round to the last digit', () => {
    const config: BenchConfig = parseBenchConfig(
      text.replace(
        'settings:',
        'submission_ref: {model: qwen3.6-27b, ruleset: mlperf-inference-v6.1}\nsettings:',
      ),
      'c',
    );
    expect(config.settings.runtime).toMatchObject({
      scheduler_random_seed: 16159082839903944936n,
      dataloader_random_seed: 2747215439041700203n,
    });
    expect(configYaml(config)).toContain('scheduler_random_seed: 16159082839903944936');
    expect(parseBenchConfig(configYaml(config), 'c')).toEqual(
      expect.objectContaining({ settings: config.settings }),
    );
  });

  it('names the places where a file was looked for', () => {
    expect(() => findData('no/such.jsonl', '/x/run.yaml')).toThrow(
      /no\/such\.jsonl was not found; looked at .*\/x\/no\/such\.jsonl/,
    );
  });
});

describe('cost', () => {
  const summary = {
    duration_ns: 100e9,
    input_sequence_lengths: summarize([1_000_000], { estimates: false }),
    output_sequence_lengths: summarize([10_000], { estimates: false }),
  } as never;

  it('comes from stated inputs with the assumption beside each figure', () => {
    const cost = {
      watts: 36,
      pricePerKwh: 0.3,
      cloudInputPerMillion: 1,
      cloudCachedInputPerMillion: 0.1,
      cloudOutputPerMillion: 4,
    };
    const lines = costLines({ joules: null, source: null, cost }, summary, 0.5);
    const value = (name: string) => lines.find((line) => line.name === name)?.value;
    expect(value('Energy of the performance phase')).toBeCloseTo(1, 9);
    expect(value('Energy per output token')).toBeCloseTo(0.36, 9);
    expect(value('Cost per million output tokens')).toBeCloseTo(0.03, 9);
    expect(value('This run in the cloud')).toBeCloseTo(0.59, 9);
    expect(lines.every(({ basis }) => basis !== '')).toBe(true);
  });

  it('says nothing without inputs and refuses nonsense', () => {
    expect(costLines({ joules: null, source: null, cost: {} }, summary, null)).toEqual([]);
    expect(() => checkCostInputs({ watts: -1 })).toThrow(/watts is -1/);
    expect(() => checkCostInputs({ years: 0 })).toThrow(UserError);
  });
});

describe('a metrics page', () => {
  it('is summed over labels; comments and nonsense are passed over', () => {
    const sums = parsePrometheus(
      '# TYPE a counter\na{x="1"} 2\na{x="}"} 3 1700000000\nb NaN\nnonsense\nc 1e3',
    );
    expect([...sums]).toEqual([
      ['a', 5],
      ['c', 1000],
    ]);
  });
});
