/** Which weights a model of the family has, by its config: names without the multimodal wrapper's prefix (qwen35-model 3). */
import type { Qwen35Config } from './config.ts';

export interface ExpectedWeight {
  /** Name without the wrapper's prefix, e.g. `model.layers.0.mlp.up_proj.weight`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** Matrices [out, in] that `linear` multiplies; the rest are embeddings, norms, conv and small vectors. */
  readonly linear: boolean;
}

const linear = (name: string, out: number, input: number): ExpectedWeight => ({
  name,
  shape: [out, input],
  linear: true,
});
const plain = (name: string, ...shape: number[]): ExpectedWeight => ({ name, shape, linear: false });

function mlp(p: string, c: Qwen35Config): ExpectedWeight[] {
  return [
    linear(`${p}mlp.gate_proj.weight`, c.intermediateSize, c.hiddenSize),
    linear(`${p}mlp.up_proj.weight`, c.intermediateSize, c.hiddenSize),
    linear(`${p}mlp.down_proj.weight`, c.hiddenSize, c.intermediateSize),
  ];
}

function attention(p: string, c: Qwen35Config): ExpectedWeight[] {
  return [
    linear(`${p}self_attn.q_proj.weight`, 2 * c.heads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.k_proj.weight`, c.kvHeads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.v_proj.weight`, c.kvHeads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.o_proj.weight`, c.hiddenSize, c.heads * c.headDim),
    plain(`${p}self_attn.q_norm.weight`, c.headDim),
    plain(`${p}self_attn.k_norm.weight`, c.headDim),
  ];
}

function deltaNet(p: string, c: Qwen35Config): ExpectedWeight[] {
  const keyDim = c.linKeyHeads * c.linKeyDim;
  const valueDim = c.linValueHeads * c.linValueDim;
  return [
    linear(`${p}linear_attn.in_proj_qkv.weight`, 2 * keyDim + valueDim, c.hiddenSize),
    linear(`${p}linear_attn.in_proj_z.weight`, valueDim, c.hiddenSize),
    linear(`${p}linear_attn.in_proj_b.weight`, c.linValueHeads, c.hiddenSize),
    linear(`${p}linear_attn.in_proj_a.weight`, c.linValueHeads, c.hiddenSize),
    linear(`${p}linear_attn.out_proj.weight`, c.hiddenSize, valueDim),
    plain(`${p}linear_attn.conv1d.weight`, 2 * keyDim + valueDim, 1, c.convKernel),
    plain(`${p}linear_attn.A_log`, c.linValueHeads),
    plain(`${p}linear_attn.dt_bias`, c.linValueHeads),
    plain(`${p}linear_attn.norm.weight`, c.linValueDim),
  ];
}

function norms(p: string, c: Qwen35Config): ExpectedWeight[] {
  return [
    plain(`${p}input_layernorm.weight`, c.hiddenSize),
    plain(`${p}post_attention_layernorm.weight`, c.hiddenSize),
  ];
}

/** All weights of the text model, without MTP. */
export function expectedWeights(c: Qwen35Config): ExpectedWeight[] {
  const layers = c.layerTypes.flatMap((type, i) => {
    const p = `model.layers.${i}.`;
    return [...norms(p, c), ...(type === 'full_attention' ? attention(p, c) : deltaNet(p, c)), ...mlp(p, c)];
  });
  const head = c.tied ? [] : [linear('lm_head.weight', c.vocabSize, c.hiddenSize)];
  return [
    plain('model.embed_tokens.weight', c.vocabSize, c.hiddenSize),
    ...layers,
    plain('model.norm.weight', c.hiddenSize),
    ...head,
  ];
}

/** The MTP layer's weights. */
export function expectedMtpWeights(c: Qwen35Config): ExpectedWeight[] {
  const p = 'mtp.layers.0.';
  return [
    linear('mtp.fc.weight', c.hiddenSize, 2 * c.hiddenSize),
    plain('mtp.pre_fc_norm_embedding.weight', c.hiddenSize),
    plain('mtp.pre_fc_norm_hidden.weight', c.hiddenSize),
    plain('mtp.norm.weight', c.hiddenSize),
    ...norms(p, c),
    ...attention(p, c),
    ...mlp(p, c),
  ];
}
