import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  bf16Tensor,
  f32Tensor,
  noise,
  safetensorsBytes,
  smallConfig,
  smallTensors,
  type TestTensor,
  writeCheckpoint,
} from '../../test/support/safetensors.ts';
import { dequantizeNvfp4, e4m3Decode, quantizeNvfp4 } from '../dtypes/index.ts';
import { UserError } from '../util/index.ts';
import {
  describeWeight,
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  hasMtp,
  kvScales,
  memoryCheckpoint,
  openCheckpoint,
  parseConfig,
  readF32,
  validateCheckpoint,
} from './index.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-checkpoint-'));
afterAll(() => rmSync(root, { recursive: true }));
const bundled = (path: string) => new URL(`../../${path}`, import.meta.url).pathname;
const up = 'model.layers.0.mlp.up_proj';
const upWeight: ExpectedWeight = { name: `${up}.weight`, shape: [48, 32], linear: true };
const whole = { from: 0, count: 48 };
const values = Float32Array.from({ length: 48 * 32 }, (_, i) => noise(5)(i));
const u8 = (shape: number[], bytes: Uint8Array): TestTensor => ({ dtype: 'U8', shape, bytes });
const f8 = (shape: number[], bytes: Uint8Array): TestTensor => ({ dtype: 'F8_E4M3', shape, bytes });
/** The small checkpoint with its `up_proj` stored in another way. */
const withUp = (tensors: Record<string, TestTensor>) => {
  const { [`${up}.weight`]: _, ...rest } = smallTensors();
  return memoryCheckpoint(smallConfig, { ...rest, ...tensors });
};

