/**
 * Checkpoint to engine folder. Sizes are known before the first byte is packed, so the header is written first and every
 * weight goes to its place; a journal notes each one that is done, and a build that was killed goes on where it stopped.
 * The folder appears under its name only when every tensor was read back and found right.
 */
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  ftruncateSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import {
  type Checkpoint,
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  hasMtp,
  kvScales,
  openCheckpoint,
  readAt,
  readJson,
  validateCheckpoint,
} from '../checkpoint/index.ts';
import { UserError } from '../util/index.ts';
import { crc32 } from './crc32.ts';
import {
  bytesOf,
  type EngineManifest,
  type EngineWeight,
  engineFormat,
  openEngineFolder,
  type Recipe,
} from './engine-folder.ts';
import { chooseFormat, type PackedWeight, packWeight, type WeightJob } from './pack.ts';

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

const alignment = 4096;
const copied = [
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'generation_config.json',
  'config.json',
];

/** What a build depends on: the config and every tensor's name, type, shape and size. */
export function fingerprint(ck: Checkpoint): string {
  const hash = createHash('sha256').update(readFileSync(join(ck.folder, 'config.json')));
  for (const { name, dtype, shape, bytes } of ck.tensors.values())
    hash.update(`${name} ${dtype} ${shape} ${bytes}\n`);
  // The first weight's content tells checkpoints of one shape apart.
  const first = [...ck.tensors.values()].find(({ name }) => name.endsWith('norm.weight'));
  if (first !== undefined) hash.update(ck.read(first.name));
  return hash.digest('hex').slice(0, 16);
}

/** Builds `out` and returns its path. Throws UserError when the checkpoint is bad or the folder can not be written. */
export function buildEngine({ checkpoint, out, recipe, onProgress }: BuildOptions): string {
  const ck = openCheckpoint(checkpoint);
  validateCheckpoint(ck);
  const partial = `${out}.partial`;
  try {
    mkdirSync(dirname(out), { recursive: true });
    const source = `${fingerprint(ck)}-${recipe}`;
    const journal = openJournal(partial, source);
    const weights = writeWeights({ ck, recipe, partial, journal, onProgress });
    writeFileSync(
      join(partial, 'engine.json'),
      JSON.stringify(manifestOf(ck, { recipe, source, weights }), null, 1),
    );
    for (const name of copied)
      if (existsSync(join(ck.folder, name))) copyFileSync(join(ck.folder, name), join(partial, name));
    verify(partial);
    rmSync(journal.path);
    rmSync(out, { recursive: true, force: true });
    renameSync(partial, out);
    return out;
  } catch (cause) {
    if (cause instanceof UserError || !(cause instanceof Error) || !('code' in cause)) throw cause;
    throw new UserError('io', `can not write the engine folder ${out}: ${cause.message}`, { cause });
  }
}

interface Journal {
  readonly path: string;
  /** Weights that are in place. */
  readonly done: Map<string, EngineWeight>;
}

/** The journal of an earlier try at the same build, or a new one in an empty folder. */
function openJournal(partial: string, source: string): Journal {
  const path = join(partial, 'build.journal');
  const [head, ...lines] = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
  const done = new Map<string, EngineWeight>();
  if (head !== source) {
    rmSync(partial, { recursive: true, force: true });
    mkdirSync(partial, { recursive: true });
    writeFileSync(path, `${source}\n`);
    return { path, done };
  }
  for (const line of lines) {
    // The last line may be cut off: that weight is packed again.
    if (!line.endsWith('}')) continue;
    try {
      const { name, ...weight } = JSON.parse(line) as EngineWeight & { name: string };
      done.set(name, weight);
    } catch {
      break;
    }
  }
  return { path, done };
}

interface Place extends WeightJob {
  readonly format: EngineWeight['format'];
  readonly offset: number;
  readonly bytes: number;
}

/** The head of a tied model is packed on its own: the embedding stays in bf16, the head is quantized. */
function weightsOf(ck: Checkpoint): WeightJob[] {
  const all = [...expectedWeights(ck.config), ...(hasMtp(ck) ? expectedMtpWeights(ck.config) : [])];
  const own = all.map((weight) => ({ weight, from: weight }));
  if (!ck.config.tied) return own;
  const shape = [ck.config.vocabSize, ck.config.hiddenSize];
  const head = { name: 'lm_head.weight', shape, linear: true };
  return [...own, { weight: head, from: { name: 'model.embed_tokens.weight', shape, linear: true } }];
}

