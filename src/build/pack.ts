/**
 * One weight of a checkpoint as bytes of an engine folder, some rows at a time: the head of a large model has more than a billion
 * values, memory stays at a few bands. Bands start at multiples of the tile's rows, so that packed bands follow one another.
 */

import { isScaledFp8, scaledFp8Layout } from '../backends/index.ts';
import { type Checkpoint, describeWeight, type RowRange, type StoredWeight } from '../checkpoint/index.ts';
import {
  absMax,
  bf16ToF32,
  dequantizeNvfp4,
  f32ToBf16,
  nvfp4Block,
  packTiles,
  quantizeNvfp4,
  tensorScale,
  tileRows,
  unpackTiles,
} from '../dtypes/index.ts';
import { assert, UserError } from '../util/index.ts';
import type { Place } from './layout.ts';

export interface Packed {
  readonly scale: number;
  readonly inputScale: number | null;
  /** Root mean square of the difference to the source, relative to the source. */
  readonly error: number;
}

/** Takes a weight's bytes in order. */
export type Sink = (bytes: Uint8Array) => void;

type Matrix = readonly [outDim: number, inDim: number];

const bandValues = 2 ** 22;
const lossless: Packed = { scale: 1, inputScale: null, error: 0 };

export function packWeight(ck: Checkpoint, { from, format }: Place, sink: Sink): Packed {
  const stored = describeWeight(ck, from);
  const [outDim = 1, ...rest] = from.shape;
  const matrix: Matrix = [outDim, rest.reduce((product, dim) => product * dim, 1)];
  if (stored.kind === 'nvfp4' && format === 'nvfp4-tile') return repackNvfp4(ck, stored, matrix, sink);
  if (stored.kind === 'fp8-scaled' && isScaledFp8(format)) {
    copy(ck, stored.tensor, sink);
    sink(new Uint8Array(scaledFp8Layout(format, matrix).offset - matrix[0] * matrix[1]));
    sink(bytesOfValues(stored.scales()));
    return lossless;
  }
  if (stored.kind === 'fp8' && format === 'fp8') {
    copy(ck, stored.tensor, sink);
    return { scale: stored.scale, inputScale: stored.inputScale, error: 0 };
  }
  const bands = new Bands(stored, matrix, from.name);
  if (format === 'nvfp4-tile') return quantize(bands, sink);
  if (format === 'f32') {
    for (const values of bands) sink(bytesOfValues(values));
    return lossless;
  }
  if (stored.kind !== 'plain') return roundToBf16(bands, sink);
  copy(ck, stored.tensor, sink);
  return lossless;
}

/** A weight's values band by band; a weight of one band is read once. */
class Bands {
  readonly inDim: number;
  readonly #stored: StoredWeight;
  readonly #matrix: Matrix;
  readonly #name: string;
  #only: Float32Array | null = null;

  constructor(stored: StoredWeight, matrix: Matrix, name: string) {
    this.#stored = stored;
    this.#matrix = matrix;
    this.#name = name;
    this.inDim = matrix[1];
  }

  *[Symbol.iterator](): Generator<Float32Array> {
    for (const rows of bandsOf(this.#matrix)) yield this.#only ?? this.#read(rows);
  }

  #read(rows: RowRange): Float32Array {
    const values = this.#stored.rows(rows);
    const max = absMax(values);
    if (!Number.isFinite(max))
      throw new UserError(
        'bad_checkpoint',
        `tensor '${this.#name}' contains ${max}, expected finite values`,
        {
          param: this.#name,
        },
      );
    if (rows.count === this.#matrix[0]) this.#only = values;
    return values;
  }
}

function* bandsOf([outDim, inDim]: Matrix): Generator<RowRange> {
  const rows = Math.max(1, Math.floor(bandValues / inDim / tileRows)) * tileRows;
  for (let from = 0; from < outDim; from += rows) yield { from, count: Math.min(rows, outDim - from) };
}

function quantize(bands: Bands, sink: Sink): Packed {
  const { inDim } = bands;
  let amax = 0;
  for (const values of bands) amax = Math.max(amax, absMax(values));
  const scale2 = tensorScale(amax, 'least-error');
  const loss = new Loss();
  for (const values of bands) {
    const outDim = values.length / inDim;
    const quantized = quantizeNvfp4(values, outDim, inDim, { choice: 'least-error', scale2 });
    loss.add(values, dequantizeNvfp4(quantized));
    sink(checkedTiles(quantized, [outDim, inDim]));
  }
  return { scale: scale2, inputScale: null, error: loss.relative };
}

function repackNvfp4(
  ck: Checkpoint,
  stored: StoredWeight & { kind: 'nvfp4' },
  matrix: Matrix,
  sink: Sink,
): Packed {
  const inDim = matrix[1];
  for (const { from, count } of bandsOf(matrix)) {
    const part = (per: number) => ({ from: (from * inDim) / per, bytes: (count * inDim) / per });
    const codes = ck.read(stored.codes, part(2));
    const scales = ck.read(stored.scales, part(nvfp4Block));
    sink(checkedTiles({ codes, scales }, [count, inDim]));
  }
  return { scale: stored.scale2, inputScale: stored.inputScale, error: 0 };
}

/** Tiles that were unpacked again and compared. */
function checkedTiles(
  { codes, scales }: { codes: Uint8Array; scales: Uint8Array },
  [outDim, inDim]: Matrix,
): Uint8Array {
  const tiles = packTiles(codes, scales, outDim, inDim);
  const back = unpackTiles(tiles, outDim, inDim);
  assert(
    Buffer.compare(back.codes, codes) === 0 && Buffer.compare(back.scales, scales) === 0,
    `tiles of [${outDim}, ${inDim}] unpack to what was packed`,
  );
  return tiles;
}

function roundToBf16(bands: Bands, sink: Sink): Packed {
  const loss = new Loss();
  for (const values of bands) {
    const halves = new Uint16Array(values.length);
    f32ToBf16(values, halves);
    const back = new Float32Array(values.length);
    bf16ToF32(halves, back);
    loss.add(values, back);
    sink(new Uint8Array(halves.buffer));
  }
  return { ...lossless, error: loss.relative };
}

function copy(ck: Checkpoint, name: string, sink: Sink): void {
  const total = ck.tensors.get(name)?.bytes ?? 0;
  for (let from = 0; from < total; from += 4 * bandValues)
    sink(ck.read(name, { from, bytes: Math.min(4 * bandValues, total - from) }));
}

function bytesOfValues(values: Float32Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}

/** Sums what packing changed. */
class Loss {
  #difference = 0;
  #size = 0;

  add(source: Float32Array, packed: Float32Array): void {
    for (let i = 0; i < source.length; i++) {
      this.#difference += ((source[i] as number) - (packed[i] as number)) ** 2;
      this.#size += (source[i] as number) ** 2;
    }
  }

  get relative(): number {
    return this.#size === 0 ? 0 : Math.sqrt(this.#difference / this.#size);
  }
}
