/** One sample's verdict, and the scores of a run. A percentage is rounded as Python rounds. */

import { pythonRound } from '../../run/python.ts';
import type { Breakdown } from '../accuracy.ts';
import { checkCalls } from './check-call.ts';
import { ScorerError } from './convert-java.ts';
import { extractCalls, hasNativeCalls } from './extract.ts';
import { type BfclSample, type Category, subsetsOf } from './samples.ts';

/** What a model answered; null fields are absent ones. */
export interface AnswerText {
  readonly content: string;
  readonly reasoning: string;
  /** Merged tool calls in wire form. */
  readonly calls: readonly unknown[] | null;
}

export interface Verdict {
  readonly passed: boolean;
  /** The kind of error, in the official checker's words where it has some. */
  readonly error: string | null;
  /** The official scorer would have stopped here. */
  readonly crash: boolean;
}

/** Tool calls if there are any, else all text; nothing for a sample that failed. */
export function scoredText(answer: AnswerText | null): string {
  if (answer === null) return '';
  return answer.calls !== null && answer.calls.length > 0
    ? JSON.stringify(answer.calls)
    : answer.reasoning + answer.content;
}

export function scoreSample(sample: BfclSample, text: string): Verdict {
  if (sample.expected === null) {
    const passed = !hasNativeCalls(text);
    return { passed, error: passed ? null : 'irrelevance:called', crash: false };
  }
  try {
    const { functions, expected, language, subset } = sample;
    const error = checkCalls(extractCalls(text), { functions, expected, language, subset });
    return { passed: error === null, error, crash: false };
  } catch (error) {
    if (!(error instanceof ScorerError)) throw error;
    return { passed: false, error: `scorer: ${error.message}`, crash: true };
  }
}

export interface Aggregate {
  /** Share of the issued samples that passed, not rounded. */
  readonly score: number;
  readonly breakdown: Breakdown;
}

interface Tally {
  passed: number;
  issued: number;
}

const mean = (values: readonly number[]): number =>
  values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
const share = ({ passed, issued }: Tally): number => (issued === 0 ? 0 : passed / issued);
const percent = (value: number): number => pythonRound(value * 100, 2);

/** `verdicts` in the order of `samples`; null = never completed, which counts as failed. */
export function aggregate(samples: readonly BfclSample[], verdicts: readonly (Verdict | null)[]): Aggregate {
  const tallies = new Map<string, Tally>();
  let [passed, completed] = [0, 0];
  for (const [i, { subset }] of samples.entries()) {
    const verdict = verdicts[i] ?? null;
    const tally = tallies.get(subset) ?? { passed: 0, issued: 0 };
    tallies.set(subset, tally);
    tally.issued++;
    if (verdict !== null) completed++;
    if (verdict?.passed !== true) continue;
    tally.passed++;
    passed++;
  }
  const score = samples.length === 0 ? 0 : passed / samples.length;
  const present = (Object.keys(subsetsOf) as Category[]).filter((category) =>
    subsetsOf[category].some((subset) => tallies.has(subset)),
  );
  const categories = present.map((category) => [category, categoryScore(category, tallies)] as const);
  return {
    score,
    breakdown: {
      overall_accuracy: percent(score),
      normalized_single_turn_score: percent(mean(categories.map(([, value]) => value))),
      category_scores: Object.fromEntries(categories.map(([name, value]) => [name, percent(value)])),
      subset_scores: Object.fromEntries([...tallies].map(([name, tally]) => [name, percent(share(tally))])),
      unscored_subsets: {},
      total_samples: completed,
      issued_samples: samples.length,
    },
  };
}

/** Live subsets count by their samples; the others by subset, with the three languages of simple calls as one. */
function categoryScore(category: Category, tallies: ReadonlyMap<string, Tally>): number {
  const found = subsetsOf[category].flatMap((subset) => {
    const tally = tallies.get(subset);
    return tally === undefined ? [] : [{ subset, tally }];
  });
  if (category === 'live') {
    const total = found.reduce(
      (sum, { tally }) => ({ passed: sum.passed + tally.passed, issued: sum.issued + tally.issued }),
      { passed: 0, issued: 0 },
    );
    return share(total);
  }
  const isSimple = (subset: string): boolean => subset.startsWith('simple_');
  const simple = found.filter(({ subset }) => isSimple(subset)).map(({ tally }) => share(tally));
  const others = found.filter(({ subset }) => !isSimple(subset)).map(({ tally }) => share(tally));
  return mean([...(simple.length === 0 ? [] : [mean(simple)]), ...others]);
}
