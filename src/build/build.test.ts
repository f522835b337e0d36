import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { openCheckpoint, readAt, readSafetensorsHeader } from '../checkpoint/index.ts';
import { dequantizeNvfp4, quantizeNvfp4, unpackTiles } from '../dtypes/index.ts';
import { buildEngine, ensureEngine, openEngineFolder } from './index.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-build-'));
const tiny = new URL('../../models/copse-tiny', import.meta.url).pathname;
const untied = new URL('../../test/golden/hybrid-rep3-untied', import.meta.url).pathname;
afterAll(() => rmSync(root, { recursive: true }));

const build = (name: string, checkpoint = untied, recipe: 'nvfp4' | 'plain' = 'nvfp4') =>
  openEngineFolder(buildEngine({ checkpoint, out: join(root, name), recipe }));

describe('engine folder', () => {
  it('quantizes linears and the head, keeps norms, conv, gates and embeddings', () => {
    const { weights, config } = build('tiny', tiny);
    const formats = (pattern: RegExp) =>
      new Set([...weights].filter(([name]) => pattern.test(name)).map(([, w]) => w.format));
    expect(formats(/q_proj|down_proj|in_proj_qkv|in_proj_z|out_proj|lm_head|mtp\.fc/)).toEqual(
      new Set(['nvfp4-tile']),
    );
    expect(formats(/in_proj_[ab]|embed_tokens/)).toEqual(new Set(['bf16']));
    expect(formats(/norm|conv1d|A_log|dt_bias/)).toEqual(new Set(['f32']));
    expect(config.tied).toBe(true);
    for (const { format, error } of weights.values()) {
      expect(error).toBeGreaterThanOrEqual(0);
      expect(error).toBeLessThan(format === 'nvfp4-tile' ? 0.15 : 1e-9);
    }
  });

  it('starts every weight at a page, in a file that any reader of safetensors lists', () => {
    const { weights, weightsFile } = build('aligned');
    for (const { offset } of weights.values()) expect(offset % 4096).toBe(0);
    expect(readSafetensorsHeader(weightsFile).size).toBeGreaterThan(weights.size);
  });

  it('holds the tiles of the quantized weight', () => {
    const { weights, weightsFile } = build('tiles');
    const name = 'model.layers.0.mlp.down_proj.weight';
    const { offset, bytes, shape, scale } = weights.get(name) ?? expect.fail('missing');
    const [outDim, inDim] = shape as [number, number];
    const halves = new Uint16Array(openCheckpoint(untied).read(name).slice().buffer);
    const values = Float32Array.from(
      halves,
      (half) => new Float32Array(Uint32Array.of(half << 16).buffer)[0] ?? 0,
    );
    const tiles = unpackTiles(readAt(weightsFile, offset, bytes), outDim, inDim);
    expect(dequantizeNvfp4({ ...tiles, scale2: scale })).toEqual(
      dequantizeNvfp4(quantizeNvfp4(values, outDim, inDim, { choice: 'least-error' })),
    );
  });

  it('names weights without the prefix of the multimodal wrapper', () => {
    const wrapped = new URL('../../test/golden/hybrid-rep1-tied-vl', import.meta.url).pathname;
    expect([...openCheckpoint(wrapped).tensors.keys()].some((name) => /language_model/.test(name))).toBe(
      true,
    );
    const names = [...build('wrapped', wrapped).weights.keys()];
    expect(names.filter((name) => !/^(model\.(layers\.|norm|embed)|lm_head)/.test(name))).toEqual([]);
  });

  it('keeps bf16 in the plain recipe without loss', () => {
    const { weights } = build('plain', untied, 'plain');
    expect([...weights.values()].every(({ error, format }) => error === 0 && format !== 'nvfp4-tile')).toBe(
      true,
    );
  });

  it('goes on where a killed build stopped, and ends with the same bytes', () => {
    const whole = build('whole');
    const seen: string[] = [];
    const stop = () =>
      buildEngine({
        checkpoint: untied,
        out: join(root, 'killed'),
        recipe: 'nvfp4',
        onProgress: ({ weight, done }) => {
          seen.push(weight);
          if (done === 20) throw new Error('killed');
        },
      });
    expect(stop).toThrow('killed');
    expect(existsSync(join(root, 'killed'))).toBe(false);
    const journal = join(root, 'killed.partial', 'build.journal');
    expect(readFileSync(journal, 'utf8').trim().split('\n')).toHaveLength(21);
    const resumed = build('killed');
    expect(readFileSync(resumed.weightsFile).equals(readFileSync(whole.weightsFile))).toBe(true);
    expect(existsSync(join(root, 'killed.partial'))).toBe(false);
  });

  it('is built once for a checkpoint, by one of several at a time', async () => {
    process.env.COPSE_CACHE = join(root, 'cache');
    let packed = 0;
    const onProgress = () => void packed++;
    const paths = await Promise.all(
      [1, 2, 3].map(() => ensureEngine(untied, { recipe: 'nvfp4', onProgress })),
    );
    expect(new Set(paths).size).toBe(1);
    expect(packed).toBe(openEngineFolder(paths[0] ?? '').weights.size);
    expect(await ensureEngine(paths[0] ?? '', { recipe: 'nvfp4' })).toBe(paths[0]);
    await expect(ensureEngine(join(root, 'nowhere'), { recipe: 'nvfp4' })).rejects.toThrow(/does not exist/);
  });

  it('says where it can not be written', () => {
    writeFileSync(join(root, 'file'), '');
    expect(() => build('file/below')).toThrow(/can not write the engine folder/);
  });
});
