import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { rawHeader, smallTensors, writeCheckpoint } from '../../test/support/safetensors.ts';
import { UserError } from '../util/index.ts';
import { buildEngine, openEngineFolder } from './index.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-engine-folder-'));
afterAll(() => rmSync(root, { recursive: true }));
const checkpoint = writeCheckpoint(join(root, 'checkpoint'), smallTensors());
const sound = buildEngine({ checkpoint, out: join(root, 'sound'), recipe: 'nvfp4' });

/** Opens a copy of the sound folder in which something was changed. */
const opening = (change: (folder: string) => void) => {
  const folder = join(root, 'changed');
  rmSync(folder, { recursive: true, force: true });
  cpSync(sound, folder, { recursive: true });
  change(folder);
  return () => {
    try {
      return openEngineFolder(folder);
    } catch (error) {
      expect(error).toBeInstanceOf(UserError);
      expect((error as UserError).code).toBe('bad_engine_folder');
      throw error;
    }
  };
};

interface Manifest {
  format: unknown;
  config: unknown;
  hasMtp: unknown;
  kvScales: unknown;
  weights: Record<string, Record<string, unknown>>;
}
const edited = (change: (json: Manifest) => void) =>
  opening((folder) => {
    const file = join(folder, 'engine.json');
    const json = JSON.parse(readFileSync(file, 'utf8')) as Manifest;
    change(json);
    writeFileSync(file, JSON.stringify(json));
  });
const up = 'model.layers.0.mlp.up_proj.weight';
const withUp = (change: Record<string, unknown>) =>
  edited(({ weights }) => {
    weights[up] = { ...weights[up], ...change };
  });

describe('engine folder on disk', () => {
  it('opens as it was built', () => {
    expect(opening(() => {})().weights.size).toBe(Object.keys(smallTensors()).length);
  });

  it('is refused when a file is missing, cut off or not what it says', () => {
    const weights = (folder: string) => join(folder, 'weights.safetensors');
    expect(opening((folder) => rmSync(weights(folder)))).toThrow('has no weights.safetensors');
    expect(opening((folder) => rmSync(join(folder, 'engine.json')))).toThrow('has no engine.json');
    expect(opening((folder) => truncateSync(weights(folder), 20_000))).toThrow('lies at bytes');
    expect(opening((folder) => truncateSync(weights(folder), 100))).toThrow('in a file of 100');
    expect(opening((folder) => writeFileSync(weights(folder), rawHeader('{}')))).toThrow('is not in weights');
    expect(opening((folder) => writeFileSync(join(folder, 'engine.json'), '{"format":'))).toThrow(
      'can not read',
    );
    expect(opening((folder) => writeFileSync(join(folder, 'engine.json'), 'null'))).toThrow(
      'this version reads 1',
    );
  });

  it('is refused when it is of another version', () => {
    expect(
      edited((json) => {
        json.format = 99;
      }),
    ).toThrow('format 99, this version reads 1');
  });

  it.each([
    [{ format: 'int4' }, 'unknown format int4'],
    [{ format: 'toString' }, 'unknown format'],
    [{ format: 'bf16' }, 'bytes of U8, bf16 [48,32] needs 3072'],
    [{ shape: [48, 48] }, 'needs'],
    [{ shape: [32, 48] }, 'has the shape [32,48], its config needs [48,32]'],
    [{ shape: [-48, -32] }, 'has the shape [-48,-32]'],
    [{ shape: '48' }, 'has the shape [48]'],
    [{ scale: 0 }, 'has the scale 0'],
    [{ scale: null }, 'has the scale null'],
    [{ inputScale: -1 }, 'has the input scale -1'],
    [{ crc: 'x' }, 'has no checksum'],
  ])('is refused when a weight has %j', (change, message) => {
    expect(withUp(change)).toThrow(`'${up}'`);
    expect(withUp(change)).toThrow(message);
  });

  it('is refused when its parts disagree', () => {
    const without = (name: string) => edited((json) => void delete json.weights[name]);
    const having = (change: Partial<Manifest>) => edited((json) => void Object.assign(json, change));
    expect(without('mtp.norm.weight')).toThrow("'mtp.norm.weight' is missing");
    expect(without(up)).toThrow(`'${up}' is missing`);
    expect(having({ config: { model_type: 'llama' } })).toThrow('model_type is "llama"');
    expect(having({ weights: { nothing: {} } })).toThrow("'nothing' is not in weights");
    expect(having({ kvScales: { a: { k: 0, v: 1 } } })).toThrow("cache scales of 'a'");
    expect(having({ kvScales: null })).toThrow('no kvScales');
  });
});
