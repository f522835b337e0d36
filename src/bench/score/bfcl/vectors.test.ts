import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { type OracleRule, oracleCalls, oracleRules } from '../../../../test/support/bfcl-oracle.ts';
import { publicData } from '../../../../test/support/public-data.ts';
import {
  aggregate,
  checkCall,
  checkCalls,
  type Dict,
  equal,
  fromJava,
  fromJavascript,
  hashOfIds,
  isDict,
  isList,
  readJson,
  requestBody,
  scoreSample,
  selectSamples,
  standardize,
  typeOf,
  type Value,
  type Verdict,
} from './index.ts';
import type { List } from './value.ts';

const golden = new URL('../../../../test/golden/edge-agentic-vectors.json', import.meta.url);
const vectors = readJson(readFileSync(golden, 'utf8')) as Dict;

function at(value: Value | undefined, ...path: readonly (string | number)[]): Value {
  const found = path.reduce<Value | undefined>((inner, key) => {
    if (typeof key === 'number') return isList(inner) ? inner[key] : undefined;
    return isDict(inner) ? inner.get(key) : undefined;
  }, value);
  if (found === undefined) throw new Error(`no vector at ${path.join('.')}`);
  return found;
}
const listAt = (value: Value, ...path: readonly (string | number)[]): List => at(value, ...path) as List;

const expectSame = (found: Value, expected: Value, type: Value): void => {
  expect([found, typeOf(found)]).toEqual([found, type]);
  expect([found, equal(found, expected)]).toEqual([found, true]);
};

describe('conversion of source text', () => {
  for (const [name, convert] of [
    ['java', fromJava],
    ['javascript', fromJavascript],
  ] as const)
    it.each(listAt(vectors, name).map((entry, i) => [i, entry] as const))(
      `of ${name} agrees with the official one, case %i`,
      (_, entry) => {
        const [text, type, itemType = null] = listAt(entry, 0) as string[];
        const found = convert(text as string, type as string, itemType);
        expectSame(found, at(entry, 1, 'value'), at(entry, 1, 'py_type'));
      },
    );
});

it('standardizes text as the official checker does', () => {
  for (const entry of listAt(vectors, 'standardize_string'))
    expect(standardize(at(entry, 0) as string)).toBe(at(entry, 1));
});

describe('the checker', () => {
  const doc = at(vectors, 'ast_python', 'function') as Dict;
  it.each(listAt(vectors, 'ast_python', 'cases').map((entry, i) => [i, entry] as const))(
    'gives the official verdict, case %i',
    (_, entry) => {
      const call = { name: 'm_f', arguments: readJson(at(entry, 0) as string) };
      const check = (): string | null =>
        checkCall(call, { name: 'm.f', options: at(entry, 1) as Dict }, doc, 'python');
      const verdict = at(entry, 2);
      if (typeof verdict === 'string') expect(check).toThrow(/not an object/);
      else expect(check()).toBe(at(verdict, 1));
    },
  );

  it('counts calls as the official one does', () => {
    const call = { name: 'm_f', arguments: new Map([['s', 'a']]) };
    const expected = [{ name: 'm.f', options: new Map([['s', ['a']]]) }];
    const check = { functions: [doc], expected, language: 'python' as const, subset: 'simple_python' };
    const found = [
      checkCalls([{ ...call, name: 'm.f' }], check),
      checkCalls([], check),
      checkCalls([call, call], check),
      checkCalls([call], { ...check, subset: 'live_multiple' }),
      checkCalls([call], { ...check, subset: 'parallel' }),
    ];
    expect(found).toEqual(listAt(vectors, 'ast_python_counts').map((entry) => at(entry, 1, 1)));
  });
});

const folder = publicData('bfcl_v4');
const official = {
  categories: ['non_live', 'live', 'hallucination'] as const,
  category_sample_pct: { non_live: 62, live: 10, hallucination: 10 },
  subset_floor: 25,
};

/** Correct, overall, normalised, non_live, live. */
const table: Readonly<Record<OracleRule, readonly number[]>> = {
  A: [948, 95.28, 96.91, 90.73, 100],
  B: [943, 94.77, 96.32, 90.73, 98.24],
  C: [991, 99.6, 99.78, 99.33, 100],
  D: [985, 98.99, 99.1, 99.06, 98.24],
  E: [958, 96.28, 97.37, 93.88, 98.24],
  F: [562, 56.48, 75.52, 44.22, 82.35],
  G: [943, 94.77, 96.32, 90.73, 98.24],
  J: [549, 55.18, 71.49, 35.65, 78.82],
};

describe.skipIf(folder === null)('over the public samples', () => {
  const samples = folder === null ? [] : selectSamples(folder, official);

  it('selects the official 995', () => {
    expect(samples).toHaveLength(995);
    expect(hashOfIds(samples)).toBe(at(vectors, 'sample_ids_sha256'));
    expect([samples[0]?.id, samples.at(-1)?.id]).toEqual(['irrelevance_0', 'simple_python_247']);
  });

  it('sends the official bytes', () => {
    const params = { name: 'M', temperature: 0, seed: 42, max_new_tokens: 1024, streaming: 'on' as const };
    const bodies = samples.map((sample) => Buffer.from(requestBody(sample, params)));
    const hash = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
    const whole = Buffer.concat(bodies);
    const expected = at(vectors, 'request_bodies', 'accuracy');
    expect(hash(bodies[0] as Buffer)).toBe(at(expected, 'first', 'sha256'));
    expect(hash(bodies.at(-1) as Buffer)).toBe(at(expected, 'last', 'sha256'));
    expect(BigInt(whole.length)).toBe(at(expected, 'total_bytes'));
    expect(hash(whole)).toBe(at(expected, 'sha256_of_concatenation'));
  });

  it.each(oracleRules)('gives the official verdict on every answer of rule %s', (rule) => {
    const verdicts: Verdict[] = samples.map((sample) => {
      const calls = oracleCalls(sample, rule);
      const native = calls?.map((call) => ({ type: 'function', function: call })) ?? null;
      return scoreSample(sample, native === null ? '' : JSON.stringify(native));
    });
    const expected = at(vectors, 'oracles', rule) as string;
    const wrong = samples
      .map(({ id }, i) => ({
        id,
        found: verdicts[i]?.passed,
        error: verdicts[i]?.error,
        expected: expected[i] === '1',
      }))
      .filter((entry) => entry.found !== entry.expected);
    expect(wrong).toEqual([]);
    const { breakdown } = aggregate(samples, verdicts);
    const { overall_accuracy, normalized_single_turn_score, category_scores } = breakdown;
    expect([
      verdicts.filter(({ passed }) => passed).length,
      overall_accuracy,
      normalized_single_turn_score,
      category_scores.non_live,
      category_scores.live,
    ]).toEqual(table[rule]);
  });
});
