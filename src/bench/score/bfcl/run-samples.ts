/**
 * Asks the samples in their order, as many at once as there are connections, scores each answer as it comes, and goes on from a
 * journal. Whoever asks knows how; this file knows no HTTP.
 */
import type { SampleProgress } from '../accuracy.ts';
import type { Journal } from './journal.ts';
import { type RequestParams, requestBody } from './request.ts';
import type { BfclSample } from './samples.ts';
import { type AnswerText, scoredText, scoreSample, type Verdict } from './score.ts';

export interface BfclAnswer extends AnswerText {
  readonly finishReason: string | null;
}

export interface AskedSample {
  readonly sample: BfclSample;
  readonly index: number;
  readonly body: string;
}

export interface Outcome {
  readonly sample: BfclSample;
  /** null when the request failed. */
  readonly answer: BfclAnswer | null;
  readonly text: string;
  readonly verdict: Verdict;
}

export interface RunParts {
  readonly samples: readonly BfclSample[];
  readonly params: RequestParams;
  /** Requests in flight at most. */
  readonly concurrency: number;
  /** null when the request failed. Never rejects for what a server does. */
  readonly ask: (asked: AskedSample) => Promise<BfclAnswer | null>;
  /** Hears of an answer that was not asked for because the journal had it. */
  readonly onReused?: (asked: AskedSample, answer: BfclAnswer) => void;
  readonly journal: Journal | null;
  readonly signal: AbortSignal;
  readonly warn: (message: string) => void;
  readonly onProgress?: (progress: SampleProgress) => void;
}

/** By sample; null = never completed. */
export async function runSamples(parts: RunParts): Promise<(Outcome | null)[]> {
  const { samples, params, concurrency, ask, journal, signal, warn } = parts;
  const outcomes = new Array<Outcome | null>(samples.length).fill(null);
  const startMs = performance.now();
  let [next, done, passed, asked] = [0, 0, 0, 0];

  const settle = (index: number, sample: BfclSample, answer: BfclAnswer | null): void => {
    const text = scoredText(answer);
    const verdict = scoreSample(sample, text);
    if (verdict.crash)
      warn(`${sample.id}: ${verdict.error}; the official scorer stops here, this one counts a failure`);
    outcomes[index] = { sample, answer, text, verdict };
    done++;
    if (verdict.passed) passed++;
    const perSample = asked === 0 ? null : (performance.now() - startMs) / 1000 / asked;
    const secondsLeft = perSample === null ? null : perSample * (samples.length - done);
    parts.onProgress?.({ done, total: samples.length, passed, secondsLeft });
  };

  const slot = async (): Promise<void> => {
    while (next < samples.length && !signal.aborted) {
      const index = next++;
      const sample = samples[index] as BfclSample;
      const request = { sample, index, body: requestBody(sample, params) };
      const known = journal?.find(sample.id, request.body) ?? null;
      if (known !== null) {
        parts.onReused?.(request, known);
        settle(index, sample, known);
        continue;
      }
      const answer = await ask(request);
      // What arrives after the phase ended, or fails because it ended, is not an outcome.
      if (signal.aborted) return;
      asked++;
      if (answer !== null) journal?.add(sample.id, request.body, answer);
      settle(index, sample, answer);
    }
  };

  await untilAborted(Promise.all(Array.from({ length: concurrency }, slot)), signal);
  return outcomes;
}

/** Does not wait for requests in flight once the person has stopped the run. */
async function untilAborted(work: Promise<unknown>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  let stop = (): void => {};
  const stopped = new Promise<void>((resolve) => {
    stop = resolve;
  });
  signal.addEventListener('abort', stop);
  try {
    await Promise.race([work, stopped]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}
