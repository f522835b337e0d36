/**
 * NVFP4: E2M1 codes in blocks of 16 along the input dimension, one E4M3 scale a block, one fp32 scale a tensor:
 * w = e2m1(code) * blockScale * scale2 (the ModelOpt convention). Two codes a byte, element 2i in the low nibble.
 */
import { assert } from '../util/index.ts';
import { e4m3Decode, e4m3Encode, e4m3Max } from './fp8.ts';

export const nvfp4Block = 16;

/** Value of each 4-bit code; codes 8 to 15 are the negatives. */
export const e2m1Values: Float32Array = Float32Array.of(
  0,
  0.5,
  1,
  1.5,
  2,
  3,
  4,
  6,
  -0,
  -0.5,
  -1,
  -1.5,
  -2,
  -3,
  -4,
  -6,
);

/** Nearest code, ties to the even code, saturating at 6; the sign bit is set for values below zero only. */
export function e2m1Encode(value: number): number {
  const size = Math.abs(value);
  const sign = value < 0 ? 8 : 0;
  if (size <= 0.25) return sign;
  if (size < 0.75) return sign | 1;
  if (size <= 1.25) return sign | 2;
  if (size < 1.75) return sign | 3;
  if (size <= 2.5) return sign | 4;
  if (size < 3.5) return sign | 5;
  if (size <= 5) return sign | 6;
  return sign | 7;
}

export interface Nvfp4 {
  /** [outDim, inDim / 2] */
  readonly codes: Uint8Array;
  /** E4M3 codes [outDim, inDim / 16] */
  readonly scales: Uint8Array;
  readonly scale2: number;
}

/** Largest magnitude that 4-bit codes and block scales together can express, per unit of scale2. */
const codeMax = 6;

function largest(values: Float32Array, from: number, count: number): number {
  let max = 0;
  for (let i = from; i < from + count; i++) max = Math.max(max, Math.abs(values[i] as number));
  return max;
}

/** Block scale of ModelOpt: a zero block gets 1, else the code of amax / (6 * scale2), at least 2^-9. */
function blockScale(amax: number, scale2: number): number {
  const wanted = amax / (codeMax * scale2);
  return e4m3Encode(wanted === 0 || Number.isNaN(wanted) ? 1 : Math.max(wanted, 2 ** -9));
}

/** Quantizes w [outDim, inDim] as ModelOpt does: scale2 = amax / (6 * 448). inDim is a multiple of 16. */
export function quantizeNvfp4(w: Float32Array, outDim: number, inDim: number): Nvfp4 {
  assert(inDim % nvfp4Block === 0, `inDim ${inDim} is a multiple of ${nvfp4Block}`);
  const amax = largest(w, 0, w.length);
  const scale2 = Math.fround(amax === 0 ? 1 : amax / (codeMax * e4m3Max));
  const codes = new Uint8Array((outDim * inDim) / 2);
  const scales = new Uint8Array((outDim * inDim) / nvfp4Block);
  for (let block = 0; block < scales.length; block++) {
    const from = block * nvfp4Block;
    const scale = blockScale(largest(w, from, nvfp4Block), scale2);
    scales[block] = scale;
    encodeBlock(w, from, (e4m3Decode[scale] as number) * scale2, codes);
  }
  return { codes, scales, scale2 };
}

function encodeBlock(w: Float32Array, from: number, unit: number, codes: Uint8Array): void {
  for (let i = from; i < from + nvfp4Block; i += 2)
    codes[i >> 1] = e2m1Encode((w[i] as number) / unit) | (e2m1Encode((w[i + 1] as number) / unit) << 4);
}

/** [outDim * inDim] values. */
export function dequantizeNvfp4({ codes, scales, scale2 }: Nvfp4): Float32Array {
  const out = new Float32Array(codes.length * 2);
  for (let i = 0; i < out.length; i++) {
    const byte = codes[i >> 1] as number;
    const code = i % 2 === 0 ? byte & 15 : byte >> 4;
    out[i] = (e2m1Values[code] as number) * (e4m3Decode[scales[i >> 4] as number] as number) * scale2;
  }
  return out;
}

/**
 * Activations of W4A4: x [rows, inDim] to codes (one per byte) and block scales, with the static `inputScale`.
 */
export function quantizeActivationsNvfp4(
  x: Float32Array,
  inputScale: number,
): { codes: Uint8Array; scales: Uint8Array } {
  const codes = new Uint8Array(x.length);
  const scales = new Uint8Array(x.length / nvfp4Block);
  for (let block = 0; block < scales.length; block++) {
    const from = block * nvfp4Block;
    const scale = e4m3Encode(largest(x, from, nvfp4Block) / (codeMax * inputScale));
    scales[block] = scale;
    const unit = (e4m3Decode[scale] as number) * inputScale;
    for (let i = from; i < from + nvfp4Block; i++)
      codes[i] = unit === 0 ? 0 : e2m1Encode((x[i] as number) / unit);
  }
  return { codes, scales };
}
