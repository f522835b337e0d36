/**
 * An engine folder: what a checkpoint becomes for this runtime.
 *
 *   engine.json          format, source, config, and per weight its format, shape and tensors
 *   weights.safetensors  page-aligned tensors (padding tensors `__pad.N` fill the gaps), so that the file can be mapped
 *   tokenizer.json, chat_template.jinja, ...   copied from the checkpoint
 */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { WeightFormat } from '../backends/index.ts';
import {
  parseConfig,
  type Qwen35Config,
  readJson,
  readSafetensorsHeader,
  tokenIds,
} from '../checkpoint/index.ts';
import { tiledBytes } from '../dtypes/index.ts';
import { UserError } from '../util/index.ts';

export const engineFormat = 1;

export type Recipe = 'nvfp4' | 'plain';

/** A weight as engine.json lists it. */
export interface EngineWeight {
  readonly format: WeightFormat;
  readonly shape: readonly number[];
  /** Tensor scale; 1 where the format has none. */
  readonly scale: number;
  readonly inputScale: number | null;
  /** CRC-32 of the tensor's bytes. */
  readonly crc: number;
  /** Root mean square of the difference to the source, relative to the source; 0 when nothing was lost. */
  readonly error: number;
}

export interface EngineManifest {
  readonly format: number;
  readonly recipe: Recipe;
  /** Fingerprint of the checkpoint. */
  readonly source: string;
  readonly config: unknown;
  readonly eosTokenIds: readonly number[];
  readonly hasMtp: boolean;
  readonly kvScales: Readonly<Record<string, { readonly k: number; readonly v: number }>>;
  readonly weights: Readonly<Record<string, EngineWeight>>;
}

export interface LocatedWeight extends EngineWeight {
  readonly offset: number;
  readonly bytes: number;
}

export interface EngineFolder {
  readonly path: string;
  readonly manifest: EngineManifest;
  readonly config: Qwen35Config;
  readonly weightsFile: string;
  readonly weightBytes: number;
  readonly weights: ReadonlyMap<string, LocatedWeight>;
}

/** Bytes of a weight of this format and shape. */
export function bytesOf(format: WeightFormat, shape: readonly number[]): number {
  const count = shape.reduce((product, dim) => product * dim, 1);
  if (format === 'nvfp4-tile') return tiledBytes(shape[0] ?? 0, shape[1] ?? 0);
  return count * { bf16: 2, f32: 4, fp8: 1 }[format];
}

export function isEngineFolder(path: string): boolean {
  return existsSync(join(path, 'engine.json'));
}

/** Throws UserError('bad_engine_folder') when the folder is incomplete, of another version, or its parts disagree. */
export function openEngineFolder(path: string): EngineFolder {
  const bad = (message: string): UserError =>
    new UserError('bad_engine_folder', `${path}: ${message}`, { hint: 'Build it again with `copse build`.' });
  if (!isEngineFolder(path)) throw bad('has no engine.json');
  const manifest = readJson(join(path, 'engine.json')) as EngineManifest;
  if (manifest?.format !== engineFormat)
    throw bad(`format ${JSON.stringify(manifest?.format)}, this version reads ${engineFormat}`);
  const weightsFile = join(path, 'weights.safetensors');
  if (!existsSync(weightsFile)) throw bad('has no weights.safetensors');
  const tensors = readSafetensorsHeader(weightsFile);
  if (typeof manifest.weights !== 'object' || manifest.weights === null)
    throw bad('engine.json lists no weights');
  const weights = new Map<string, LocatedWeight>();
  for (const [name, weight] of Object.entries(manifest.weights)) {
    const tensor = tensors.get(name);
    if (tensor === undefined) throw bad(`weights.safetensors lacks '${name}'`);
    const expected = Array.isArray(weight.shape) ? bytesOf(weight.format, weight.shape) : Number.NaN;
    if (tensor.bytes !== expected)
      throw bad(`'${name}' has ${tensor.bytes} bytes, ${weight.format} [${weight.shape}] needs ${expected}`);
    if (!Number.isFinite(weight.scale)) throw bad(`'${name}' has the scale ${weight.scale}`);
    weights.set(name, { ...weight, offset: tensor.offset, bytes: tensor.bytes });
  }
  const config = parseConfig(manifest.config);
  const weightBytes = statSync(weightsFile).size;
  const eosTokenIds = tokenIds(manifest.eosTokenIds);
  return { path, manifest: { ...manifest, eosTokenIds }, config, weightsFile, weightBytes, weights };
}
