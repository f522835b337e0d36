/**
 * Reader of safetensors files: an 8-byte little-endian header length, a JSON header, then tensor bytes. The header is
 * hostile until checked: sizes, offsets, overlaps, names and types are verified before a single tensor is read.
 */
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { UserError } from '../util/index.ts';
import { duplicateKey } from './json-keys.ts';
import { shorten, show } from './show.ts';

/** Same limit as the reference implementation of the format. */
export const maxHeaderBytes = 100_000_000;
export const maxTensors = 1_000_000;
export const maxRank = 16;

/** The system reads at most 2 GiB at a time. */
const maxReadBytes = 2 ** 30;

export type TensorDtype = keyof typeof dtypeBytes;

export const dtypeBytes = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  F8_E4M3: 1,
  F8_E5M2: 1,
  F8_E8M0: 1,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
} as const;

export interface TensorInfo {
  readonly name: string;
  readonly dtype: TensorDtype;
  readonly shape: readonly number[];
  readonly file: string;
  /** From the start of the file. */
  readonly offset: number;
  readonly bytes: number;
}

const bad = (file: string, message: string): UserError =>
  new UserError('bad_checkpoint', `${file}: ${message}`);

/** Reads `length` bytes at `offset`, or fails with the file's name. */
export function readAt(file: string, offset: number, length: number): Uint8Array {
  const fd = trying(file, 'open', () => openSync(file, 'r'));
  try {
    const bytes = trying(file, `read ${length} bytes of`, () => new Uint8Array(length));
    let done = 0;
    while (done < length) {
      const part = Math.min(length - done, maxReadBytes);
      const got = trying(file, 'read', () => readSync(fd, bytes, done, part, offset + done));
      if (got === 0) throw bad(file, `ends at byte ${offset + done}, ${length - done} more were expected`);
      done += got;
    }
    return bytes;
  } finally {
    closeSync(fd);
  }
}

function trying<T>(file: string, what: string, action: () => T): T {
  try {
    return action();
  } catch (cause) {
    throw new UserError('bad_checkpoint', `can not ${what} ${file}: ${(cause as Error).message}`, { cause });
  }
}

/** Asked before opening: opening a pipe would wait for its writer. */
function fileSize(file: string): number {
  const stat = trying(file, 'open', () => statSync(file));
  if (!stat.isFile()) throw bad(file, 'is not a file');
  return stat.size;
}

/** Lists the tensors of one file. Throws UserError('bad_checkpoint') for anything that is not a sound file. */
export function readSafetensorsHeader(file: string): Map<string, TensorInfo> {
  const size = fileSize(file);
  if (size < 8) throw bad(file, `has ${size} bytes, a safetensors file has at least 8`);
  const length = new DataView(readAt(file, 0, 8).buffer).getBigUint64(0, true);
  if (length > BigInt(maxHeaderBytes))
    throw bad(file, `header of ${length} bytes, the limit is ${maxHeaderBytes}`);
  const headerBytes = Number(length);
  if (headerBytes > size - 8) throw bad(file, `header of ${headerBytes} bytes in a file of ${size}`);
  const header = parseHeader(file, readAt(file, 8, headerBytes));
  const dataStart = 8 + headerBytes;
  if (header.length > maxTensors) throw bad(file, `${header.length} tensors, the limit is ${maxTensors}`);
  const tensors = new Map<string, TensorInfo>();
  for (const [name, entry] of header) {
    if (name === '__metadata__') continue;
    tensors.set(name, checkEntry(file, name, entry, { dataStart, size }));
  }
  checkOverlaps(file, [...tensors.values()]);
  return tensors;
}

function parseHeader(file: string, bytes: Uint8Array): [string, unknown][] {
  let text: string;
  let header: unknown;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
    header = JSON.parse(text);
  } catch (cause) {
    throw new UserError('bad_checkpoint', `${file}: the header is not JSON: ${(cause as Error).message}`, {
      cause,
    });
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header))
    throw bad(file, 'the header is not an object');
  const twice = duplicateKey(text);
  if (twice !== null) throw bad(file, `tensor '${shorten(twice)}' is listed twice`);
  return Object.entries(header);
}

const isSize = (value: unknown): value is number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0;

function checkEntry(
  file: string,
  name: string,
  entry: unknown,
  { dataStart, size }: { dataStart: number; size: number },
): TensorInfo {
  const wrong = (message: string): UserError => bad(file, `tensor '${shorten(name)}' ${message}`);
  const { dtype, shape, data_offsets: offsets } = (entry ?? {}) as Record<string, unknown>;
  if (typeof dtype !== 'string' || !Object.hasOwn(dtypeBytes, dtype))
    throw wrong(`has the unknown dtype ${show(dtype)}`);
  if (!Array.isArray(shape) || shape.length > maxRank || !shape.every(isSize))
    throw wrong(`has the bad shape ${show(shape)}`);
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isSize))
    throw wrong(`has the bad data_offsets ${show(offsets)}`);
  const [from, to] = offsets as [number, number];
  const bytes = shape.reduce((product, dim) => product * dim, 1) * dtypeBytes[dtype as TensorDtype];
  if (from > to || dataStart + to > size)
    throw wrong(`lies at bytes ${from} to ${to} of ${size - dataStart}`);
  if (to - from !== bytes) throw wrong(`has ${to - from} bytes, its shape ${show(shape)} needs ${bytes}`);
  return { name, dtype: dtype as TensorDtype, shape, file, offset: dataStart + from, bytes };
}

function checkOverlaps(file: string, tensors: TensorInfo[]): void {
  const ordered = tensors.filter(({ bytes }) => bytes > 0).sort((a, b) => a.offset - b.offset);
  for (const [i, tensor] of ordered.entries()) {
    const before = ordered[i - 1];
    if (before !== undefined && before.offset + before.bytes > tensor.offset)
      throw bad(file, `tensors '${shorten(before.name)}' and '${shorten(tensor.name)}' overlap`);
  }
}
