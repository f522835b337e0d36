/** Rotary frequencies (qwen35-model 2.4). Text has one position per token, so the three MRoPE axes are one. */
import type { RopeSpec } from '../backends/index.ts';
import type { ModelConfig, YarnConfig } from '../checkpoint/index.ts';

type RopeConfig = Pick<ModelConfig, 'rotaryDim' | 'ropeTheta' | 'yarn'>;

export function ropeOf({ rotaryDim, ropeTheta, yarn }: RopeConfig): RopeSpec {
  const plain = Array.from({ length: rotaryDim / 2 }, (_, i) => ropeTheta ** ((-2 * i) / rotaryDim));
  if (yarn === null) return { rotaryDim, invFreq: Float32Array.from(plain), scale: 1 };
  const ramp = yarnRamp(rotaryDim, ropeTheta, yarn);
  const invFreq = Float32Array.from(
    plain,
    (frequency, i) => (1 - ramp(i)) * frequency + (ramp(i) * frequency) / yarn.factor,
  );
  return { rotaryDim, invFreq, scale: yarn.attentionFactor ?? 0.1 * Math.log(yarn.factor) + 1 };
}

/** 0 = a frequency stays, 1 = it is stretched by the whole factor. */
function yarnRamp(rotaryDim: number, theta: number, yarn: YarnConfig): (i: number) => number {
  /** The channel that turns `rotations` times over the original context. */
  const channel = (rotations: number): number =>
    (rotaryDim * Math.log(yarn.originalMaxPositions / (2 * Math.PI * rotations))) / (2 * Math.log(theta));
  const low = Math.max(0, Math.floor(channel(yarn.betaFast)));
  const high = Math.min(rotaryDim - 1, Math.ceil(channel(yarn.betaSlow)));
  const width = low === high ? 0.001 : high - low;
  return (i) => Math.min(1, Math.max(0, (i - low) / width));
}