describe('checkpoint folder', () => {
  it.each([
    ['models/copse-tiny', true, true],
    ['test/golden/hybrid-rep1-tied-vl', true, false],
    ['test/golden/hybrid-rep3-untied', false, false],
  ])('opens and validates %s', (path, tied, mtp) => {
    const ck = openCheckpoint(bundled(path));
    validateCheckpoint(ck);
    expect([ck.config.tied, hasMtp(ck)]).toEqual([tied, mtp]);
  });

  it('joins eos ids of config and generation config', () => {
    const folder = writeCheckpoint(join(root, 'eos'), smallTensors());
    writeFileSync(join(folder, 'generation_config.json'), '{"eos_token_id":[7,3]}');
    expect(openCheckpoint(folder).eosTokenIds).toEqual([3, 7]);
  });

  it('has the tensors and parameters of the published 27B', () => {
    const config = parseConfig({
      model_type: 'qwen3_5_text',
      hidden_size: 5120,
      intermediate_size: 17_408,
      num_hidden_layers: 64,
      num_attention_heads: 24,
      linear_num_value_heads: 48,
    });
    const size = (list: ExpectedWeight[]) =>
      list.reduce((sum, { shape }) => sum + shape.reduce((product, dim) => product * dim, 1), 0);
    const [model, mtp] = [expectedWeights(config), expectedMtpWeights(config)];
    expect([model.length, mtp.length]).toEqual([851, 15]);
    expect([size(model), size(mtp)]).toEqual([26_895_998_464, 424_699_392]);
  });

  it('reads shards, ignoring the vision tower and tensors of no interest', () => {
    const folder = join(root, 'sharded');
    mkdirSync(folder);
    const all = Object.entries(smallTensors()).map(
      ([name, tensor]) => [name.replace(/^model\./, 'model.language_model.'), tensor] as const,
    );
    const halves = [all.filter((_, i) => i % 2 === 0), all.filter((_, i) => i % 2 === 1)];
    const weightMap: Record<string, string> = {};
    for (const [i, half] of halves.entries()) {
      const tensors = { ...Object.fromEntries(half), [`model.visual.${i}`]: f32Tensor([1], [0]) };
      writeFileSync(join(folder, `model-${i}.safetensors`), safetensorsBytes(tensors));
      for (const name of Object.keys(tensors)) weightMap[name] = `model-${i}.safetensors`;
    }
    writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify({ weight_map: weightMap }));
    writeFileSync(
      join(folder, 'config.json'),
      JSON.stringify({ model_type: 'qwen3_5', text_config: smallConfig }),
    );
    const ck = openCheckpoint(folder);
    validateCheckpoint(ck);
    const stored = describeWeight(ck, upWeight);
    const twin = memoryCheckpoint(smallConfig, smallTensors());
    expect(stored.rows(whole)).toEqual(describeWeight(twin, upWeight).rows(whole));
    expect(ck.read('model.language_model.norm.weight', { from: 4, bytes: 6 })).toEqual(
      twin.read('model.norm.weight').slice(4, 10),
    );
  });

  it.each(['../x.safetensors', '/etc/passwd', 'a/b.safetensors', '..', '', 7, null])(
    'refuses the shard %j',
    (shard) => {
      const folder = join(root, 'escape');
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, 'config.json'), JSON.stringify(smallConfig));
      const index = { weight_map: { a: shard } };
      writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify(index));
      expect(() => openCheckpoint(folder)).toThrow(/'a' names the shard .*, a file name was expected/);
    },
  );

  it.each([
    ['{"weight_map":{"a":"gone.safetensors"}}', 'can not open'],
    ['{"weight_map":{"a":"there.safetensors"}}', "there.safetensors lacks the tensor 'a'"],
    ['{"weight_map":[]}', "'model.embed_tokens.weight' is missing"],
    ['{}', 'has no weight_map'],
    ['null', 'has no weight_map'],
    ['{', 'can not read'],
  ])('refuses the index %s', (index, message) => {
    const folder = join(root, 'index');
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'config.json'), JSON.stringify(smallConfig));
    writeFileSync(join(folder, 'there.safetensors'), safetensorsBytes({ b: f32Tensor([1], [0]) }));
    writeFileSync(join(folder, 'model.safetensors.index.json'), index);
    expect(() => validateCheckpoint(openCheckpoint(folder))).toThrow(UserError);
    expect(() => validateCheckpoint(openCheckpoint(folder))).toThrow(message);
  });

  it('refuses a folder without config or weights, and broken JSON', () => {
    const folder = join(root, 'bare');
    mkdirSync(folder);
    expect(() => openCheckpoint(folder)).toThrow('has no config.json');
    writeFileSync(join(folder, 'config.json'), '{"model_type":');
    expect(() => openCheckpoint(folder)).toThrow(/can not read .*config.json/);
    writeFileSync(join(folder, 'config.json'), JSON.stringify(smallConfig));
    expect(() => openCheckpoint(folder)).toThrow(/can not open .*model.safetensors/);
    expect(() => openCheckpoint(join(root, 'nowhere'))).toThrow(UserError);
  });
});

describe('validation', () => {
  const check = (change: Record<string, TestTensor | undefined>, config: object = smallConfig) => {
    const tensors = Object.entries({ ...smallTensors(), ...change }).filter(
      ([, tensor]) => tensor !== undefined,
    );
    return () =>
      validateCheckpoint(memoryCheckpoint(config, Object.fromEntries(tensors) as Record<string, TestTensor>));
  };

  it('names the tensor, what was expected and what was found', () => {
    const norm = 'model.layers.1.self_attn.q_norm.weight';
    expect(check({ [norm]: undefined })).toThrow(`tensor '${norm}' is missing, expected BF16/F16/F32 [16]`);
    expect(check({ [norm]: bf16Tensor([8], () => 0) })).toThrow(
      `'${norm}' is BF16 [8], expected BF16/F16/F32 [16]`,
    );
    expect(check({ [norm]: u8([16], new Uint8Array(16)) })).toThrow(`'${norm}' is U8 [16], expected BF16`);
    expect(check({ 'lm_head.weight': undefined })).toThrow("'lm_head.weight' is missing");
    expect(check({ 'model.layers.0.linear_attn.A_log': bf16Tensor([2, 1], () => 0) })).toThrow('BF16 [2, 1]');
  });

  it('asks for every MTP tensor when there is one, and for none when there is none', () => {
    expect(check({ 'mtp.norm.weight': undefined })).toThrow("'mtp.norm.weight' is missing");
    const without = Object.fromEntries(
      Object.entries(smallTensors()).filter(([name]) => !name.startsWith('mtp.')),
    );
    const ck = memoryCheckpoint(smallConfig, without);
    validateCheckpoint(ck);
    expect(hasMtp(ck)).toBe(false);
  });

  it('needs no head when the embedding is tied', () => {
    check({ 'lm_head.weight': undefined }, { ...smallConfig, tie_word_embeddings: true })();
  });

  it('finds a config that disagrees with the weights', () => {
    expect(check({}, { ...smallConfig, intermediate_size: 64 })).toThrow('expected BF16/F16/F32 [64, 32]');
    expect(check({}, { ...smallConfig, num_hidden_layers: 3, layer_types: undefined })).toThrow('is missing');
  });
});

