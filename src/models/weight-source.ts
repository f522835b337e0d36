/**
 * Where a model's weights come from: an engine folder (mapped) or a plain checkpoint. Names are those of the checkpoint without the
 * multimodal wrapper's prefix, e.g. `model.layers.0.mlp.up_proj.weight`, `lm_head.weight`, `mtp.fc.weight`.
 */
import type { Weight } from '../backends/index.ts';
import type { ModelConfig } from '../checkpoint/index.ts';

export interface WeightSource {
  readonly config: ModelConfig;
  /** `lm_head.weight` may be there although the embedding is tied (a quantized head); `mtp.fc.weight` stands for all of MTP. */
  has(name: string): boolean;
  /** A matrix for `linear`, or the embedding table (bf16 or f32). */
  matrix(name: string): Weight;
  /** A plain tensor's values: norms, conv, A_log, dt_bias. */
  vector(name: string): Float32Array;
  /** Scales of the FP8 cache, 1 where there are none; `stem` e.g. `model.layers.3.self_attn`. */
  kvScales(stem: string): { readonly k: number; readonly v: number };
  /** After the last use of its weights. */
  close(): void;
}
