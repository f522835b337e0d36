/** What a build must never destroy, and what it says when it can not go on. */
import type * as fs from 'node:fs';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { bf16Tensor, smallConfig, smallTensors, writeCheckpoint } from '../../test/support/safetensors.ts';
import { openCheckpoint, readSafetensorsHeader } from '../checkpoint/index.ts';
import { UserError } from '../util/index.ts';
import { buildEngine, engineCachePath, fingerprint, openEngineFolder, type Recipe } from './index.ts';

/** Bytes that the disk still takes, and that it says it has free. */
const disk = vi.hoisted(() => ({ takes: Number.POSITIVE_INFINITY, free: null as number | null }));

vi.mock('node:fs', async (importOriginal) => {
  const real = await importOriginal<typeof fs>();
  return {
    ...real,
    writeSync(fd: number, bytes: Uint8Array, ...rest: [number, number, number]) {
      disk.takes -= bytes.length;
      if (disk.takes < 0)
        throw Object.assign(new Error('ENOSPC: no space left on device, write'), {
          code: 'ENOSPC',
          syscall: 'write',
        });
      return real.writeSync(fd, bytes, ...rest);
    },
    statfsSync: (path: string) =>
      disk.free === null ? real.statfsSync(path) : { bavail: disk.free / 4096, bsize: 4096 },
  };
});

const root = mkdtempSync(join(tmpdir(), 'copse-safety-'));
afterAll(() => rmSync(root, { recursive: true }));
beforeEach(() => {
  disk.takes = Number.POSITIVE_INFINITY;
  disk.free = null;
});

const checkpoint = writeCheckpoint(join(root, 'checkpoint'), smallTensors());
const out = join(root, 'out');
const build =
  (folder = out, source = checkpoint) =>
  () =>
    buildEngine({ checkpoint: source, out: folder, recipe: 'nvfp4' });
const lockText = (pid: number, host = hostname()) => JSON.stringify({ pid, host });
const gonePid = 2 ** 22 + 1;

describe('output folder', () => {
  it('is never one that is not an engine folder', () => {
    const folder = join(root, 'precious');
    mkdirSync(folder);
    writeFileSync(join(folder, 'thesis.txt'), 'years of work');
    expect(build(folder)).toThrow('exists and is not an engine folder');
    expect(build(join(folder, 'thesis.txt'))).toThrow('exists and is not an engine folder');
    expect(readFileSync(join(folder, 'thesis.txt'), 'utf8')).toBe('years of work');
  });

  it('is never the checkpoint, a folder around it, or a link to it', () => {
    writeFileSync(join(root, 'engine.json'), '{}');
    symlinkSync(checkpoint, join(root, 'link'));
    for (const folder of [checkpoint, root, join(root, 'link'), `${checkpoint}/`])
      expect(build(folder)).toThrow('holds the checkpoint');
    rmSync(join(root, 'engine.json'));
    expect(existsSync(join(checkpoint, 'model.safetensors'))).toBe(true);
  });

  it('may be empty, or an engine folder, which is replaced', () => {
    const folder = join(root, 'again');
    mkdirSync(folder);
    expect(build(`${folder}/`)()).toBe(`${folder}/`);
    writeFileSync(join(folder, 'engine.json'), '{"format":0}');
    build(folder)();
    expect(openEngineFolder(folder).config.hiddenSize).toBe(32);
  });

  it('is not built over something else in the place of an unfinished build', () => {
    const partial = join(root, 'other.partial');
    mkdirSync(partial);
    writeFileSync(join(partial, 'notes.txt'), 'mine');
    expect(build(join(root, 'other'))).toThrow('is in the way');
    expect(existsSync(join(partial, 'notes.txt'))).toBe(true);
  });

  it('needs a recipe that exists and a checkpoint that is sound', () => {
    const odd = () => buildEngine({ checkpoint, out, recipe: 'int4' as Recipe });
    expect(odd).toThrow("recipe is 'int4', known are nvfp4, plain");
    const bad = writeCheckpoint(join(root, 'bad'), {
      ...smallTensors(),
      'model.norm.weight': bf16Tensor([8], () => 0),
    });
    expect(build(out, bad)).toThrow("'model.norm.weight' is BF16 [8]");
    expect(existsSync(`${out}.partial`)).toBe(false);
  });
});

