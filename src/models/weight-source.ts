/** Where a model's weights come from: an engine folder, or a plain checkpoint. Names are those without the wrapper's prefix. */
import type { Backend, Weight } from '../backends/index.ts';
import {
  type Checkpoint,
  dequantize,
  describeWeight,
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  hasMtp,
  kvScales,
  type Qwen35Config,
} from '../checkpoint/index.ts';
import { present } from '../util/index.ts';

export interface WeightSource {
  readonly config: Qwen35Config;
  readonly hasMtp: boolean;
  /** A matrix for `linear` or `embed`; the head of a tied model is `lm_head.weight` too. */
  matrix(name: string): Weight;
  /** Raw values of a norm, conv or small vector. */
  vector(name: string): Float32Array;
  /** Cache scales of `model.layers.N.self_attn` or `mtp.layers.0.self_attn`. */
  kvScales(stem: string): { readonly k: number; readonly v: number };
}

/** All weights in fp32, straight from a checkpoint: the path that golden vectors are compared with. */
export function checkpointSource(backend: Backend, ck: Checkpoint): WeightSource {
  const mtp = hasMtp(ck);
  const all = [...expectedWeights(ck.config), ...(mtp ? expectedMtpWeights(ck.config) : [])];
  const byName = new Map<string, ExpectedWeight>(all.map((weight) => [weight.name, weight]));
  const values = (name: string): Float32Array => {
    const expected = present(byName.get(name), name);
    return dequantize(ck, describeWeight(ck, expected), expected.shape);
  };
  const loaded = new Map<string, Weight>();
  return {
    config: ck.config,
    hasMtp: mtp,
    matrix(name) {
      const stored = name === 'lm_head.weight' && ck.config.tied ? 'model.embed_tokens.weight' : name;
      let weight = loaded.get(stored);
      if (weight === undefined) {
        const [outDim, inDim] = present(byName.get(stored), stored).shape as [number, number];
        const bytes = new Uint8Array(values(stored).buffer);
        weight = backend.weightFrom({ format: 'f32', outDim, inDim, scale: 1 }, bytes);
        loaded.set(stored, weight);
      }
      return weight;
    },
    vector: values,
    kvScales: (stem) => kvScales(ck, stem),
  };
}
