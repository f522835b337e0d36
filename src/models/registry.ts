/** Which code computes a model, by the `model_type` of its config. A new type is a folder and a line here. */
import type { Backend } from '../backends/index.ts';
import { assert } from '../util/index.ts';
import type { LoadModel, Model } from './model.ts';
import { loadQwen35 } from './qwen35/model.ts';
import type { WeightSource } from './weight-source.ts';

/** By `model_type`; the families of `checkpoint` list the same names. */
export const loaders: Readonly<Record<string, LoadModel>> = {
  qwen3_5: loadQwen35,
  qwen3_5_text: loadQwen35,
};

/** The model of a source, with buffers for forwards of up to `maxRows` rows. The model closes the source. */
export function loadModel(
  backend: Backend,
  source: WeightSource,
  limits: { readonly maxRows: number },
): Model {
  const { modelType } = source.config;
  const load = Object.hasOwn(loaders, modelType) ? loaders[modelType] : undefined;
  assert(load !== undefined, `'${modelType}' is a model type that parseConfig knows`);
  return load(backend, source, limits);
}