describe('a build that stops', () => {
  const up = 'model.layers.0.mlp.up_proj.weight';
  const isSameAsUndisturbed = (folder: string): boolean =>
    readFileSync(join(folder, 'weights.safetensors')).equals(
      readFileSync(join(build()(), 'weights.safetensors')),
    );

  it('on a full disk says so, and goes on when there is space', () => {
    disk.takes = 20_000;
    const folder = join(root, 'full');
    expect(build(folder)).toThrow(/can not write the engine folder .*full: ENOSPC/);
    expect(existsSync(folder)).toBe(false);
    disk.takes = Number.POSITIVE_INFINITY;
    build(folder)();
    expect(isSameAsUndisturbed(folder)).toBe(true);
  });

  it('asks for the space before it starts', () => {
    disk.free = 4096;
    expect(build(join(root, 'small'))).toThrow(/needs \d+ more bytes, its disk has 4096 free/);
  });

  it('does not trust what it left: damaged bytes and journal lines are made again', () => {
    const folder = join(root, 'damaged');
    const partial = `${folder}.partial`;
    const stop = () =>
      buildEngine({
        checkpoint,
        out: folder,
        recipe: 'nvfp4',
        onProgress: ({ done }) => {
          if (done === 20) throw new Error('killed');
        },
      });
    expect(stop).toThrow('killed');
    const weights = readFileSync(join(partial, 'weights.safetensors'));
    const { offset, bytes } =
      readSafetensorsHeader(join(partial, 'weights.safetensors')).get(up) ?? expect.fail();
    weights.fill(255, offset, offset + bytes);
    writeFileSync(join(partial, 'weights.safetensors'), weights);
    const journal = join(partial, 'build.journal');
    const lines = readFileSync(journal, 'utf8').trimEnd().split('\n');
    const wrongFormat = { name: 'lm_head.weight', format: 'bf16', shape: [40, 32], scale: 1, crc: 0 };
    writeFileSync(
      journal,
      [...lines, 'null', '{"name":', JSON.stringify(wrongFormat), '{"name":"x'].join('\n'),
    );
    build(folder)();
    expect(isSameAsUndisturbed(folder)).toBe(true);
    expect(existsSync(join(folder, 'build.journal'))).toBe(false);
  });

  it('is started anew when the checkpoint changed meanwhile', () => {
    const folder = join(root, 'changed');
    const source = writeCheckpoint(join(root, 'changing'), smallTensors());
    disk.takes = 30_000;
    expect(build(folder, source)).toThrow('ENOSPC');
    disk.takes = Number.POSITIVE_INFINITY;
    writeCheckpoint(source, { ...smallTensors(), 'lm_head.weight': bf16Tensor([40, 32], () => 0.25) });
    build(folder, source)();
    expect(openEngineFolder(folder).manifest.source).toBe(`${fingerprint(openCheckpoint(source))}-nvfp4`);
  });
});

describe('lock', () => {
  const folder = join(root, 'locked');
  const lock = `${folder}.lock`;

  it('keeps a second builder out while the first one lives', () => {
    for (const text of [lockText(process.pid), lockText(gonePid, 'another-host'), '']) {
      writeFileSync(lock, text);
      expect(build(folder)).toThrow('is being built by another process');
      expect(readFileSync(lock, 'utf8')).toBe(text);
    }
  });

  it('is taken over from a process that is gone, or that has not touched it for long', () => {
    const hourAgo = new Date(Date.now() - 3_600_000);
    for (const [text, touched] of [
      [lockText(gonePid), new Date()],
      [lockText(1, 'another-host'), hourAgo],
      ['', hourAgo],
      ['{"pid":-1}', hourAgo],
    ] as const) {
      writeFileSync(lock, text);
      utimesSync(lock, touched, touched);
      build(folder)();
      expect(existsSync(lock)).toBe(false);
    }
  });

  it('is given back by a build that fails', () => {
    disk.takes = 10_000;
    expect(build(join(root, 'failing'))).toThrow(UserError);
    expect(existsSync(join(root, 'failing.lock'))).toBe(false);
  });
});

describe('fingerprint', () => {
  const of = (name: string, tensors = smallTensors(), extra: Record<string, string> = {}) => {
    const folder = writeCheckpoint(join(root, name), tensors, smallConfig);
    for (const [file, text] of Object.entries(extra)) writeFileSync(join(folder, file), text);
    return fingerprint(openCheckpoint(folder));
  };

  it('is that of the content, wherever it lies', () => {
    expect(of('a')).toBe(of('b'));
  });

  it('differs with one value of one matrix, and with the chat template', () => {
    const name = 'model.layers.1.mlp.gate_proj.weight';
    const { bytes, ...rest } = smallTensors()[name] ?? expect.fail();
    const changed = bytes.slice();
    changed[100] = (changed[100] ?? 0) ^ 1;
    const marks = [
      of('a'),
      of('c', { ...smallTensors(), [name]: { ...rest, bytes: changed } }),
      of('d', smallTensors(), { 'chat_template.jinja': 'x' }),
    ];
    expect(new Set(marks).size).toBe(3);
  });

  it('names the cache folder, under the home when COPSE_CACHE is empty', () => {
    process.env.COPSE_CACHE = '/somewhere';
    expect(engineCachePath(checkpoint, 'plain')).toBe(
      `/somewhere/${fingerprint(openCheckpoint(checkpoint))}-plain`,
    );
    process.env.COPSE_CACHE = '';
    expect(engineCachePath(checkpoint, 'nvfp4')).toMatch(/\.cache\/copse\/[0-9a-f]{16}-nvfp4$/);
    delete process.env.COPSE_CACHE;
  });
});
