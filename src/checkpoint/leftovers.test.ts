/** Nothing of a checkpoint is passed over: what changes an answer is computed or refused by name. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  bf16Tensor,
  f32Tensor,
  safetensorsBytes,
  smallConfig,
  smallTensors,
  type TestTensor,
  writeCheckpoint,
} from '../../test/support/safetensors.ts';
import { hasMtp, memoryCheckpoint, openCheckpoint, parseConfig, validateCheckpoint } from './index.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-leftovers-'));
afterAll(() => rmSync(root, { recursive: true }));

const up = 'model.layers.0.mlp.up_proj';
const one = f32Tensor([1], [1]);
const check =
  (extra: Record<string, TestTensor>, config: object = {}) =>
  () =>
    validateCheckpoint(memoryCheckpoint({ ...smallConfig, ...config }, { ...smallTensors(), ...extra }));

describe('a tensor that no weight uses', () => {
  it.each([
    [`${up}.bias`, `'${up}.bias': no part of a model`],
    [`${up}.something_scale`, 'no part of a model'],
    ['model.layers.2.mlp.up_proj.weight', 'no part of a model'],
    ['mtp.embed_tokens.weight', "'mtp.embed_tokens.weight'"],
    [`${up}.svdquant_lora_a`, 'NVFP4_SVD'],
    [`${up}.weight.absmax`, 'bitsandbytes'],
    [`${up}.lora_A.weight`, 'LoRA'],
    ['score.weight', 'classification head'],
    [`${up}.weight_scale`, 'no part of a model'],
  ])('%s is refused', (name, message) => {
    expect(check({ [name]: one })).toThrow(message);
  });

  it.each(['model.visual.blocks.0.weight', 'visual.x', 'model.layers.1.self_attn.rotary_emb.inv_freq'])(
    '%s is allowed',
    (name) => {
      expect(check({ [name]: one })).not.toThrow();
    },
  );

  it('counts the others when there are many', () => {
    const many = Object.fromEntries(Array.from({ length: 9 }, (_, i) => [`x.${i}`, one]));
    expect(check(many)).toThrow("'x.0', 'x.1', 'x.2' and 6 more");
  });

  it('may be the head of a tied model only when it is the embedding', () => {
    const { 'model.embed_tokens.weight': embedding } = smallTensors();
    const tied = { tie_word_embeddings: true };
    expect(check({ 'lm_head.weight': embedding as TestTensor }, tied)).not.toThrow();
    expect(check({ 'lm_head.weight': bf16Tensor([40, 32], () => 1) }, tied)).toThrow(
      "'lm_head.weight' differs from the embedding",
    );
  });

  it('may not be a cache scale of a layer without a cache, and has to be sound', () => {
    expect(check({ 'model.layers.1.self_attn.k_proj.k_scale': one })).not.toThrow();
    expect(check({ 'model.layers.1.self_attn.k_proj.k_scale': f32Tensor([], [0]) })).toThrow('is 0');
    expect(check({ 'model.layers.0.self_attn.k_proj.k_scale': one })).toThrow('no part of a model');
  });
});

describe('a config key that changes the computation', () => {
  it.each([
    [{ output_gate_type: 'sigmoid' }, 'output_gate_type is "sigmoid", known are swish and silu'],
    [{ architectures: ['Qwen3_5ForSequenceClassification'] }, 'classification head'],
    [
      { quantization_config: { transform_config: { config_groups: { R1: { type: 'hadamard' } } } } },
      'transform_config',
    ],
    [{ quantization_config: { quant_algo: 'NVFP4_SVD' } }, 'NVFP4_SVD'],
    [{ use_sliding_window: true }, 'use_sliding_window is true'],
    [
      {
        rope_parameters: { rope_type: 'default', rope_theta: 1e7 },
        rope_scaling: { type: 'yarn', factor: 4 },
      },
      'rope_scaling and rope_parameters disagree',
    ],
  ])('%j is refused', (change, message) => {
    expect(() => parseConfig({ ...smallConfig, ...change })).toThrow(message);
  });

  it.each([
    { output_gate_type: 'swish' },
    { architectures: ['Qwen3_5ForCausalLM'] },
    { quantization_config: { transform_config: {}, quant_method: 'modelopt' } },
    { rope_parameters: { rope_theta: 1e7 }, rope_scaling: { type: 'mrope', mrope_section: [11, 11, 10] } },
    {
      rope_parameters: { rope_type: 'yarn', factor: 4, rope_theta: 1e7 },
      rope_scaling: { type: 'yarn', factor: 4 },
    },
  ])('%j is none', (change) => {
    expect(parseConfig({ ...smallConfig, ...change }).hiddenSize).toBe(32);
  });
});

describe('an MTP layer in a file beside the index', () => {
  const split = Object.entries(smallTensors());
  const mtp = Object.fromEntries(split.filter(([name]) => name.startsWith('mtp.')));
  const main = Object.fromEntries(split.filter(([name]) => !name.startsWith('mtp.')));

  it('is read', () => {
    const folder = writeCheckpoint(join(root, 'side'), main);
    expect(hasMtp(openCheckpoint(folder))).toBe(false);
    writeFileSync(join(folder, 'model.mtp.safetensors'), safetensorsBytes(mtp));
    const ck = openCheckpoint(folder);
    validateCheckpoint(ck);
    expect([hasMtp(ck), ck.read('mtp.norm.weight')]).toEqual([true, mtp['mtp.norm.weight']?.bytes]);
  });

  it('is refused when it is not whole', () => {
    const { 'mtp.fc.weight': _, ...rest } = mtp;
    const folder = writeCheckpoint(join(root, 'part'), main);
    writeFileSync(join(folder, 'mtp.safetensors'), safetensorsBytes(rest));
    expect(() => validateCheckpoint(openCheckpoint(folder))).toThrow("'mtp.fc.weight' is missing");
  });
});
