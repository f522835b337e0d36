import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../util/index.ts';
import { parseConfig } from './index.ts';

const text = {
  vocab_size: 320,
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 5,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 32,
  linear_num_key_heads: 2,
  linear_num_value_heads: 6,
};
const textOnly = { model_type: 'qwen3_5_text', ...text };
const wrapped = (change: object = {}, outer: object = {}) => ({
  model_type: 'qwen3_5',
  architectures: ['Qwen3_5ForConditionalGeneration'],
  vision_config: { model_type: 'qwen3_5_vision', hidden_size: 7 },
  ...outer,
  text_config: { ...textOnly, ...change },
});

describe('config of the family', () => {
  it('is the same inside the wrapper and alone', () => {
    expect({ ...parseConfig(wrapped()), modelType: '' }).toEqual({ ...parseConfig(textOnly), modelType: '' });
    expect(parseConfig(wrapped({ model_type: 'qwen3_5' })).hiddenSize).toBe(64);
  });

  it('fills what is missing with the defaults of transformers', () => {
    expect(parseConfig({ model_type: 'qwen3_5_text' })).toMatchObject({
      vocabSize: 248_320,
      hiddenSize: 4096,
      intermediateSize: 12_288,
      heads: 16,
      kvHeads: 4,
      headDim: 256,
      rotaryDim: 64,
      linKeyHeads: 16,
      linValueHeads: 32,
      linKeyDim: 128,
      linValueDim: 128,
      convKernel: 4,
      eps: 1e-6,
      tied: false,
      mtpLayers: 0,
      yarn: null,
      maxPositions: 32_768,
      eosTokenIds: [],
    });
  });

  it('takes layer types from the list, else from the interval', () => {
    const kinds = (config: object) =>
      parseConfig({ ...textOnly, ...config })
        .layerTypes.map((type) => type[0])
        .join('');
    expect(kinds({})).toBe('lllfl');
    expect(kinds({ full_attention_interval: 2 })).toBe('lflfl');
    expect(kinds({ layer_types: ['full_attention', ...new Array(4).fill('linear_attention')] })).toBe(
      'fllll',
    );
  });

  it('is tied when either level says so', () => {
    expect(parseConfig(wrapped()).tied).toBe(false);
    expect(parseConfig(wrapped({ tie_word_embeddings: true })).tied).toBe(true);
    expect(parseConfig(wrapped({}, { tie_word_embeddings: true })).tied).toBe(true);
  });

  it('takes eos ids from either level, one or several', () => {
    expect(parseConfig(wrapped({}, { eos_token_id: 5 })).eosTokenIds).toEqual([5]);
    expect(parseConfig(wrapped({ eos_token_id: [7, 8] }, { eos_token_id: 5 })).eosTokenIds).toEqual([7, 8]);
    expect(parseConfig(wrapped({ eos_token_id: null })).eosTokenIds).toEqual([]);
  });

  it('reads rope nested, flat or as the old scaling record', () => {
    const rope = (config: object) => {
      const { ropeTheta, rotaryDim, yarn } = parseConfig({ ...textOnly, ...config });
      return [ropeTheta, rotaryDim, yarn?.factor ?? null];
    };
    const yarn = { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 1000 };
    expect(
      rope({ rope_parameters: { rope_type: 'default', rope_theta: 500, partial_rotary_factor: 0.5 } }),
    ).toEqual([500, 16, null]);
    expect(rope({ rope_theta: 500, partial_rotary_factor: 1 })).toEqual([500, 32, null]);
    expect(rope({ rope_theta: 500, rope_scaling: { ...yarn, rope_type: undefined, type: 'yarn' } })).toEqual([
      500, 8, 4,
    ]);
    expect(rope({ rope_scaling: null })).toEqual([10_000_000, 8, null]);
    expect(parseConfig({ ...textOnly, rope_parameters: { ...yarn, attention_factor: null } }).yarn).toEqual({
      factor: 4,
      originalMaxPositions: 1000,
      betaFast: 32,
      betaSlow: 1,
      attentionFactor: null,
    });
  });

  it('can not be changed', () => {
    const config = parseConfig(textOnly);
    expect(Object.isFrozen(config) && Object.isFrozen(config.layerTypes)).toBe(true);
  });

  it.each([
    [{ model_type: 'qwen3_5_moe' }, 'model_type is "qwen3_5_moe", known are qwen3_5, qwen3_5_text'],
    [{ model_type: undefined }, 'model_type is undefined'],
    [{ text_config: { model_type: 'qwen3_5_moe_text' } }, 'text_config.model_type is "qwen3_5_moe_text"'],
    [{ text_config: [] }, 'text_config is not an object'],
    [{ hidden_size: 0 }, 'hidden_size is 0, expected a whole number from 1'],
    [{ hidden_size: '64' }, 'hidden_size is "64"'],
    [{ hidden_size: 64.5 }, 'hidden_size is 64.5'],
    [{ vocab_size: 2 ** 40 }, 'vocab_size'],
    [{ num_hidden_layers: 1e6 }, 'num_hidden_layers is 1000000, the limit is 4096'],
    [{ rms_norm_eps: -1 }, 'rms_norm_eps is -1, expected a positive number'],
    [{ layer_types: ['full_attention'] }, 'layer_types has 1 entries, num_hidden_layers is 5'],
    [{ layer_types: 'full_attention' }, 'layer_types has no entries'],
    [{ layer_types: new Array(5).fill('sliding_attention') }, 'contains "sliding_attention"'],
    [{ num_key_value_heads: 3 }, '4 attention heads do not divide into 3 KV heads'],
    [{ linear_num_value_heads: 5 }, '5 value heads do not divide into 2 key heads'],
    [{ mtp_num_hidden_layers: 2 }, 'mtp_num_hidden_layers is 2'],
    [{ partial_rotary_factor: 2 }, 'partial_rotary_factor 2'],
    [{ rope_parameters: { rope_type: 'longrope' } }, 'rope_type is "longrope"'],
    [{ hidden_act: 'gelu' }, 'hidden_act is "gelu"'],
    [{ attention_bias: true }, 'attention_bias'],
    [{ attn_output_gate: false }, 'attn_output_gate'],
  ])('is refused with %j', (change, message) => {
    const parse = () => parseConfig({ ...textOnly, ...change });
    expect(parse).toThrow(UserError);
    expect(parse).toThrow(message);
  });

  it('never fails with anything but a UserError, whatever the JSON', () => {
    const values = fc.dictionary(
      fc.constantFrom(...Object.keys(textOnly), 'rope_parameters', 'text_config'),
      fc.jsonValue(),
    );
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), values), (json) => {
        const config = typeof json === 'object' && json !== null ? { ...textOnly, ...json } : json;
        try {
          parseConfig(config);
        } catch (error) {
          if (!(error instanceof UserError)) throw error;
        }
      }),
      { numRuns: 300 },
    );
  });
});
