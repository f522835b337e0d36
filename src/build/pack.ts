/** One weight of a checkpoint as bytes of an engine folder, with what was lost on the way. */
import type { WeightFormat } from '../backends/index.ts';
import {
  type Checkpoint,
  dequantize,
  describeWeight,
  type ExpectedWeight,
  readF32,
} from '../checkpoint/index.ts';
import { dequantizeNvfp4, f32ToBf16, nvfp4Block, packTiles, quantizeNvfp4 } from '../dtypes/index.ts';
import type { Recipe } from './engine-folder.ts';

export interface PackedWeight {
  readonly format: WeightFormat;
  readonly bytes: Uint8Array;
  readonly scale: number;
  readonly inputScale: number | null;
  readonly error: number;
}

/** Small projections that gate the recurrence stay in full precision, as every published recipe leaves them. */
const keptLinears = /\.in_proj_[ab]\.weight$/;

function relativeError(source: Float32Array, packed: Float32Array): number {
  let difference = 0;
  let size = 0;
  for (let i = 0; i < source.length; i++) {
    difference += ((source[i] as number) - (packed[i] as number)) ** 2;
    size += (source[i] as number) ** 2;
  }
  return size === 0 ? 0 : Math.sqrt(difference / size);
}

function asF32(values: Float32Array): PackedWeight {
  return {
    format: 'f32',
    bytes: new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
    scale: 1,
    inputScale: null,
    error: 0,
  };
}

function asBf16(values: Float32Array): PackedWeight {
  const halves = new Uint16Array(values.length);
  f32ToBf16(values, halves);
  const back = new Float32Array(values.length);
  const bits = new Uint32Array(back.buffer);
  for (let i = 0; i < halves.length; i++) bits[i] = (halves[i] as number) << 16;
  return {
    format: 'bf16',
    bytes: new Uint8Array(halves.buffer),
    scale: 1,
    inputScale: null,
    error: relativeError(values, back),
  };
}

function asNvfp4(values: Float32Array, [outDim, inDim]: readonly [number, number]): PackedWeight {
  const quantized = quantizeNvfp4(values, outDim, inDim);
  return {
    format: 'nvfp4-tile',
    bytes: packTiles(quantized.codes, quantized.scales, outDim, inDim),
    scale: quantized.scale2,
    inputScale: null,
    error: relativeError(values, dequantizeNvfp4(quantized)),
  };
}

/** The format of a weight in the engine folder: what is quantized already is kept, the rest follows the recipe. */
export function chooseFormat(ck: Checkpoint, { weight, from }: WeightJob, recipe: Recipe): WeightFormat {
  const stored = describeWeight(ck, from);
  if (stored.kind === 'nvfp4') return 'nvfp4-tile';
  if (stored.kind === 'fp8') return 'fp8';
  const isMatrix = weight.linear || weight.name.endsWith('embed_tokens.weight');
  if (!isMatrix) return 'f32';
  const kept = keptLinears.test(weight.name) || (weight.shape[1] ?? 0) % nvfp4Block !== 0;
  if (weight.linear && recipe === 'nvfp4' && !kept) return 'nvfp4-tile';
  return stored.kind === 'plain' && ck.tensors.get(stored.tensor)?.dtype !== 'BF16' ? 'f32' : 'bf16';
}

/** A weight of the engine folder, and the checkpoint's weight that it is made from. */
export interface WeightJob {
  readonly weight: ExpectedWeight;
  readonly from: ExpectedWeight;
}

export function packWeight(ck: Checkpoint, { from }: WeightJob, format: WeightFormat): PackedWeight {
  const stored = describeWeight(ck, from);
  const shape = from.shape as [number, number];
  if (stored.kind === 'nvfp4') {
    const bytes = packTiles(ck.read(stored.codes), ck.read(stored.scales), shape[0], shape[1]);
    return { format, bytes, scale: stored.scale2, inputScale: stored.inputScale, error: 0 };
  }
  if (stored.kind === 'fp8')
    return {
      format,
      bytes: ck.read(stored.tensor),
      scale: stored.scale,
      inputScale: stored.inputScale,
      error: 0,
    };
  const values = dequantize(ck, stored, shape);
  if (format === 'nvfp4-tile') return asNvfp4(values, shape);
  return format === 'bf16' ? asBf16(values) : asF32(values);
}
