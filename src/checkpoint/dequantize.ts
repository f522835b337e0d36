/** Stored weights as fp32 values: whole, or some rows at a time so that the largest matrix needs little memory. */
import { bf16ToF32, dequantizeNvfp4, e4m3Decode, f16ToF32, nvfp4Block } from '../dtypes/index.ts';
import { UserError } from '../util/index.ts';
import type { BytePart, Checkpoint } from './checkpoint.ts';
import { dtypeBytes } from './safetensors.ts';
import type { StoredWeight } from './weights.ts';

/** Rows of a weight; a row is everything below the first dimension. */
export interface RowRange {
  readonly from: number;
  readonly count: number;
}

const elements = (shape: readonly number[]): number => shape.reduce((product, dim) => product * dim, 1);

/** A plain tensor's values in fp32. */
export function readF32(ck: Checkpoint, name: string): Float32Array {
  const shape = ck.tensors.get(name)?.shape ?? [];
  return readPlain(ck, name, 0, elements(shape));
}

function readPlain(ck: Checkpoint, name: string, from: number, count: number): Float32Array {
  const dtype = ck.tensors.get(name)?.dtype;
  if (dtype !== 'F32' && dtype !== 'BF16' && dtype !== 'F16')
    throw new UserError('bad_checkpoint', `tensor '${name}' is ${dtype}, expected BF16/F16/F32`, {
      param: name,
    });
  const size = dtypeBytes[dtype];
  const bytes = ck.read(name, { from: from * size, bytes: count * size });
  if (dtype === 'F32') return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  const values = new Float32Array(count);
  if (dtype === 'BF16') bf16ToF32(halves, values);
  else f16ToF32(halves, values);
  return values;
}

/** Any weight's values in fp32, [out, in] or of its plain shape. */
export function dequantize(ck: Checkpoint, stored: StoredWeight, shape: readonly number[]): Float32Array {
  return dequantizeRows(ck, stored, shape, { from: 0, count: shape[0] ?? 1 });
}

/** The values of some rows, [count, in]. */
export function dequantizeRows(
  ck: Checkpoint,
  stored: StoredWeight,
  shape: readonly number[],
  { from, count }: RowRange,
): Float32Array {
  const width = elements(shape.slice(1));
  const part = (perByte: number): BytePart => ({
    from: (from * width) / perByte,
    bytes: (count * width) / perByte,
  });
  if (stored.kind === 'plain') return readPlain(ck, stored.tensor, from * width, count * width);
  if (stored.kind === 'nvfp4')
    return dequantizeNvfp4({
      codes: ck.read(stored.codes, part(2)),
      scales: ck.read(stored.scales, part(nvfp4Block)),
      scale2: stored.scale2,
    });
  const codes = ck.read(stored.tensor, part(1));
  const values = new Float32Array(codes.length);
  if (stored.kind === 'fp8') {
    for (let i = 0; i < codes.length; i++)
      values[i] = (e4m3Decode[codes[i] as number] as number) * stored.scale;
    return values;
  }
  const scales = readF32(ck, stored.scales);
  const [blockRows, blockColumns] = stored.block;
  const perRow = Math.ceil(width / blockColumns);
  for (let row = 0; row < count; row++) {
    const firstScale = Math.floor((from + row) / blockRows) * perRow;
    for (let i = 0; i < width; i++) {
      const scale = scales[firstScale + Math.floor(i / blockColumns)] as number;
      values[row * width + i] = (e4m3Decode[codes[row * width + i] as number] as number) * scale;
    }
  }
  return values;
}
