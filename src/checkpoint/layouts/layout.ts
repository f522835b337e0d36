/** What a layout of stored weights is, and the checks that all of them share. A layout is matched per tensor, by what is present. */
import { bf16ToF32, f16ToF32 } from '../../dtypes/index.ts';
import { UserError } from '../../util/index.ts';
import type { Checkpoint } from '../checkpoint.ts';
import { dtypeBytes } from '../safetensors.ts';

/** Rows of a weight; a row is everything below the first dimension. */
export interface RowRange {
  readonly from: number;
  readonly count: number;
}

interface Stored {
  /** Every tensor that the weight consists of. */
  readonly uses: readonly string[];
  /** The values of some rows in fp32, [count, in]. */
  rows(range: RowRange): Float32Array;
}

/** How a weight is stored; names are those of the checkpoint. */
export type StoredWeight = Stored &
  (
    | { readonly kind: 'plain'; readonly tensor: string }
    | {
        readonly kind: 'nvfp4';
        readonly codes: string;
        readonly scales: string;
        readonly scale2: number;
        readonly inputScale: number | null;
      }
    | {
        readonly kind: 'fp8';
        readonly tensor: string;
        readonly scale: number;
        readonly inputScale: number | null;
      }
    | {
        readonly kind: 'fp8-scaled';
        readonly tensor: string;
        /** Columns that share a scale; the row's length where it has one scale. */
        readonly group: number;
        /** [out, ceil(in / group)] */
        scales(): Float32Array;
      }
    /** Values that no kernel reads as they are stored. */
    | { readonly kind: 'values'; readonly format: string }
  );

export interface Layout {
  /**
   * null when the weight is not stored so. Throws UserError naming the tensor, what was expected and what was found, when it is but
   * is not sound. `stem` is the name in the file without `.weight`.
   */
  describe(
    ck: Checkpoint,
    stem: string,
    shape: readonly [outDim: number, inDim: number],
  ): StoredWeight | null;
}

export const plainDtypes: ReadonlySet<string> = new Set(['BF16', 'F16', 'F32']);

export const wrong = (name: string, message: string): UserError =>
  new UserError('bad_checkpoint', `tensor '${name}' ${message}`, { param: name });

const found = (ck: Checkpoint, name: string): string => {
  const tensor = ck.tensors.get(name);
  return tensor === undefined ? 'is missing' : `is ${tensor.dtype} [${tensor.shape.join(', ')}]`;
};

export const hasShape = (ck: Checkpoint, name: string, shape: readonly number[]): boolean =>
  `${ck.tensors.get(name)?.shape}` === `${shape}`;

export function expectTensor(
  ck: Checkpoint,
  name: string,
  dtypes: ReadonlySet<string>,
  shape: readonly number[],
): void {
  const dtype = ck.tensors.get(name)?.dtype;
  if (dtype === undefined || !dtypes.has(dtype) || !hasShape(ck, name, shape))
    throw wrong(name, `${found(ck, name)}, expected ${[...dtypes].join('/')} [${shape.join(', ')}]`);
}

export const unexpectedShape = (ck: Checkpoint, name: string, expected: string): UserError =>
  wrong(name, `${found(ck, name)}, expected ${expected}`);

/** One value in any float type, as a shape of [] or [1]. Scales are finite and not negative. */
export function scalar(ck: Checkpoint, name: string): number {
  const info = ck.tensors.get(name);
  if (info === undefined || !plainDtypes.has(info.dtype) || info.shape.some((dim) => dim !== 1))
    throw wrong(name, `${found(ck, name)}, expected one value of BF16/F16/F32`);
  const value = readPlain(ck, name)[0] as number;
  if (!Number.isFinite(value) || value < 0) throw wrong(name, `is ${value}, expected a finite scale from 0`);
  return value;
}

export function positiveScalar(ck: Checkpoint, name: string): number {
  const value = scalar(ck, name);
  if (value === 0) throw wrong(name, 'is 0, expected a scale above 0');
  return value;
}

/** null where there is none, and for 0, which exporters write for a layer that calibration never reached. */
export function optionalScalar(ck: Checkpoint, name: string): number | null {
  return ck.tensors.has(name) ? scalar(ck, name) || null : null;
}

/** Those of the tensors that are there. */
export const present = (ck: Checkpoint, ...names: readonly string[]): string[] =>
  names.filter((name) => ck.tensors.has(name));

/** A plain tensor's values in fp32, or `count` of them from `from`. */
export function readPlain(ck: Checkpoint, name: string, from = 0, count = sizeOf(ck, name)): Float32Array {
  const dtype = ck.tensors.get(name)?.dtype;
  if (dtype !== 'F32' && dtype !== 'BF16' && dtype !== 'F16')
    throw wrong(name, `is ${dtype}, expected BF16/F16/F32`);
  const size = dtypeBytes[dtype];
  const bytes = ck.read(name, { from: from * size, bytes: count * size });
  if (dtype === 'F32') return new Float32Array(bytes.buffer, bytes.byteOffset, count);
  const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  const values = new Float32Array(count);
  if (dtype === 'BF16') bf16ToF32(halves, values);
  else f16ToF32(halves, values);
  return values;
}

const sizeOf = (ck: Checkpoint, name: string): number =>
  (ck.tensors.get(name)?.shape ?? []).reduce((product, dim) => product * dim, 1);

export const scaleDtypes: ReadonlySet<string> = new Set(['BF16', 'F16', 'F32', 'F8_E8M0', 'U8']);

/** Scales in a float type, or as E8M0 exponents: 2^(e - 127), 255 is not a number. All finite and not negative. */
export function readScales(ck: Checkpoint, name: string): Float32Array {
  const dtype = ck.tensors.get(name)?.dtype;
  const isExponent = dtype === 'F8_E8M0' || dtype === 'U8';
  const values = isExponent
    ? Float32Array.from(ck.read(name), (e) => (e === 255 ? Number.NaN : 2 ** (e - 127)))
    : readPlain(ck, name);
  const bad = values.find((value) => !(Number.isFinite(value) && value >= 0));
  if (bad !== undefined) throw wrong(name, `contains ${bad}, expected finite scales from 0`);
  return values;
}

/** A tensor of 32-bit words, read once. */
export function wordsOf(ck: Checkpoint, name: string): () => Int32Array {
  let words: Int32Array | null = null;
  return () => {
    if (words === null) {
      const bytes = ck.read(name);
      words = new Int32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
    }
    return words;
  };
}

/** What `make` returns, made at the first call. */
export function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | null = null;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}
