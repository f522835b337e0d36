/** What an answer cost: OpenAI's `usage`, and on request what drafts did for it. */
import type { Answer } from '../../completion/index.ts';
import { type GenerationStats, meanAcceptedLength } from '../../engine/index.ts';

export interface UsageOptions {
  /** Adds `usage.speculation`, which OpenAI does not have. */
  readonly usageDetails: boolean;
}

type Finish = Answer['finish'];

export function usageBody({ usage, stats }: Finish, { usageDetails }: UsageOptions) {
  const { promptTokens, cachedTokens, completionTokens } = usage;
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    ...(usageDetails ? { speculation: speculationBody(stats) } : {}),
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
export function usageComment({ usage, stats }: Finish) {
  return {
    prompt_tokens: usage.promptTokens,
    cached_tokens: usage.cachedTokens,
    completion_tokens: usage.completionTokens,
    steps: stats.steps,
    drafted_tokens: stats.draftedTokens,
    accepted_tokens: stats.acceptedTokens,
  };
}
