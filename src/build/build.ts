/**
 * Checkpoint to engine folder. Sizes are known before the first byte is packed, so the header is written first and every
 * weight goes to its place; a journal notes each one that is done, and a build that was killed goes on where it stopped.
 * The folder appears under its name only when every tensor was read back and found right.
 */
import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join, resolve, sep } from 'node:path';
import { crc32 } from 'node:zlib';
import {
  attentionStems,
  type Checkpoint,
  hasMtp,
  kvScales,
  openCheckpoint,
  readAt,
  readJson,
  validateCheckpoint,
} from '../checkpoint/index.ts';
import { UserError } from '../util/index.ts';
import {
  type EngineManifest,
  type EngineWeight,
  engineFormat,
  isEngineFolder,
  openEngineFolder,
  type Recipe,
  recipes,
} from './engine-folder.ts';
import { copiedFiles, fingerprint } from './fingerprint.ts';
import { type FolderLock, tryLock } from './folder-lock.ts';
import { Journal, journalName } from './journal.ts';
import { type Layout, layOut, type Place } from './layout.ts';
import { packWeight } from './pack.ts';

export interface BuildProgress {
  readonly weight: string;
  readonly done: number;
  readonly total: number;
  readonly error: number;
}

export interface BuildOptions {
  readonly checkpoint: string;
  readonly out: string;
  readonly recipe: Recipe;
  readonly onProgress?: (progress: BuildProgress) => void;
}

/**
 * Builds `out` and returns its path; an engine folder that is there is replaced, anything else never. Throws UserError when the
 * checkpoint is bad, the folder can not be written, or another process is building it.
 */
export function buildEngine(options: BuildOptions): string {
  const { out } = options;
  const ck = openSource(options);
  return writing(out, () => {
    mkdirSync(dirname(resolve(out)), { recursive: true });
    const lock = tryLock(lockPath(out));
    if (lock === null)
      throw new UserError('io', `${out} is being built by another process`, {
        hint: `Wait until it is done, or delete ${lockPath(out)} when no other build is running.`,
      });
    return buildLocked(ck, options, lock);
  });
}

export const lockPath = (out: string): string => `${resolve(out)}.lock`;

function openSource({ checkpoint, out, recipe }: BuildOptions): Checkpoint {
  if (!recipes.includes(recipe))
    throw new UserError('bad_option', `recipe is '${recipe}', known are ${recipes.join(', ')}`, {
      param: 'recipe',
    });
  const ck = openCheckpoint(checkpoint);
  validateCheckpoint(ck);
  refuseToReplace(checkpoint, out);
  return ck;
}

/** The output folder is deleted before the new one takes its name: it must be nobody's but ours. */
function refuseToReplace(checkpoint: string, out: string): void {
  const refuse = (message: string): never => {
    throw new UserError('bad_option', `${out} ${message}`, { param: 'out', hint: 'Choose another folder.' });
  };
  if (!existsSync(out)) return;
  const real = realpathSync(out);
  if (`${realpathSync(checkpoint)}${sep}`.startsWith(`${real}${sep}`)) refuse('holds the checkpoint');
  const isFolder = statSync(out).isDirectory();
  if (!isFolder || (!isEngineFolder(out) && readdirSync(out).length > 0))
    refuse('exists and is not an engine folder');
}

/** Errors of the file system, such as a full disk, as something a person can mend. */
export function writing<T>(out: string, action: () => T): T {
  try {
    return action();
  } catch (cause) {
    if (cause instanceof UserError || !(cause instanceof Error) || !('syscall' in cause)) throw cause;
    throw new UserError('io', `can not write the engine folder ${out}: ${cause.message}`, { cause });
  }
}

/** Builds under a lock that the caller took, and gives it back. */
export function buildLocked(ck: Checkpoint, options: BuildOptions, lock: FolderLock): string {
  const { out, recipe } = options;
  const partial = `${resolve(out)}.partial`;
  try {
    const source = `${fingerprint(ck)}-${recipe}`;
    const journal = Journal.open(partial, source);
    const weights = writeWeights({ ck, options, partial, journal, lock });
    const manifest = manifestOf(ck, { recipe, source, weights });
    writeFileSync(join(partial, 'engine.json'), JSON.stringify(manifest, null, 1));
    for (const name of copiedFiles) copyTo(ck.folder, partial, name);
    verify(partial, lock);
    rmSync(out, { recursive: true, force: true });
    renameSync(partial, out);
    rmSync(join(out, journalName), { force: true });
    return out;
  } finally {
    lock.release();
  }
}

