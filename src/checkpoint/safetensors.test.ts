import { mkdirSync, mkdtempSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, describe, expect, it } from 'vitest';
import { f32Tensor, rawHeader, safetensorsBytes } from '../../test/support/safetensors.ts';
import { UserError } from '../util/index.ts';
import { maxHeaderBytes, readAt, readSafetensorsHeader } from './index.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-safetensors-'));
afterAll(() => rmSync(root, { recursive: true }));

const file = join(root, 'x.safetensors');
const list = (bytes: Uint8Array) => {
  writeFileSync(file, bytes);
  return readSafetensorsHeader(file);
};
const entry = (change: object) =>
  JSON.stringify({ a: { dtype: 'F32', shape: [2], data_offsets: [0, 8], ...change } });
const problem = (bytes: Uint8Array): string => {
  try {
    list(bytes);
  } catch (error) {
    expect(error).toBeInstanceOf(UserError);
    expect((error as UserError).code).toBe('bad_checkpoint');
    expect((error as UserError).message.length).toBeLessThan(500);
    return (error as UserError).message;
  }
  return expect.fail('accepted');
};
const ofHeader = (text: string, dataBytes = 8) => problem(rawHeader(text, new Uint8Array(dataBytes)));

describe('safetensors header', () => {
  it('lists tensors with their place in the file, and passes over metadata', () => {
    const text = `{"__metadata__":{"a":"1","format":"pt"},${entry({}).slice(1)}   `;
    const tensors = list(rawHeader(text, new Uint8Array(8)));
    expect([...tensors.values()]).toEqual([
      { name: 'a', dtype: 'F32', shape: [2], file, offset: 8 + text.length, bytes: 8 },
    ]);
  });

  it('accepts scalars, empty tensors and names that objects have', () => {
    const tensors = list(
      safetensorsBytes(
        Object.fromEntries([
          ['__proto__', f32Tensor([], [1.5])],
          ['empty', f32Tensor([0, 7], [])],
          ['constructor', f32Tensor([1], [2])],
        ]),
      ),
    );
    expect([...tensors.keys()]).toEqual(['__proto__', 'empty', 'constructor']);
    const { offset, bytes } = tensors.get('__proto__') ?? expect.fail('missing');
    expect(new Float32Array(readAt(file, offset, bytes).buffer)).toEqual(Float32Array.of(1.5));
  });

  it('is refused when its length lies', () => {
    const length = (value: bigint) => {
      const bytes = Buffer.alloc(64, ' ');
      bytes.writeBigUInt64LE(value);
      return problem(bytes);
    };
    expect(problem(new Uint8Array(7))).toMatch('has 7 bytes');
    expect(length(1000n)).toMatch('header of 1000 bytes in a file of 64');
    expect(length(BigInt(maxHeaderBytes) + 1n)).toMatch(`the limit is ${maxHeaderBytes}`);
    expect(length(2n ** 64n - 1n)).toMatch('the limit is');
    expect(length(0n)).toMatch('not JSON');
  });

  it.each([
    ['text', 'not JSON'],
    ['[]', 'not an object'],
    ['null', 'not an object'],
    ['"a"', 'not an object'],
    ['{"a":null}', 'unknown dtype undefined'],
    ['{"a":7}', 'unknown dtype'],
    ['{"a":[]}', 'unknown dtype'],
    ['\u{feff}{}', 'not JSON'],
    ['{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}', 'not JSON'],
  ])('is refused when it is %s', (text, message) => {
    expect(ofHeader(text)).toMatch(message);
  });

  it.each([
    [{ dtype: 'F33' }, 'dtype "F33"'],
    [{ dtype: 'toString' }, 'dtype "toString"'],
    [{ dtype: '__proto__' }, 'dtype "__proto__"'],
    [{ dtype: 4 }, 'dtype 4'],
    [{ shape: 2 }, 'bad shape 2'],
    [{ shape: [-2] }, 'bad shape [-2]'],
    [{ shape: [2.5] }, 'bad shape [2.5]'],
    [{ shape: ['2'] }, 'bad shape ["2"]'],
    [{ shape: [null] }, 'bad shape [null]'],
    [{ shape: [1e300] }, 'bad shape [1e+300]'],
    [{ shape: new Array(17).fill(1) }, 'bad shape'],
    [{ shape: [3] }, 'has 8 bytes, its shape [3] needs 12'],
    [{ shape: [2 ** 52, 2 ** 52] }, 'has 8 bytes'],
    [{ data_offsets: [0] }, 'bad data_offsets'],
    [{ data_offsets: [0, 8, 9] }, 'bad data_offsets'],
    [{ data_offsets: [-8, 0] }, 'bad data_offsets'],
    [{ data_offsets: [0.5, 8.5] }, 'bad data_offsets'],
    [{ data_offsets: { 0: 0, 1: 8, length: 2 } }, 'bad data_offsets an object'],
    [{ data_offsets: [8, 0] }, 'lies at bytes 8 to 0 of 8'],
    [{ data_offsets: [4, 12] }, 'lies at bytes 4 to 12 of 8'],
    [{ data_offsets: [2 ** 53 - 9, 2 ** 53 - 1] }, 'lies at bytes'],
  ])('is refused for a tensor with %j', (change, message) => {
    expect(ofHeader(entry(change))).toContain(message);
  });

  it('is refused when tensors overlap', () => {
    const a = '"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}';
    const b = '"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}';
    expect(ofHeader(`{${b},${a}}`)).toMatch("'a' and 'b' overlap");
  });

  it('is refused when a name is listed twice, however it is spelt', () => {
    const body = '{"dtype":"F32","shape":[2],"data_offsets":[0,8]}';
    expect(ofHeader(`{"a":${body},"a":${body}}`)).toMatch("'a' is listed twice");
    expect(ofHeader(`{"a" \n:${body},"\\u0061":${body}}`)).toMatch("'a' is listed twice");
    expect(ofHeader(`{"\\\\\\"{":${body},"\\\\\\"{":${body}}`)).toMatch('listed twice');
  });

  it('is refused in reasonable time when it is deep, long or wide', () => {
    expect(ofHeader(`{"a":{"dtype":"F32","shape":${'['.repeat(200_000)}${']'.repeat(200_000)}}}`)).toMatch(
      'bad shape',
    );
    expect(ofHeader(`{"a":{"dtype":"${'x'.repeat(1_000_000)}"}}`)).toMatch('unknown dtype');
    expect(ofHeader(`{"${'n'.repeat(1_000_000)}":1}`)).toMatch('unknown dtype');
    const many = Array.from({ length: 100_000 }, (_, i) => `"t${i}":0`);
    expect(ofHeader(`{${many}}`)).toMatch("'t0' has the unknown dtype");
  });

  it('is refused when it is not UTF-8', () => {
    const bytes = rawHeader(entry({}), new Uint8Array(8)).slice();
    bytes[10] = 0xff;
    expect(problem(bytes)).toMatch('not JSON');
  });

  it('never fails with anything but a UserError, whatever the bytes', () => {
    const any = (bytes: Uint8Array) => {
      try {
        list(bytes);
      } catch (error) {
        if (!(error instanceof UserError)) throw error;
      }
    };
    fc.assert(fc.property(fc.uint8Array({ maxLength: 64 }), any), { numRuns: 200 });
    fc.assert(
      fc.property(fc.json(), fc.uint8Array({ maxLength: 8 }), (text, data) => any(rawHeader(text, data))),
      { numRuns: 200 },
    );
    const sound = safetensorsBytes({ a: f32Tensor([2], [1, 2]), b: f32Tensor([1, 1], [3]) });
    fc.assert(
      fc.property(fc.nat(sound.length - 1), fc.nat(255), (at, byte) => {
        const bytes = sound.slice();
        bytes[at] = byte;
        any(bytes);
      }),
      { numRuns: 500 },
    );
  });
});

describe('reading', () => {
  it('names the file that is a folder, a dangling link, or was cut off after it was listed', () => {
    mkdirSync(join(root, 'folder'));
    symlinkSync(join(root, 'nowhere'), join(root, 'link'));
    expect(() => readSafetensorsHeader(join(root, 'folder'))).toThrow('is not a file');
    expect(() => readSafetensorsHeader(join(root, 'link'))).toThrow('can not open');
    const { offset, bytes } = list(safetensorsBytes({ a: f32Tensor([2], [1, 2]) })).get('a') ?? expect.fail();
    truncateSync(file, offset + 3);
    expect(() => readAt(file, offset, bytes)).toThrow(`ends at byte ${offset + 3}, 5 more were expected`);
    expect(() => readAt(join(root, 'folder'), 0, 1)).toThrow(UserError);
  });
});