const safetensorsDtype = { 'nvfp4-tile': 'U8', bf16: 'BF16', f32: 'F32', fp8: 'F8_E4M3' } as const;

/** The header with all offsets, padded so that data starts at a multiple of the alignment, and each weight's place. */
function layOut(ck: Checkpoint, recipe: Recipe): { header: Uint8Array; places: Place[]; size: number } {
  const entries: Record<string, unknown> = {};
  const places: Place[] = [];
  let at = 0;
  for (const job of weightsOf(ck)) {
    const { name, shape } = job.weight;
    const format = chooseFormat(ck, job, recipe);
    const bytes = bytesOf(format, shape);
    entries[name] = {
      dtype: safetensorsDtype[format],
      shape: format === 'nvfp4-tile' ? [bytes] : shape,
      data_offsets: [at, at + bytes],
    };
    places.push({ ...job, format, offset: at, bytes });
    const end = Math.ceil((at + bytes) / alignment) * alignment;
    const gap = end - at - bytes;
    if (gap > 0)
      entries[`__pad.${places.length}`] = { dtype: 'U8', shape: [gap], data_offsets: [at + bytes, end] };
    at = end;
  }
  const text = Buffer.from(JSON.stringify(entries));
  const header = Buffer.alloc(Math.ceil((8 + text.length) / alignment) * alignment, ' ');
  header.writeBigUInt64LE(BigInt(header.length - 8), 0);
  text.copy(header, 8);
  const placed = places.map((place) => ({ ...place, offset: place.offset + header.length }));
  return { header, places: placed, size: at + header.length };
}

function writeWeights(job: {
  ck: Checkpoint;
  recipe: Recipe;
  partial: string;
  journal: Journal;
  onProgress: BuildOptions['onProgress'];
}): Record<string, EngineWeight> {
  const { ck, recipe, partial, journal } = job;
  const file = join(partial, 'weights.safetensors');
  const { header, places, size } = layOut(ck, recipe);
  const fd = openSync(file, existsSync(file) ? 'r+' : 'w+');
  const weights: Record<string, EngineWeight> = {};
  try {
    ftruncateSync(fd, size);
    writeAll(fd, header, 0);
    for (const [i, place] of places.entries()) {
      const { weight, format, offset, bytes } = place;
      let entry = journal.done.get(weight.name);
      if (entry === undefined || crc32(readAt(file, offset, bytes)) !== entry.crc) {
        const packed = packWeight(ck, place, format);
        writeAll(fd, packed.bytes, offset);
        entry = entryOf(weight, packed);
        appendFileSync(journal.path, `${JSON.stringify({ name: weight.name, ...entry })}\n`);
      }
      weights[weight.name] = entry;
      job.onProgress?.({ weight: weight.name, done: i + 1, total: places.length, error: entry.error });
    }
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
  return weights;
}

function entryOf(
  { shape }: ExpectedWeight,
  { format, scale, inputScale, error, bytes }: PackedWeight,
): EngineWeight {
  return { format, shape, scale, inputScale, crc: crc32(bytes), error };
}

function writeAll(fd: number, bytes: Uint8Array, at: number): void {
  let done = 0;
  while (done < bytes.length)
    done += writeSync(fd, bytes, done, Math.min(bytes.length - done, 2 ** 30), at + done);
}

function manifestOf(
  ck: Checkpoint,
  { recipe, source, weights }: { recipe: Recipe; source: string; weights: Record<string, EngineWeight> },
): EngineManifest {
  const stems = ck.config.layerTypes.flatMap((type, i) =>
    type === 'full_attention' ? [`model.layers.${i}.self_attn`] : [],
  );
  const mtp = hasMtp(ck);
  const all = mtp ? [...stems, 'mtp.layers.0.self_attn'] : stems;
  return {
    format: engineFormat,
    recipe,
    source,
    config: readJson(join(ck.folder, 'config.json')),
    eosTokenIds: ck.eosTokenIds,
    hasMtp: mtp,
    kvScales: Object.fromEntries(all.map((stem) => [stem, kvScales(ck, stem)])),
    weights,
  };
}

/** Reads every weight back and compares its checksum. */
function verify(path: string): void {
  const { weights, weightsFile } = openEngineFolder(path);
  for (const [name, { offset, bytes, crc }] of weights) {
    const found = crc32(readAt(weightsFile, offset, bytes));
    if (found !== crc)
      throw new UserError(
        'io',
        `${weightsFile}: '${name}' reads back with checksum ${found}, ${crc} was written`,
      );
  }
}
