/** The dense hybrids of the qwen3_5 family: Qwen3.5, 3.6 and 3.8 declare the same type (qwen35-model 1 and 3). */
import { type ModelConfig, parseHybridConfig } from '../config.ts';
import { type ExpectedWeight, linear, type ModelFamily, plain } from '../family.ts';

function mlp(p: string, c: ModelConfig): ExpectedWeight[] {
  return [
    linear(`${p}mlp.gate_proj.weight`, c.intermediateSize, c.hiddenSize),
    linear(`${p}mlp.up_proj.weight`, c.intermediateSize, c.hiddenSize),
    linear(`${p}mlp.down_proj.weight`, c.hiddenSize, c.intermediateSize),
  ];
}

function attention(p: string, c: ModelConfig): ExpectedWeight[] {
  return [
    linear(`${p}self_attn.q_proj.weight`, 2 * c.heads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.k_proj.weight`, c.kvHeads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.v_proj.weight`, c.kvHeads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.o_proj.weight`, c.hiddenSize, c.heads * c.headDim),
    plain(`${p}self_attn.q_norm.weight`, c.headDim),
    plain(`${p}self_attn.k_norm.weight`, c.headDim),
  ];
}

function deltaNet(p: string, c: ModelConfig): ExpectedWeight[] {
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

function norms(p: string, c: ModelConfig): ExpectedWeight[] {
  return [
    plain(`${p}input_layernorm.weight`, c.hiddenSize),
    plain(`${p}post_attention_layernorm.weight`, c.hiddenSize),
  ];
}

function weights(c: ModelConfig): ExpectedWeight[] {
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

function mtpWeights(c: ModelConfig): ExpectedWeight[] {
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

const modelTypes = ['qwen3_5', 'qwen3_5_text'];

export const qwen35: ModelFamily = {
  modelTypes,
  parseConfig: (json) => parseHybridConfig(json, modelTypes),
  weights,
  mtpWeights,
};