describe('stored weights', () => {
  const { codes, scales, scale2 } = quantizeNvfp4(values, 48, 32);

  it('are ModelOpt NVFP4 when weight is U8', () => {
    const ck = withUp({
      [`${up}.weight`]: u8([48, 16], codes),
      [`${up}.weight_scale`]: f8([48, 2], scales),
      [`${up}.weight_scale_2`]: f32Tensor([], [scale2]),
      [`${up}.input_scale`]: f32Tensor([], [0.25]),
    });
    validateCheckpoint(ck);
    const stored = describeWeight(ck, upWeight);
    expect(stored).toMatchObject({ kind: 'nvfp4', scale2, inputScale: 0.25 });
    expect(stored.rows(whole)).toEqual(dequantizeNvfp4({ codes, scales, scale2 }));
  });

  it('are compressed-tensors NVFP4 when there is weight_packed, with reciprocal scales', () => {
    const ck = withUp({
      [`${up}.weight_packed`]: u8([48, 16], codes),
      [`${up}.weight_scale`]: f8([48, 2], scales),
      [`${up}.weight_global_scale`]: f32Tensor([1], [1024]),
      [`${up}.input_global_scale`]: f32Tensor([1], [8]),
    });
    validateCheckpoint(ck);
    expect(describeWeight(ck, upWeight)).toMatchObject({
      kind: 'nvfp4',
      scale2: 1 / 1024,
      inputScale: 1 / 8,
    });
  });

  it('are FP8 with one scale, or with one per block of 128', () => {
    const bytes = Uint8Array.from({ length: 48 * 32 }, (_, i) => (i * 7) % 126);
    const one = withUp({
      [`${up}.weight`]: f8([48, 32], bytes),
      [`${up}.weight_scale`]: bf16Tensor([1], () => 0.5),
      [`${up}.input_scale`]: f32Tensor([], [0]),
    });
    const stored = describeWeight(one, upWeight);
    expect(stored).toMatchObject({ kind: 'fp8', scale: 0.5, inputScale: null });
    expect(stored.rows(whole)[9]).toBe(0.5 * (e4m3Decode[63] ?? 0));
    const shape = [200, 160];
    const blocks = memoryCheckpoint(smallConfig, {
      'x.weight': f8(shape, new Uint8Array(200 * 160).fill(0x38)),
      'x.weight_scale_inv': f32Tensor([2, 2], [1, 2, 3, 4]),
    });
    const blockwise = describeWeight(blocks, { name: 'x.weight', shape, linear: true });
    const all = blockwise.rows({ from: 0, count: 200 });
    expect([all[0], all[159], all[128 * 160 + 127], all[199 * 160 + 128]]).toEqual([1, 2, 3, 4]);
    const rows = blockwise.rows({ from: 100, count: 60 });
    expect(rows).toEqual(all.slice(100 * 160, 160 * 160));
  });

  it('give the same values by rows as whole, in every format', () => {
    const plain = memoryCheckpoint(smallConfig, smallTensors());
    const nvfp4 = withUp({
      [`${up}.weight`]: u8([48, 16], codes),
      [`${up}.weight_scale`]: f8([48, 2], scales),
      [`${up}.weight_scale_2`]: f32Tensor([1], [scale2]),
    });
    for (const ck of [plain, nvfp4]) {
      const stored = describeWeight(ck, upWeight);
      const rows = stored.rows({ from: 5, count: 7 });
      expect(rows).toEqual(stored.rows(whole).slice(5 * 32, 12 * 32));
    }
  });

  it('may be F16 and F32 as well as BF16', () => {
    const ck = memoryCheckpoint(smallConfig, {
      h: { dtype: 'F16', shape: [2], bytes: Uint8Array.of(0, 0x3c, 0, 0xc0) },
      f: f32Tensor([2], [1.25, -3]),
      i: { dtype: 'I32', shape: [1], bytes: new Uint8Array(4) },
    });
    expect([...readF32(ck, 'h'), ...readF32(ck, 'f')]).toEqual([1, -2, 1.25, -3]);
    expect(() => readF32(ck, 'i')).toThrow("'i' is I32, expected BF16/F16/F32");
  });

  it.each([
    [{ [`${up}.weight_scale_2`]: undefined }, `'${up}.weight_scale_2' is missing, expected one value`],
    [{ [`${up}.weight_scale_2`]: f32Tensor([2], [1, 1]) }, 'is F32 [2], expected one value'],
    [{ [`${up}.weight_scale_2`]: f32Tensor([], [Number.NaN]) }, 'is NaN, expected a finite scale'],
    [{ [`${up}.weight_scale_2`]: f32Tensor([], [-1]) }, 'is -1, expected a finite scale'],
    [{ [`${up}.weight_scale_2`]: f32Tensor([], [0]) }, 'is 0, expected a scale above 0'],
    [{ [`${up}.input_scale`]: f32Tensor([], [Infinity]) }, `'${up}.input_scale' is Infinity`],
    [
      { [`${up}.weight_scale`]: f8([48, 3], new Uint8Array(144)) },
      'is F8_E4M3 [48, 3], expected F8_E4M3 [48, 2]',
    ],
    [{ [`${up}.weight`]: u8([48, 32], new Uint8Array(48 * 32)) }, 'is U8 [48, 32], expected U8 [48, 16]'],
  ])('are refused when %j', (change, message) => {
    const tensors = Object.entries({
      [`${up}.weight`]: u8([48, 16], codes),
      [`${up}.weight_scale`]: f8([48, 2], scales),
      [`${up}.weight_scale_2`]: f32Tensor([], [scale2]),
      ...change,
    }).filter((pair): pair is [string, TestTensor] => pair[1] !== undefined);
    const describeIt = () => describeWeight(withUp(Object.fromEntries(tensors)), upWeight);
    expect(describeIt).toThrow(UserError);
    expect(describeIt).toThrow(message);
  });

  it('have cache scales of the layer or of its projections, else 1', () => {
    const stem = 'model.layers.1.self_attn';
    const scalesOf = (tensors: Record<string, TestTensor>) =>
      kvScales(memoryCheckpoint(smallConfig, tensors), stem);
    expect(scalesOf({})).toEqual({ k: 1, v: 1 });
    expect(scalesOf({ [`${stem}.k_proj.k_scale`]: f32Tensor([], [2]) })).toEqual({ k: 2, v: 1 });
    expect(scalesOf({ 'model.language_model.layers.1.self_attn.v_scale': f32Tensor([1], [3]) })).toEqual({
      k: 1,
      v: 3,
    });
    expect(() => scalesOf({ [`${stem}.k_scale`]: f32Tensor([], [0]) })).toThrow('is 0');
  });
});
