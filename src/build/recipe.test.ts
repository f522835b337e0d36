import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  bf16Tensor,
  f32Tensor,
  noise,
  smallConfig,
  smallTensors,
  type TestTensor,
  writeCheckpoint,
} from '../../test/support/safetensors.ts';
import { openCheckpoint, readAt, readF32 } from '../checkpoint/index.ts';
import { packTiles, quantizeNvfp4, unpackTiles } from '../dtypes/index.ts';
import { buildEngine, type EngineFolder, openEngineFolder, type Recipe } from './index.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-recipe-'));
afterAll(() => rmSync(root, { recursive: true }));

let count = 0;
const build = (
  tensors: Record<string, TestTensor>,
  config: object = smallConfig,
  recipe: Recipe = 'nvfp4',
) => {
  const name = `${count++}`;
  const checkpoint = writeCheckpoint(join(root, `checkpoint-${name}`), tensors, config);
  return openEngineFolder(buildEngine({ checkpoint, out: join(root, name), recipe }));
};
const weightOf = ({ weights, weightsFile }: EngineFolder, name: string) => {
  const weight = weights.get(name) ?? expect.fail(`no ${name}`);
  return { ...weight, data: readAt(weightsFile, weight.offset, weight.bytes) };
};
const down = 'model.layers.1.mlp.down_proj';
const codes = Uint8Array.from({ length: (32 * 48) / 2 }, (_, i) => (i * 73 + 5) & 255);
const scales = Uint8Array.from({ length: 32 * 3 }, (_, i) => 1 + ((i * 31) % 126));
const u8 = (shape: number[], bytes: Uint8Array): TestTensor => ({ dtype: 'U8', shape, bytes });
const f8 = (shape: number[], bytes: Uint8Array): TestTensor => ({ dtype: 'F8_E4M3', shape, bytes });

describe('a quantized checkpoint', () => {
  it.each(['nvfp4', 'plain'] as const)('of ModelOpt NVFP4 keeps its bits in the recipe %s', (recipe) => {
    const engine = build(
      {
        ...smallTensors(),
        [`${down}.weight`]: u8([32, 24], codes),
        [`${down}.weight_scale`]: f8([32, 3], scales),
        [`${down}.weight_scale_2`]: f32Tensor([], [0.0125]),
        [`${down}.input_scale`]: f32Tensor([], [0.5]),
      },
      smallConfig,
      recipe,
    );
    const { data, ...weight } = weightOf(engine, `${down}.weight`);
    expect(weight).toMatchObject({
      format: 'nvfp4-tile',
      scale: Math.fround(0.0125),
      inputScale: 0.5,
      error: 0,
    });
    expect(unpackTiles(data, 32, 48)).toEqual({ codes, scales });
  });

  it('of compressed-tensors becomes the same bits', () => {
    const { [`${down}.weight`]: _, ...rest } = smallTensors();
    const engine = build({
      ...rest,
      [`${down}.weight_packed`]: u8([32, 24], codes),
      [`${down}.weight_scale`]: f8([32, 3], scales),
      [`${down}.weight_global_scale`]: f32Tensor([1], [64]),
    });
    const { data, scale } = weightOf(engine, `${down}.weight`);
    expect(scale).toBe(1 / 64);
    expect(unpackTiles(data, 32, 48)).toEqual({ codes, scales });
  });

  it('of FP8 with one scale keeps its bytes', () => {
    const bytes = Uint8Array.from({ length: 32 * 48 }, (_, i) => (i * 11) % 120);
    const engine = build({
      ...smallTensors(),
      [`${down}.weight`]: f8([32, 48], bytes),
      [`${down}.weight_scale`]: f32Tensor([], [0.25]),
    });
    const { data, ...weight } = weightOf(engine, `${down}.weight`);
    expect(weight).toMatchObject({ format: 'fp8', scale: 0.25, inputScale: null, error: 0 });
    expect(data).toEqual(bytes);
  });

  it.each(['nvfp4', 'plain'] as const)(
    'of FP8 with one block stays as it is with the recipe %s',
    (recipe) => {
      const bytes = Uint8Array.from({ length: 32 * 48 }, (_, i) => (i * 11) % 120);
      const tensors = {
        ...smallTensors(),
        [`${down}.weight`]: f8([32, 48], bytes),
        [`${down}.weight_scale_inv`]: f32Tensor([1, 1], [0.5]),
      };
      const { data, ...weight } = weightOf(build(tensors, smallConfig, recipe), `${down}.weight`);
      expect(weight).toMatchObject({ format: 'fp8', scale: 0.5, error: 0 });
      expect(data).toEqual(bytes);
    },
  );

  it('of a tied model may have a quantized head beside the embedding', () => {
    const shape = [40, 32] as const;
    const head = quantizeNvfp4(
      Float32Array.from({ length: 1280 }, (_, i) => noise(77)(i)),
      ...shape,
    );
    const tensors = {
      ...smallTensors(),
      'lm_head.weight': u8([40, 16], head.codes),
      'lm_head.weight_scale': f8([40, 2], head.scales),
      'lm_head.weight_scale_2': f32Tensor([], [head.scale2]),
    };
    const { data } = weightOf(
      build(tensors, { ...smallConfig, tie_word_embeddings: true }),
      'lm_head.weight',
    );
    expect(data).toEqual(packTiles(head.codes, head.scales, ...shape));
  });
});

