import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  defaultSampling,
  Sampler,
  type SamplingParams,
  topLogprobs,
  uniform,
  validateSampling,
} from './index.ts';
import { bestFirst } from './sampler.ts';

const none = new Int32Array(0);
const sampler = (params: Partial<SamplingParams>, prompt = none) =>
  new Sampler({ ...defaultSampling, ...params }, prompt);

/** Shares of each token over many positions. */
function shares(params: Partial<SamplingParams>, logits: number[], draws = 20_000): number[] {
  const counts = logits.map(() => 0);
  const one = sampler({ temperature: 1, ...params });
  for (let i = 0; i < draws; i++) {
    const id = one.sample(Float32Array.from(logits), i);
    counts[id] = (counts[id] ?? 0) + 1;
  }
  return counts.map((count) => count / draws);
}

describe('random numbers', () => {
  it('depend on seed and position alone and fill [0, 1) evenly', () => {
    for (const seed of [0, 1, 42, 2 ** 32 - 1]) {
      const bins = new Array(20).fill(0);
      for (let i = 0; i < 20_000; i++) bins[Math.floor(uniform(seed, i) * 20)]++;
      const chi = bins.reduce((sum, n) => sum + (n - 1000) ** 2 / 1000, 0);
      expect(chi).toBeLessThan(50);
    }
    expect(uniform(7, 9)).toBe(uniform(7, 9));
    expect(uniform(7, 9)).not.toBe(uniform(8, 9));
  });

  it('are unrelated for neighbouring seeds', () => {
    let sum = 0;
    for (let i = 0; i < 10_000; i++) sum += (uniform(5, i) - 0.5) * (uniform(6, i) - 0.5);
    expect(Math.abs(sum / 10_000)).toBeLessThan(0.005);
  });
});

describe('sampler', () => {
  it('takes the largest logit at temperature 0, the lowest id among equals, never a NaN', () => {
    expect(sampler({}).sample(Float32Array.of(1, 3, 3, 2), 0)).toBe(1);
    expect(sampler({}).sample(Float32Array.of(Number.NaN, 1, 5), 0)).toBe(2);
    expect(() => sampler({}).sample(Float32Array.of(Number.NaN), 0)).toThrow(/no logit/);
  });

  it('draws in proportion to the softmax', () => {
    const logits = [0, 1, 2, Number.NEGATIVE_INFINITY];
    const total = 1 + Math.E + Math.E ** 2;
    shares({}, logits).forEach((share, i) => {
      expect(share).toBeCloseTo(i === 3 ? 0 : Math.exp(logits[i] ?? 0) / total, 1);
    });
    expect(shares({ temperature: 0.01 }, logits)[2]).toBe(1);
  });

  it('keeps the k best, the smallest set with mass p, and what is not far below the best', () => {
    const logits = [3, 2, 1, 0];
    expect(shares({ topK: 2 }, logits).map((share) => share > 0)).toEqual([true, true, false, false]);
    expect(shares({ topP: 0.8 }, logits).map((share) => share > 0)).toEqual([true, true, false, false]);
    expect(shares({ topP: 0.6 }, logits).map((share) => share > 0)).toEqual([true, false, false, false]);
    expect(shares({ minP: 0.1 }, logits).map((share) => share > 0)).toEqual([true, true, true, false]);
  });

  it('lowers what has occurred', () => {
    const logits = Float32Array.of(2, 1.9, -1);
    const repeated = sampler({ repetitionPenalty: 2 }, Int32Array.of(0));
    expect(repeated.sample(logits, 0)).toBe(1);
    const present = sampler({ presencePenalty: 0.5 });
    expect(present.sample(logits, 0)).toBe(0);
    present.accept(0);
    expect(present.sample(logits, 1)).toBe(1);
    const frequent = sampler({ frequencyPenalty: 0.06 });
    frequent.accept(0);
    expect(frequent.sample(logits, 0)).toBe(0);
    frequent.accept(0);
    expect(frequent.sample(logits, 0)).toBe(1);
  });

  it('adds the bias of a token', () => {
    const biased = sampler({ logitBias: new Map([[2, 10]]) });
    expect(biased.isPlainGreedy).toBe(false);
    expect(biased.sample(Float32Array.of(1, 2, 3 - 5), 0)).toBe(2);
  });

  it('reports log-probabilities of the raw logits', () => {
    const { logprob, top } = topLogprobs(Float32Array.of(0, 1, 2), 0, 2);
    expect(Math.exp(logprob)).toBeCloseTo(1 / (1 + Math.E + Math.E ** 2));
    expect(top.map(({ id }) => id)).toEqual([2, 1]);
  });

  it('finds the best without sorting everything, as sorting would', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: -3, max: 3 }), { minLength: 1, maxLength: 200 }),
        fc.integer({ min: 1, max: 30 }),
        (values, k) => {
          const sorted = [...values.keys()].sort((a, b) => (values[b] ?? 0) - (values[a] ?? 0) || a - b);
          expect([...bestFirst(Float32Array.from(values), k)]).toEqual(sorted.slice(0, k));
        },
      ),
    );
  });

  it('refuses values out of range and names the field and the limit', () => {
    const check = (params: Partial<SamplingParams>) => () =>
      validateSampling({ ...defaultSampling, ...params });
    expect(check({ temperature: -1 })).toThrow(/temperature is -1, expected a number from 0 to 100/);
    expect(check({ topP: Number.NaN })).toThrow(/top_p is NaN/);
    expect(check({ seed: 1.5 })).toThrow(/seed is 1.5, expected a whole number/);
    expect(check({ logitBias: new Map([[1, 101]]) })).toThrow(/logit_bias of token 1 is 101/);
    expect(check({ topK: -1 })().topK).toBe(0);
  });
});
