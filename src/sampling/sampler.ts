/**
 * Logits to token. Order as in vLLM: bias and penalties, then the mask of a constrained answer, then temperature, then top-k,
 * top-p and min-p on the distribution that is left, then one draw. Equal logits give the same token on every machine: ties are
 * ordered by id.
 */
import { assert, UserError } from '../util/index.ts';
import type { SamplingParams } from './params.ts';
import { uniform } from './random.ts';

export interface Logprob {
  readonly id: number;
  readonly logprob: number;
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

export class Sampler {
  readonly #params: SamplingParams;
  /** Occurrences in the answer. */
  readonly #answer = new Map<number, number>();
  readonly #prompt: ReadonlySet<number>;

  constructor(params: SamplingParams, prompt: Int32Array) {
    this.#params = params;
    this.#prompt = params.repetitionPenalty === 1 ? new Set() : new Set(prompt);
  }

  /** True when the token is the largest logit as it comes: no row has to be read. */
  get isPlainGreedy(): boolean {
    const p = this.#params;
    const untouched = p.repetitionPenalty === 1 && p.presencePenalty === 0 && p.frequencyPenalty === 0;
    return p.temperature === 0 && untouched && p.logitBias.size === 0;
  }

  /** The token of an answer; penalties of the tokens that follow count it. */
  accept(id: number): void {
    this.#answer.set(id, (this.#answer.get(id) ?? 0) + 1);
  }

  /**
   * Chooses the token at `position` of the sequence from its logits [usable vocabulary].
   * `mask`: a bit per token, the lowest of word 0 is token 0; only tokens whose bit is set are chosen. null = all may be.
   * Throws when no logit is a number, or no token may be chosen.
   */
  sample(logits: Float32Array, position: number, mask: Uint32Array | null = null): number {
    const adjusted = this.#adjust(logits);
    const values = mask === null ? adjusted : masked(adjusted, mask);
    const { temperature, seed } = this.#params;
    return temperature === 0 ? largest(values) : this.#draw(values, uniform(seed, position));
  }