describe('the recipe', () => {
  it('gives a tied model a quantized head, and none when nothing is quantized', () => {
    const tied = { ...smallConfig, tie_word_embeddings: true };
    const { 'lm_head.weight': _, ...tensors } = smallTensors();
    expect(weightOf(build(tensors, tied), 'lm_head.weight').format).toBe('nvfp4-tile');
    expect(build(tensors, tied, 'plain').weights.has('lm_head.weight')).toBe(false);
  });

  it('leaves a matrix in bf16 whose rows are no whole blocks', () => {
    const config = { ...smallConfig, intermediate_size: 40 };
    const engine = build(smallTensors(config), config);
    expect(weightOf(engine, `${down}.weight`)).toMatchObject({ format: 'bf16', error: 0 });
    expect(weightOf(engine, 'model.layers.1.mlp.up_proj.weight').format).toBe('nvfp4-tile');
  });

  it('stores norms and vectors in F32 as they are, of any source type', () => {
    const norm = 'model.norm.weight';
    const aLog = 'model.layers.0.linear_attn.A_log';
    const half: TestTensor = { dtype: 'F16', shape: [2], bytes: Uint8Array.of(0, 0x3c, 0, 0xc0) };
    const engine = build({
      ...smallTensors(),
      [norm]: f32Tensor([32], new Array(32).fill(0.1)),
      [aLog]: half,
    });
    const values = (name: string) => new Float32Array(weightOf(engine, name).data.buffer);
    expect(values(norm)).toEqual(new Float32Array(32).fill(0.1));
    expect([...values(aLog)]).toEqual([1, -2]);
  });

  it('packs a large matrix in bands to the same bytes as in one piece', () => {
    const config = { ...smallConfig, vocab_size: 140_000 };
    const tensors = {
      ...smallTensors(),
      'lm_head.weight': bf16Tensor([140_000, 32], (i) => (i % 1999) / 999 - 1),
    };
    const table = { 'model.embed_tokens.weight': bf16Tensor([140_000, 32], () => 0.5) };
    const engine = build({ ...tensors, ...table }, config);
    const source = readF32(openCheckpoint(join(root, `checkpoint-${count - 1}`)), 'lm_head.weight');
    const whole = quantizeNvfp4(source, 140_000, 32, { choice: 'least-error' });
    const { data, scale } = weightOf(engine, 'lm_head.weight');
    expect(scale).toBe(whole.scale2);
    expect(Buffer.compare(data, packTiles(whole.codes, whole.scales, 140_000, 32))).toBe(0);
  });

  it('refuses weights that are not finite', () => {
    const broken = (name: string, shape: number[]) => () =>
      build({ ...smallTensors(), [name]: bf16Tensor(shape, (i) => (i === 7 ? Number.NaN : 1)) });
    expect(broken(`${down}.weight`, [32, 48])).toThrow(`tensor '${down}.weight' contains NaN`);
    expect(broken('model.norm.weight', [32])).toThrow("tensor 'model.norm.weight' contains NaN");
  });
});
