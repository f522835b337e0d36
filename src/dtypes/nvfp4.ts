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

/** All boundaries between codes are multiples of 1/4, and every magnitude from 6 on has the largest code. */
const quarters = 24;

/** Magnitude code of k quarters, at 2k, and of what lies between k and k + 1 quarters, at 2k + 1. */
const codeOfQuarters = Uint8Array.from({ length: 2 * quarters + 2 }, (_, i) => {
  const size = i / 8;
  let code = 0;
  while (code < 7) {
    const boundary = ((e2m1Values[code] as number) + (e2m1Values[code + 1] as number)) / 2;
    // A tie goes to the even code.
    if (size < boundary || (size === boundary && code % 2 === 0)) break;
    code++;
  }
  return code;
});

/** Nearest code, ties to the even code, saturating at 6; the sign bit is set for values below zero only. */
export function e2m1Encode(value: number): number {
  const size = Math.min(Math.abs(value) * 4, quarters);
  const whole = size | 0;
  return (codeOfQuarters[2 * whole + (size > whole ? 1 : 0)] as number) | (value < 0 ? 8 : 0);
}

export interface Nvfp4 {
  /** [outDim, inDim / 2] */
  readonly codes: Uint8Array;
  /** E4M3 codes [outDim, inDim / 16] */
  readonly scales: Uint8Array;
  readonly scale2: number;
}

/** Largest magnitude of an E2M1 code. */
const codeMax = 6;

/**
 * How block scales are chosen. `modelopt`: the block's largest value becomes code 6. `least-error`: of the E4M3 codes from the one that
 * maps it to 6 up to the one that maps it to 4, and those just below, the one with the smallest squared error (the idea of
 * four-over-six); the tensor scale leaves room for that.
 */
export type ScaleChoice = 'modelopt' | 'least-error';

/** Block scale of the tensor's largest value; below 448 / 1.5, a block may still take the scale that maps it to 4. */
const topScale: Readonly<Record<ScaleChoice, number>> = { modelopt: e4m3Max, 'least-error': 256 };

/** Codes tried below the one of amax / 6: the largest value saturates, the rest of the block gains. */
const codesBelow = 1;

/** The largest magnitude; NaN if there is one. */
export function absMax(values: Float32Array, from = 0, count: number = values.length): number {
  let max = 0;
  for (let i = from; i < from + count; i++) max = Math.max(max, Math.abs(values[i] as number));
  return max;
}

/** scale2 of a tensor with this largest magnitude; 1 where that is zero, or too small for a scale. */
export function tensorScale(amax: number, choice: ScaleChoice): number {
  return Math.fround(amax / (codeMax * topScale[choice])) || 1;
}

/** Block scale of ModelOpt: a zero block gets 1, else the code of amax / (6 * scale2), at least 2^-9. */
function blockScale(amax: number, scale2: number): number {
  const wanted = amax / (codeMax * scale2);
  return e4m3Encode(wanted === 0 || Number.isNaN(wanted) ? 1 : Math.max(wanted, 2 ** -9));
}

export interface QuantizeOptions {
  readonly choice?: ScaleChoice;
  /** Of the whole tensor, when `w` is a part of it; default: that of `w`. */
  readonly scale2?: number;
}

/** Quantizes w [outDim, inDim]; by default to the bytes that ModelOpt writes. inDim is a multiple of 16, values are finite. */
export function quantizeNvfp4(
  w: Float32Array,
  outDim: number,
  inDim: number,
  { choice = 'modelopt', scale2 = tensorScale(absMax(w), choice) }: QuantizeOptions = {},
): Nvfp4 {
  assert(inDim % nvfp4Block === 0, `inDim ${inDim} is a multiple of ${nvfp4Block}`);
  assert(w.length === outDim * inDim, `${w.length} values are [${outDim}, ${inDim}]`);
  const codes = new Uint8Array((outDim * inDim) / 2);
  const scales = new Uint8Array((outDim * inDim) / nvfp4Block);
  for (let block = 0; block < scales.length; block++) {
    const from = block * nvfp4Block;
    const amax = absMax(w, from, nvfp4Block);
    let scale = blockScale(amax, scale2);
    if (choice === 'least-error' && amax > 0) scale = leastErrorScale(w, from, amax, scale2);
    scales[block] = scale;
    encodeBlock(w, from, (e4m3Decode[scale] as number) * scale2, codes);
  }
  return { codes, scales, scale2 };
}

function leastErrorScale(w: Float32Array, from: number, amax: number, scale2: number): number {
  const six = blockScale(amax, scale2);
  const last = blockScale((amax * codeMax) / 4, scale2);
  let best = six;
  let least = blockError(w, from, (e4m3Decode[six] as number) * scale2, Number.POSITIVE_INFINITY);
  for (let code = Math.max(1, six - codesBelow); code <= last; code++) {
    if (code === six) continue;
    const error = blockError(w, from, (e4m3Decode[code] as number) * scale2, least);
    if (error < least) {
      best = code;
      least = error;
    }
  }
  return best;
}

/** Squared error of a block at this unit; any number above `limit` once it exceeds that. */
function blockError(w: Float32Array, from: number, unit: number, limit: number): number {
  const perQuarter = 4 / unit;
  const bound = limit * perQuarter * perQuarter;
  let sum = 0;
  for (let i = from; i < from + nvfp4Block; i++) {
    const size = Math.abs(w[i] as number) * perQuarter;
    const difference = size - (nearestQuarters[Math.min(size, quarters) | 0] as number);
    sum += difference * difference;
    if (sum > bound) break;
  }
  return sum / (perQuarter * perQuarter);
}

/** The magnitude, in quarters, nearest to anything from k to k + 1 quarters; a tie has the same error either way. */
const nearestQuarters = Float64Array.from(
  { length: quarters + 1 },
  (_, k) => 4 * (e2m1Values[codeOfQuarters[2 * k + 1] as number] as number),
);

function encodeBlock(w: Float32Array, from: number, unit: number, codes: Uint8Array): void {
  for (let i = from; i < from + nvfp4Block; i += 2)
    codes[i / 2] = e2m1Encode((w[i] as number) / unit) | (e2m1Encode((w[i + 1] as number) / unit) << 4);
}

/** [outDim * inDim] values. */
export function dequantizeNvfp4({ codes, scales, scale2 }: Nvfp4): Float32Array {
  const out = new Float32Array(codes.length * 2);
  for (let block = 0; block < scales.length; block++) {
    const scale = e4m3Decode[scales[block] as number] as number;
    for (let i = block * 8; i < block * 8 + 8; i++) {
      const byte = codes[i] as number;
      out[2 * i] = (e2m1Values[byte & 15] as number) * scale * scale2;
      out[2 * i + 1] = (e2m1Values[byte >> 4] as number) * scale * scale2;
    }
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
    const scale = e4m3Encode(absMax(x, from, nvfp4Block) / (codeMax * inputScale));
    scales[block] = scale;
    const unit = (e4m3Decode[scale] as number) * inputScale;
    for (let i = from; i < from + nvfp4Block; i++)
      codes[i] = unit === 0 ? 0 : e2m1Encode((x[i] as number) / unit);
  }
  return { codes, scales };
}
