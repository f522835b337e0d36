/** What an answer cost: OpenAI's `usage`, and on request what drafts did for it. */
import { type GenerationStats, meanAcceptedLength } from '../../engine/index.ts';
import type { FinishDelta } from '../api.ts';

export interface UsageOptions {
  /** Adds `usage.speculation`, which OpenAI does not have. */
  readonly usageDetails: boolean;
}

/** Of all choices: the prompt counts once. */
export function sumOfUsage(finishes: readonly FinishDelta[]) {
  const sum = (count: (finish: FinishDelta) => number): number =>
    finishes.reduce((total, finish) => total + count(finish), 0);
  const [first] = finishes;
  return {
    promptTokens: first?.usage.promptTokens ?? 0,
    cachedTokens: first?.usage.cachedTokens ?? 0,
    completionTokens: sum(({ usage }) => usage.completionTokens),
    reasoningTokens: sum(({ usage }) => usage.reasoningTokens),
    steps: sum(({ stats }) => stats.steps),
    draftedTokens: sum(({ stats }) => stats.draftedTokens),
    acceptedTokens: sum(({ stats }) => stats.acceptedTokens),
  };
}

export function usageBody(finishes: readonly FinishDelta[], { usageDetails }: UsageOptions) {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = sumOfUsage(finishes);
  const [first] = finishes;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    completion_tokens_details: { reasoning_tokens: reasoningTokens },
    ...(usageDetails && first !== undefined ? { speculation: speculationBody(first.stats) } : {}),
  };
}

/** What drafts did for one answer. Times are of the steps that the answer took part in, milliseconds. */
export function speculationBody({ steps, draftedTokens, acceptedTokens, speculation }: GenerationStats) {
  const { drafts, bySource, byDepth, predictedMs, measuredMs } = speculation;
  return {
    steps,
    drafts,
    drafted_tokens: draftedTokens,
    accepted_tokens: acceptedTokens,
    mean_accepted_length: meanAcceptedLength(speculation),
    by_source: bySource,
    by_depth: byDepth,
    predicted_ms: predictedMs,
    measured_ms: measuredMs,
  };
}

/** A comment that clients skip and benchmarks may read: what was reused, and how many steps it took. */
export function usageComment(finishes: readonly FinishDelta[]) {
  const sum = sumOfUsage(finishes);
  return {
    prompt_tokens: sum.promptTokens,
    cached_tokens: sum.cachedTokens,
    completion_tokens: sum.completionTokens,
    steps: sum.steps,
    drafted_tokens: sum.draftedTokens,
    accepted_tokens: sum.acceptedTokens,
  };
}
