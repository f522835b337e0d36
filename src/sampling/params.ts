/** How a token is chosen from its logits. All fields are always present: `defaultSampling` is greedy. */
export interface SamplingParams {
  /** 0 = greedy. */
  readonly temperature: number;
  /** 0 = off. */
  readonly topK: number;
  /** 1 = off. */
  readonly topP: number;
  /** 0 = off. */
  readonly minP: number;
  /** 1 = off; applies to prompt and answer tokens. */
  readonly repetitionPenalty: number;
  /** 0 = off; answer tokens only (OpenAI). */
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** Token id -> added to the logit. */
  readonly logitBias: ReadonlyMap<number, number>;
  /** Unsigned 32-bit; the random number of an emitted token depends on (seed, its position) alone. */
  readonly seed: number;
}

export const defaultSampling: SamplingParams = {
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  logitBias: new Map(),
  seed: 0,
};
