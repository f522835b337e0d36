import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type BfclSample, readJson, requestBody, selectSamples, toolsOf, writeJson } from './index.ts';
import { sampleCount } from './samples.ts';

const subsets = ['irrelevance', 'live_irrelevance'];
const answered = ['live_simple', 'live_multiple', 'live_parallel', 'live_parallel_multiple'];
const row = (id: string): string =>
  `{"id":"${id}","question":[[{"role":"user","content":"q"}]],"function":[{"name":"m.f","description":"d","parameters":{"type":"dict","properties":{},"required":[]}}]}`;
const answer = (id: string): string => `{"id":"${id}","ground_truth":[{"m.f":{}}]}`;

let folder = '';
const save = (name: string, lines: readonly string[]): void =>
  writeFileSync(join(folder, name), `${lines.join('\n')}\n`);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'bfcl-'));
  mkdirSync(join(folder, 'possible_answer'));
  for (const subset of [...subsets, ...answered]) {
    const ids = [0, 1, 2, 3].map((i) => `${subset}_${i}`);
    save(`BFCL_v4_${subset}.json`, ids.map(row));
    if (answered.includes(subset)) save(`possible_answer/BFCL_v4_${subset}.json`, ids.map(answer));
  }
});
afterEach(() => rmSync(folder, { recursive: true }));

const select = (percent = 50, floor = 2): BfclSample[] =>
  selectSamples(folder, {
    categories: ['live', 'hallucination'],
    category_sample_pct: { live: percent },
    subset_floor: floor,
  });

describe('selection', () => {
  it('takes the first rows of each subset, subsets by name', () => {
    expect(select().map(({ id }) => id)).toEqual([
      ...[0, 1, 2, 3].map((i) => `irrelevance_${i}`),
      ...[0, 1, 2, 3].map((i) => `live_irrelevance_${i}`),
      ...['live_multiple', 'live_parallel', 'live_parallel_multiple', 'live_simple'].flatMap((subset) => [
        `${subset}_0`,
        `${subset}_1`,
      ]),
    ]);
  });

  it.each([
    [25, 10, 25, 25],
    [26, 10, 25, 2],
    [1053, 10, 25, 105],
    [240, 10, 25, 24],
    [30, 0, 25, 1],
    [0, 50, 25, 0],
  ])('of %i rows takes by %i %% above %i: %i', (size, percent, floor, count) => {
    expect(sampleCount(size, percent, floor)).toBe(count);
  });

  const breakLine = (name: string, line: string): void => save(name, [row('live_simple_0'), line]);
  it.each([
    ['{"id":', /BFCL_v4_live_simple\.json:2: not JSON/],
    ['[]', /:2: the row is not an object/],
    ['{"id":7}', /:2: 'id' is not a text/],
    [row('live_simple_0'), /:2: the id 'live_simple_0' is there twice/],
    ['{"id":"x","question":[],"function":[]}', /:2: 'x' has no row in possible_answer/],
    [row('live_simple_1').replace('[[', '[').replace(']]', ']'), /:2: a turn of 'question' is not a list/],
    [row('live_simple_1').replace('"q"', '7'), /:2: a message of 'question'/],
    [row('live_simple_1').replace('"m.f"', '7'), /:2: an entry of 'function' has no name/],
    [row('live_simple_1').replace('"properties"', '"props"'), /:2: function 'm.f' has no properties/],
  ])('refuses the row %s', (line, message) => {
    breakLine('BFCL_v4_live_simple.json', line);
    expect(() => select()).toThrow(message);
  });

  it.each([
    ['{"id":"live_simple_1"}', /possible_answer.*:2: 'ground_truth' is not a list/],
    ['{"id":"live_simple_1","ground_truth":[{}]}', /:2: an answer is not an object of one function/],
    ['{"id":"live_simple_1","ground_truth":[{"f":{"a":1}}]}', /:2: the options of 'f.a' are not a list/],
  ])('refuses the answer %s', (line, message) => {
    save('possible_answer/BFCL_v4_live_simple.json', [answer('live_simple_0'), line]);
    expect(() => select()).toThrow(message);
  });

  it('names a missing file, an empty one, and a folder that is none', () => {
    rmSync(join(folder, 'possible_answer/BFCL_v4_live_multiple.json'));
    expect(() => select()).toThrow(/can not read .*possible_answer.*live_multiple/);
    save('BFCL_v4_irrelevance.json', []);
    expect(() => select()).toThrow(/BFCL_v4_irrelevance\.json has no rows/);
    const missing = { categories: ['live'] as const, category_sample_pct: {}, subset_floor: 1 };
    expect(() => selectSamples(join(folder, 'none'), missing)).toThrow(/is not a folder/);
  });
});

describe('a request', () => {
  const withProperty = (property: string): BfclSample => {
    const functions = readJson(
      `[{"name":"m.f","description":"d","parameters":{"type":"dict","properties":{"p":${property}},"required":[]}}]`,
    ) as BfclSample['functions'];
    return { ...(select()[0] as BfclSample), functions };
  };
  it.each([
    [
      '{"type":"float","description":"x","default":5.0}',
      '{"type":"number","description":"x This is a float type value.","default":5.0,"format":"float"}',
    ],
    ['{"description":"x"}', '{"description":"x","type":"string"}'],
    ['{"type":"Boolean"}', '{"type":"string"}'],
    ['{"type":"ArrayList","items":{"type":"long"}}', '{"type":"array","items":{"type":"integer"}}'],
    [
      '{"type":"array","items":{"type":"array","items":{"type":"float","description":"y"}}}',
      '{"type":"array","items":{"type":"array","items":{"type":"number","description":"y"}}}',
    ],
    [
      '{"type":"dict","properties":{"q":{"type":"float"}}}',
      '{"type":"object","properties":{"q":{"type":"number","format":"float","description":" This is a float type value."}}}',
    ],
  ])('maps %s', (property, expected) => {
    const sample = withProperty(property);
    const before = writeJson(sample.functions);
    expect(writeJson(toolsOf(sample))).toBe(
      `[{"type":"function","function":{"name":"m_f","description":"d","parameters":{"type":"object","properties":{"p":${expected}},"required":[]}}}]`,
    );
    expect(writeJson(sample.functions)).toBe(before);
  });

  it('has the options of the config at their places', () => {
    const params = { name: 'n', max_new_tokens: 5, streaming: 'off' as const, top_p: 1, top_k: 3 };
    expect(requestBody(select()[0] as BfclSample, params)).toMatch(
      /^\{"model":"n","messages":\[.*\],"max_completion_tokens":5,"stream":false,"top_p":1\.0,"top_k":3,"tools":\[.*\],"tool_choice":"auto"\}$/,
    );
  });
});
