import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { SampleProgress } from '../accuracy.ts';
import { aggregate, type BfclSample, type Verdict } from './index.ts';
import { Journal } from './journal.ts';
import { type BfclAnswer, type RunParts, runSamples } from './run-samples.ts';

const sample = (id: string, subset = 'irrelevance'): BfclSample => ({
  id,
  subset,
  category: subset.includes('irrelevance')
    ? 'hallucination'
    : subset.startsWith('live')
      ? 'live'
      : 'non_live',
  language: 'python',
  messages: [{ role: 'user', content: id }],
  functions: [],
  expected: null,
});
const samples = ['s0', 's1', 's2', 's3', 's4'].map((id) => sample(id));
const answer: BfclAnswer = { content: 'no', reasoning: '', calls: null, finishReason: 'stop' };

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'journal-'));
});
afterEach(() => rmSync(folder, { recursive: true }));
const open = (origin = 'http://a'): Journal => new Journal(join(folder, 'answers.jsonl'), origin);

const parts = (changes: Partial<RunParts>): RunParts => ({
  samples,
  params: { name: 'M', max_new_tokens: 8, streaming: 'on' },
  concurrency: 1,
  ask: async () => answer,
  journal: null,
  signal: new AbortController().signal,
  warn: () => {},
  ...changes,
});

describe('a run of samples', () => {
  it('keeps as many requests in flight as allowed, begun in order', async () => {
    const begun: string[] = [];
    let [inFlight, most] = [0, 0];
    await runSamples(
      parts({
        concurrency: 3,
        ask: async ({ sample: { id } }) => {
          begun.push(id);
          most = Math.max(most, ++inFlight);
          await new Promise((resolve) => setTimeout(resolve, 2));
          inFlight--;
          return answer;
        },
      }),
    );
    expect([most, begun]).toEqual([3, ['s0', 's1', 's2', 's3', 's4']]);
  });

  it('reports progress with the time that is left', async () => {
    const seen: SampleProgress[] = [];
    await runSamples(parts({ onProgress: (progress) => seen.push(progress) }));
    expect(seen.map(({ done }) => done)).toEqual([1, 2, 3, 4, 5]);
    expect(seen.at(-1)).toMatchObject({ total: 5, passed: 5, secondsLeft: 0 });
    expect(seen[0]?.secondsLeft).toBeGreaterThan(0);
  });

  it('ends at once when stopped, with a request still open', async () => {
    const stop = new AbortController();
    const ask: RunParts['ask'] = ({ index }) => {
      if (index < 2) return Promise.resolve(answer);
      stop.abort();
      return new Promise(() => {});
    };
    const outcomes = await runSamples(parts({ ask, signal: stop.signal }));
    expect(outcomes.map((outcome) => outcome !== null)).toEqual([true, true, false, false, false]);
  });
});

describe('the journal', () => {
  const asked = async (journal: Journal, changes: Partial<RunParts> = {}): Promise<string[]> => {
    const ids: string[] = [];
    const ask: RunParts['ask'] = async ({ sample: { id } }) => {
      ids.push(id);
      return id === 's3' ? null : answer;
    };
    await runSamples(parts({ ask, journal, ...changes }));
    return ids;
  };

  it('has answers for the same requests to the same endpoint only, and none of failures', async () => {
    expect(await asked(open())).toHaveLength(5);
    expect(await asked(open())).toEqual(['s3']);
    const params = { name: 'other', max_new_tokens: 8, streaming: 'on' } as const;
    expect(await asked(open(), { params })).toHaveLength(5);
    expect(open('http://b').size).toBe(0);
    expect(await asked(open('http://b'))).toHaveLength(5);
    expect(open('http://a').size).toBe(0);
  });

  it('leaves out lines that are damaged', async () => {
    await asked(open());
    const path = join(folder, 'answers.jsonl');
    const lines = readFileSync(path, 'utf8').split('\n');
    const damaged = [lines[0], lines[1], '{"id":"s1"}', 'null', '\u0000', lines[4]?.slice(0, 40)];
    rmSync(path);
    const { writeFileSync } = await import('node:fs');
    writeFileSync(path, damaged.join('\n'));
    expect(await asked(open())).toEqual(['s1', 's2', 's3', 's4']);
    expect(await asked(open())).toEqual(['s3']);
  });
});

describe('scores', () => {
  const right: Verdict = { passed: true, error: null, crash: false };
  const wrong: Verdict = { passed: false, error: 'x', crash: false };
  const of = (...entries: readonly (readonly [string, Verdict | null])[]) =>
    aggregate(
      entries.map(([subset], i) => sample(`s${i}`, subset)),
      entries.map(([, verdict]) => verdict),
    );

  it('are all zero when nothing was answered', () => {
    expect(of(['irrelevance', null], ['live_simple', null])).toEqual({
      score: 0,
      breakdown: {
        overall_accuracy: 0,
        normalized_single_turn_score: 0,
        category_scores: { live: 0, hallucination: 0 },
        subset_scores: { irrelevance: 0, live_simple: 0 },
        unscored_subsets: {},
        total_samples: 0,
        issued_samples: 2,
      },
    });
  });

  it('weigh the simple subsets as one, live by samples, and missing samples as failures', () => {
    const { score, breakdown } = of(
      ['simple_python', right],
      ['simple_java', wrong],
      ['simple_javascript', null],
      ['multiple', right],
      ['live_simple', right],
      ['live_simple', right],
      ['live_multiple', wrong],
      ['irrelevance', right],
    );
    expect(score).toBe(5 / 8);
    expect(breakdown).toMatchObject({
      overall_accuracy: 62.5,
      category_scores: { non_live: 66.67, live: 66.67, hallucination: 100 },
      normalized_single_turn_score: 77.78,
      total_samples: 7,
    });
  });

  it('round half to even in the exact value, as Python does', () => {
    const entries = Array.from({ length: 32 }, (_, i) => ['multiple', i === 0 ? right : wrong] as const);
    expect(of(...entries).breakdown.overall_accuracy).toBe(3.12);
  });
});