  #adjust(logits: Float32Array): Float32Array {
    if (this.isPlainGreedy) return logits;
    const { logitBias, repetitionPenalty, presencePenalty, frequencyPenalty } = this.#params;
    const values = logits.slice();
    const change = (id: number, value: number): void => {
      if (id < values.length) values[id] = value;
    };
    if (repetitionPenalty !== 1) {
      for (const id of new Set([...this.#prompt, ...this.#answer.keys()])) {
        const value = values[id] as number;
        change(id, value > 0 ? value / repetitionPenalty : value * repetitionPenalty);
      }
    }
    for (const [id, count] of this.#answer)
      change(id, (values[id] as number) - presencePenalty - frequencyPenalty * count);
    for (const [id, bias] of logitBias) change(id, (values[id] as number) + bias);
    return values;
  }

  #draw(logits: Float32Array, u: number): number {
    const { temperature, topK, topP, minP } = this.#params;
    const max = logits[largest(logits)] as number;
    const limited = topK > 0 || topP < 1 || minP > 0;
    // Candidates best first, ties by id; without a limit the order of ids does as well and needs no sorting.
    const ids = limited ? bestFirst(logits, topK > 0 ? topK : logits.length) : Int32Array.from(logits.keys());
    const weights = Float64Array.from(ids, (id) => Math.exp(((logits[id] as number) - max) / temperature));
    let count = ids.length;
    let total = sumOf(weights, count);
    if (topP < 1) {
      let mass = 0;
      for (let i = 0; i < count; i++) {
        mass += weights[i] as number;
        if (mass >= topP * total) count = i + 1;
      }
      total = sumOf(weights, count);
    }
    if (minP > 0) {
      while (count > 1 && (weights[count - 1] as number) < minP * (weights[0] as number)) count--;
      total = sumOf(weights, count);
    }
    let rest = u * total;
    for (let i = 0; i < count; i++) {
      rest -= weights[i] as number;
      if (rest < 0) return ids[i] as number;
    }
    // Rounding left a crumb: the last candidate that has any weight.
    let last = count - 1;
    while (last > 0 && weights[last] === 0) last--;
    return ids[last] as number;
  }
}

/** The logits with what is ruled out at -Infinity; never all of them, whatever the model says of those that are left. */
function masked(logits: Float32Array, mask: Uint32Array): Float32Array {
  const values = new Float32Array(logits.length).fill(Number.NEGATIVE_INFINITY);
  let first = -1;
  let isPossible = false;
  for (let word = 0; 32 * word < values.length; word++) {
    // Most words of most masks are empty.
    for (let bits = mask[word] ?? 0; bits !== 0; bits &= bits - 1) {
      const id = 32 * word + 31 - Math.clz32(bits & -bits);
      if (id >= values.length) break;
      if (first < 0) first = id;
      const value = logits[id] as number;
      if (!(value > Number.NEGATIVE_INFINITY)) continue;
      values[id] = value;
      isPossible = true;
    }
  }
  assert(first >= 0, 'a mask leaves at least one token');
  if (!isPossible) values[first] = 0;
  return values;
}

function sumOf(weights: Float64Array, count: number): number {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += weights[i] as number;
  return sum;
}

/** Index of the largest value, the lowest among equals; NaN never wins. */
function largest(values: Float32Array): number {
  let best = -1;
  for (let i = 0; i < values.length; i++) {
    const value = values[i] as number;
    if (!Number.isNaN(value) && (best < 0 || value > (values[best] as number))) best = i;
  }
  if (best < 0) throw new Error('no logit is a number');
  return best;
}

/** The `k` largest ids, best first, ties by id. Keeps a heap when k is small. */
export function bestFirst(values: Float32Array, k: number): Int32Array {
  const before = (a: number, b: number): number => (values[b] as number) - (values[a] as number) || a - b;
  const isNumber = (id: number): boolean => !Number.isNaN(values[id] as number);
  if (k >= values.length / 8)
    return Int32Array.from([...values.keys()].filter(isNumber).sort(before).slice(0, k));
  // A sorted list of the best so far: most values fail its last entry at once.
  const best: number[] = [];
  for (let id = 0; id < values.length; id++) {
    if (!isNumber(id) || (best.length === k && before(best[k - 1] as number, id) <= 0)) continue;
    let low = 0;
    let high = best.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (before(best[middle] as number, id) <= 0) low = middle + 1;
      else high = middle;
    }
    best.splice(low, 0, id);
    if (best.length > k) best.pop();
  }
  return Int32Array.from(best);
}

/** Log-probability of `id` and of the `count` best tokens, from the raw logits. */
export function topLogprobs(logits: Float32Array, id: number, count: number): Logprob {
  assert(id >= 0 && id < logits.length, `token ${id} of ${logits.length}`);
  const max = logits[largest(logits)] as number;
  let sum = 0;
  for (const value of logits) sum += Number.isNaN(value) ? 0 : Math.exp(value - max);
  const logprob = (token: number): number => (logits[token] as number) - max - Math.log(sum);
  const top =
    count === 0 ? [] : [...bestFirst(logits, count)].map((token) => ({ id: token, logprob: logprob(token) }));
  return { id, logprob: logprob(id), top };
}

const ranges: Partial<Record<keyof SamplingParams, { low: number; high: number; whole: boolean }>> = {
  temperature: { low: 0, high: 100, whole: false },
  topK: { low: -1, high: 2 ** 31, whole: true },
  topP: { low: 0, high: 1, whole: false },
  minP: { low: 0, high: 1, whole: false },
  repetitionPenalty: { low: 0.01, high: 100, whole: false },
  presencePenalty: { low: -2, high: 2, whole: false },
  frequencyPenalty: { low: -2, high: 2, whole: false },
  seed: { low: 0, high: 2 ** 32 - 1, whole: true },
};

const apiNames: Partial<Record<keyof SamplingParams, string>> = {
  topK: 'top_k',
  topP: 'top_p',
  minP: 'min_p',
  repetitionPenalty: 'repetition_penalty',
  presencePenalty: 'presence_penalty',
  frequencyPenalty: 'frequency_penalty',
};

/** Refuses values out of range; `param` of the error is the field's name in the API. */
export function validateSampling(params: SamplingParams): SamplingParams {
  for (const [key, range] of Object.entries(ranges)) {
    const value = params[key as keyof SamplingParams] as number;
    const fits =
      Number.isFinite(value) &&
      value >= range.low &&
      value <= range.high &&
      (!range.whole || Number.isInteger(value));
    const param = apiNames[key as keyof SamplingParams] ?? key;
    const kind = range.whole ? 'a whole number' : 'a number';
    if (!fits)
      throw new UserError(
        'invalid_request',
        `${param} is ${value}, expected ${kind} from ${range.low} to ${range.high}`,
        { param },
      );
  }
  for (const [id, bias] of params.logitBias) {
    if (!Number.isInteger(id) || id < 0)
      throw new UserError('invalid_request', `logit_bias names the token ${id}`, { param: 'logit_bias' });
    if (!(bias >= -100 && bias <= 100))
      throw new UserError('invalid_request', `logit_bias of token ${id} is ${bias}, expected -100 to 100`, {
        param: 'logit_bias',
      });
  }
  return { ...params, topK: Math.max(0, params.topK) };
}
