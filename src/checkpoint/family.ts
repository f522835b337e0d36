/** What the loader has to know of a family of models: its config, and the manifest of its weights. */
import type { ModelConfig } from './config.ts';

/** An entry of a weight manifest. */
export interface ExpectedWeight {
  /** Name without the wrapper's prefix, e.g. `model.layers.0.mlp.up_proj.weight`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** Matrices [out, in] that `linear` multiplies; the rest are embeddings, norms, conv and small vectors. */
  readonly linear: boolean;
}

export interface ModelFamily {
  /** The `model_type` values that it answers to, of the wrapper and of the text model. */
  readonly modelTypes: readonly string[];
  /** Throws UserError('bad_checkpoint') that names the key, what was expected and what was found. */
  parseConfig(json: Record<string, unknown>): ModelConfig;
  /** All weights of the text model, without MTP. */
  weights(config: ModelConfig): ExpectedWeight[];
  /** The MTP layer's weights. */
  mtpWeights(config: ModelConfig): ExpectedWeight[];
}

/** A matrix that `linear` multiplies. */
export const linear = (name: string, out: number, input: number): ExpectedWeight => ({
  name,
  shape: [out, input],
  linear: true,
});

export const plain = (name: string, ...shape: number[]): ExpectedWeight => ({ name, shape, linear: false });
