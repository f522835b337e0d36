/**
 * Weights straight from a Hugging Face checkpoint, without an engine folder: bf16 and f32 as they are, NVFP4 repacked into tiles,
 * FP8 per tensor as it is, everything else in fp32. Each matrix is copied into the back-end's memory.
 */
import {
  type Backend,
  scaledFp8Format,
  scaledFp8Layout,
  type Weight,
  type WeightFormat,
} from '../backends/index.ts';
import {
  type Checkpoint,
  describeWeight,
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  hasMtp,
  kvScales,
  readF32,
  type StoredWeight,
} from '../checkpoint/index.ts';
import { packTiles } from '../dtypes/index.ts';
import { assert } from '../util/index.ts';
import type { WeightSource } from './weight-source.ts';

export function checkpointSource(backend: Backend, ck: Checkpoint): WeightSource {
  const { config } = ck;
  const all = [...expectedWeights(config), ...(hasMtp(ck) ? expectedMtpWeights(config) : [])];
  const expected = new Map(all.map((weight) => [weight.name, weight]));
  const find = (name: string): ExpectedWeight => {
    const weight = expected.get(name);
    assert(weight, `'${name}' is a weight of this model`);
    return weight;
  };
  return {
    config,
    has: (name) => expected.has(name),
    matrix: (name) => matrix(backend, ck, find(name)),
    vector(name) {
      const stored = describeWeight(ck, find(name));
      assert(stored.kind === 'plain', `'${name}' is a plain tensor`);
      return readF32(ck, stored.tensor);
    },
    kvScales: (stem) => kvScales(ck, stem),
    close: () => {},
  };
}

function matrix(backend: Backend, ck: Checkpoint, expected: ExpectedWeight): Weight {
  const [outDim, inDim] = expected.shape as [number, number];
  const stored = describeWeight(ck, expected);
  const make = (format: WeightFormat, scale: number, bytes: Uint8Array): Weight =>
    backend.weightFrom({ format, outDim, inDim, scale }, bytes);
  const format = rawFormat(ck, stored);
  if (stored.kind === 'nvfp4' && expected.linear) {
    const tiles = packTiles(ck.read(stored.codes), ck.read(stored.scales), outDim, inDim);
    return make('nvfp4-tile', stored.scale2, tiles);
  }
  if (stored.kind === 'fp8' && expected.linear) return make('fp8', stored.scale, ck.read(stored.tensor));
  if (stored.kind === 'fp8-scaled' && expected.linear) {
    const format = scaledFp8Format(stored.group, inDim);
    const { bytes, offset } = scaledFp8Layout(format, [outDim, inDim]);
    const all = new Uint8Array(bytes);
    all.set(ck.read(stored.tensor));
    new Float32Array(all.buffer, offset).set(stored.scales());
    return make(format, 1, all);
  }
  if (stored.kind === 'plain' && format !== null) return make(format, 1, ck.read(stored.tensor));
  const values = stored.rows({ from: 0, count: outDim });
  return make('f32', 1, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
}

/** The weight format that has the same bytes as a plain tensor, if there is one. */
function rawFormat(ck: Checkpoint, stored: StoredWeight): 'bf16' | 'f32' | null {
  const dtype = stored.kind === 'plain' ? ck.tensors.get(stored.tensor)?.dtype : null;
  return dtype === 'BF16' ? 'bf16' : dtype === 'F32' ? 'f32' : null;
}
