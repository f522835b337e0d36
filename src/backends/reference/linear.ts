/**
 * out[r, o] = scale * sum_i W[o, i] x[r, i]. Plain weights: one sum in double precision, in order of i, rounded once to fp32.
 * NVFP4: activations in int8 per group of 128, integer sums within a block of 16; what follows is in double precision,
 * blocks and groups in order, rounded once. A row's result depends on that row alone.
 */
import type { DecodedWeight } from './weights.ts';

const block = 16;
/** Inputs that share one activation scale. The last group of a row may be shorter. */
export const activationGroup = 128;

export function linear(out: Float32Array, weight: DecodedWeight, x: Float32Array, rows: number): void {
  const { outDim, inDim } = weight;
  for (let r = 0; r < rows; r++) {
    const row = x.subarray(r * inDim, (r + 1) * inDim);
    const y = out.subarray(r * outDim, (r + 1) * outDim);
    if (weight.kind === 'plain') plainRow(y, weight.values, row, weight.scale);
    else nvfp4Row(y, weight, row);
  }
}

/** Four outputs at a time: independent sums keep the processor busy, each in the same order. */
function plainRow(y: Float32Array, w: Float32Array, x: Float32Array, scale: number): void {
  const inDim = x.length;
  const whole = y.length - (y.length % 4);
  for (let o = 0; o < whole; o += 4) {
    const at0 = o * inDim;
    const at1 = at0 + inDim;
    const at2 = at1 + inDim;
    const at3 = at2 + inDim;
    let sum0 = 0;
    let sum1 = 0;
    let sum2 = 0;
    let sum3 = 0;
    for (let i = 0; i < inDim; i++) {
      const xi = x[i] as number;
      sum0 += (w[at0 + i] as number) * xi;
      sum1 += (w[at1 + i] as number) * xi;
      sum2 += (w[at2 + i] as number) * xi;
      sum3 += (w[at3 + i] as number) * xi;
    }
    y[o] = scale * sum0;
    y[o + 1] = scale * sum1;
    y[o + 2] = scale * sum2;
    y[o + 3] = scale * sum3;
  }
  for (let o = whole; o < y.length; o++) {
    let sum = 0;
    for (let i = 0; i < inDim; i++) sum += (w[o * inDim + i] as number) * (x[i] as number);
    y[o] = scale * sum;
  }
}

function nvfp4Row(
  y: Float32Array,
  weight: DecodedWeight & { readonly kind: 'nvfp4' },
  x: Float32Array,
): void {
  const { inDim, doubled, blockScales, scale } = weight;
  const blocks = inDim / block;
  const { codes, scales } = quantizeActivations(x);
  for (let o = 0; o < y.length; o++) {
    let sum = 0;
    for (let from = 0; from < blocks; from += activationGroup / block) {
      const to = Math.min(from + activationGroup / block, blocks);
      let group = 0;
      for (let b = from; b < to; b++) {
        const at = b * block;
        let dot = 0;
        for (let i = at; i < at + block; i++)
          dot += (codes[i] as number) * (doubled[o * inDim + i] as number);
        group += dot * (blockScales[o * blocks + b] as number);
      }
      sum += group * (scales[(from * block) / activationGroup] as number);
    }
    y[o] = (scale * sum) / 2;
  }
}

/** Int8 codes of a row, and max|x| / 127 of each group; the code is x / scale, to the nearest, ties to even. */
export function quantizeActivations(x: Float32Array): { codes: Int8Array; scales: Float32Array } {
  const codes = new Int8Array(x.length);
  const scales = new Float32Array(Math.ceil(x.length / activationGroup));
  for (let g = 0; g < scales.length; g++) {
    const from = g * activationGroup;
    const to = Math.min(from + activationGroup, x.length);
    let max = 0;
    for (let i = from; i < to; i++) max = Math.max(max, Math.abs(x[i] as number));
    scales[g] = max / 127;
    const perUnit = max === 0 ? 0 : Math.fround(127 / max);
    for (let i = from; i < to; i++) codes[i] = roundTiesToEven(Math.fround((x[i] as number) * perUnit));
  }
  return { codes, scales };
}

/** Exact for |x| < 2^51: the sum has no fraction bits left, and IEEE addition rounds ties to even. */
function roundTiesToEven(x: number): number {
  const shift = 1.5 * 2 ** 52;
  return x + shift - shift;
}
