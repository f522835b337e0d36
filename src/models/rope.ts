/** Inverse frequencies of rotary embedding, plain and YaRN (transformers, modeling_rope_utils). */
import type { RopeSpec } from '../backends/index.ts';
import type { Qwen35Config } from '../checkpoint/index.ts';

export function ropeOf({
  rotaryDim,
  ropeTheta,
  yarn,
}: Pick<Qwen35Config, 'rotaryDim' | 'ropeTheta' | 'yarn'>): RopeSpec {
  const half = rotaryDim / 2;
  const plain = Array.from({ length: half }, (_, i) => ropeTheta ** (-(2 * i) / rotaryDim));
  if (yarn === null) return { rotaryDim, invFreq: Float32Array.from(plain), scale: 1 };
  const { factor, originalMaxPositions, betaFast, betaSlow, attentionFactor } = yarn;
  const correction = (beta: number): number =>
    (rotaryDim * Math.log(originalMaxPositions / (beta * 2 * Math.PI))) / (2 * Math.log(ropeTheta));
  const low = Math.max(Math.floor(correction(betaFast)), 0);
  const high = Math.min(Math.ceil(correction(betaSlow)), rotaryDim - 1);
  const span = high === low ? 0.001 : high - low;
  const mixed = plain.map((frequency, i) => {
    const ramp = Math.min(1, Math.max(0, (i - low) / span));
    return (1 - ramp) * frequency + (ramp * frequency) / factor;
  });
  return {
    rotaryDim,
    invFreq: Float32Array.from(mixed),
    scale: attentionFactor ?? (factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1),
  };
}