/** A read-only copy of an earlier try could not be written over. */
function copyTo(from: string, to: string, name: string): void {
  rmSync(join(to, name), { force: true });
  if (existsSync(join(from, name))) copyFileSync(join(from, name), join(to, name));
}

interface WriteJob {
  readonly ck: Checkpoint;
  readonly options: BuildOptions;
  readonly partial: string;
  readonly journal: Journal;
  readonly lock: FolderLock;
}

function writeWeights({ ck, options, partial, journal, lock }: WriteJob): Record<string, EngineWeight> {
  const file = join(partial, 'weights.safetensors');
  const layout = layOut(ck, options.recipe);
  const fd = openSync(file, existsSync(file) ? 'r+' : 'w+');
  try {
    requireSpace(partial, file, layout);
    ftruncateSync(fd, layout.fileBytes);
    writeAll(fd, layout.header, 0);
    const weights = layout.places.map((place, i): [string, EngineWeight] => {
      const { name } = place.weight;
      const entry = inPlace(file, place, journal) ?? pack(ck, fd, place, journal);
      lock.touch();
      options.onProgress?.({ weight: name, done: i + 1, total: layout.places.length, error: entry.error });
      return [name, entry];
    });
    fsyncSync(fd);
    return Object.fromEntries(weights);
  } finally {
    closeSync(fd);
  }
}

/** Said before hours of work, not after. The file is sparse: what an earlier try wrote counts. */
function requireSpace(folder: string, file: string, { fileBytes }: Layout): void {
  const { bavail, bsize } = statfsSync(folder);
  const needed = fileBytes - statSync(file).blocks * 512;
  if (needed > bavail * bsize)
    throw new UserError('io', `${folder} needs ${needed} more bytes, its disk has ${bavail * bsize} free`, {
      hint: 'Free some space, or choose an output folder on another disk.',
    });
}

/** The journal's entry, if it fits and the file has its bytes. */
function inPlace(
  file: string,
  { weight, format, offset, bytes }: Place,
  journal: Journal,
): EngineWeight | null {
  const entry = journal.get(weight.name);
  if (entry?.format !== format || `${entry.shape}` !== `${weight.shape}`) return null;
  return checksum(file, offset, bytes) === entry.crc ? entry : null;
}

function pack(ck: Checkpoint, fd: number, place: Place, journal: Journal): EngineWeight {
  const { weight, format, offset, bytes } = place;
  let written = 0;
  let crc = 0;
  const packed = packWeight(ck, place, (part) => {
    writeAll(fd, part, offset + written);
    crc = crc32(part, crc);
    written += part.length;
  });
  if (written !== bytes)
    throw new UserError(
      'bad_checkpoint',
      `tensor '${weight.name}' became ${written} bytes, expected ${bytes}`,
    );
  const entry: EngineWeight = { format, shape: weight.shape, ...packed, crc };
  journal.add(weight.name, entry);
  return entry;
}

function writeAll(fd: number, bytes: Uint8Array, at: number): void {
  let done = 0;
  while (done < bytes.length) done += writeSync(fd, bytes, done, bytes.length - done, at + done);
}

const readBytes = 2 ** 24;

function checksum(file: string, offset: number, bytes: number): number {
  let crc = 0;
  for (let done = 0; done < bytes; done += readBytes)
    crc = crc32(readAt(file, offset + done, Math.min(readBytes, bytes - done)), crc);
  return crc;
}

function manifestOf(
  ck: Checkpoint,
  { recipe, source, weights }: { recipe: Recipe; source: string; weights: Record<string, EngineWeight> },
): EngineManifest {
  return {
    format: engineFormat,
    recipe,
    source,
    config: readJson(join(ck.folder, 'config.json')),
    eosTokenIds: ck.eosTokenIds,
    hasMtp: hasMtp(ck),
    kvScales: Object.fromEntries(attentionStems(ck).map((stem) => [stem, kvScales(ck, stem)])),
    weights,
  };
}

/** Reads every weight back and compares its checksum. */
function verify(path: string, lock: FolderLock): void {
  const { weights, weightsFile } = openEngineFolder(path);
  for (const [name, { offset, bytes, crc }] of weights) {
    const found = checksum(weightsFile, offset, bytes);
    if (found !== crc)
      throw new UserError(
        'io',
        `${weightsFile}: '${name}' reads back with checksum ${found}, ${crc} was written`,
      );
    lock.touch();
  }
}
