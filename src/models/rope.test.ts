import { describe, expect, it } from 'vitest';
import { ropeOf } from './index.ts';

const yarn = { factor: 4, originalMaxPositions: 262_144, betaFast: 32, betaSlow: 1, attentionFactor: null };

describe('rotary frequencies', () => {
  it('fall from 1 by the rotated width, not by the head', () => {
    const { invFreq, scale, rotaryDim } = ropeOf({ rotaryDim: 64, ropeTheta: 1e7, yarn: null });
    expect([invFreq.length, scale, rotaryDim]).toEqual([32, 1, 64]);
    expect(invFreq[0]).toBe(1);
    expect(invFreq[16]).toBeCloseTo(1 / Math.sqrt(1e7), 8);
    expect((invFreq[31] as number) * 1e7 ** (62 / 64)).toBeCloseTo(1, 5);
  });

  it('are stretched by YaRN where they turn less than once over the original context', () => {
    const plain = ropeOf({ rotaryDim: 64, ropeTheta: 1e7, yarn: null }).invFreq;
    const { invFreq, scale } = ropeOf({ rotaryDim: 64, ropeTheta: 1e7, yarn });
    const ratio = [...invFreq].map((value, i) => value / (plain[i] as number));
    // corr(32) = 14.24 and corr(1) = 21.12: full frequency to channel 14, a quarter from channel 22, a straight ramp between.
    expect(ratio.slice(0, 15).every((r) => r === 1)).toBe(true);
    expect(ratio[18]).toBeCloseTo(1 - 0.5 * 0.75, 5);
    expect(ratio.slice(22).every((r) => Math.abs(r - 0.25) < 1e-6)).toBe(true);
    expect(scale).toBeCloseTo(0.1 * Math.log(4) + 1, 12);
  });

  it('take the attention factor of the config where there is one', () => {
    expect(ropeOf({ rotaryDim: 64, ropeTheta: 1e7, yarn: { ...yarn, attentionFactor: 1.5 } }).scale).toBe(
      1.5,
    );
  });
});
