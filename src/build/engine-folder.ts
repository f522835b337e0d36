/**
 * An engine folder: what a checkpoint becomes for this runtime.
 *
 *   engine.json          format, source, config, and per weight its format, shape and tensors
 *   weights.safetensors  page-aligned tensors (padding tensors `__pad.N` fill the gaps), so that the file can be mapped
 *   tokenizer.json, chat_template.jinja, ...   copied from the checkpoint
 */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { isScaledFp8, scaledFp8Layout, type WeightFormat } from '../backends/index.ts';
import {
  expectedMtpWeights,
  expectedWeights,
  type ModelConfig,
  parseConfig,
  readJson,
  readSafetensorsHeader,
  type TensorDtype,
  type TensorInfo,
  tokenIds,
} from '../checkpoint/index.ts';
import { tiledBytes } from '../dtypes/index.ts';
import { UserError } from '../util/index.ts';

export type { WeightFormat };

export const engineFormat = 1;

/** Weights start at multiples of it: a page of every system that maps them. */
export const pageBytes = 4096;

/** `nvfp4`: linears are quantized. `plain`: they stay as they are. */
export const recipes = ['nvfp4', 'plain'] as const;
export type Recipe = (typeof recipes)[number];

/** How a weight's bytes are declared in the safetensors file. */
export const safetensorsDtype: Readonly<Record<WeightFormat, TensorDtype>> = {
  'nvfp4-tile': 'U8',
  bf16: 'BF16',
  f32: 'F32',
  fp8: 'F8_E4M3',
  'fp8-row': 'U8',
  'fp8-128': 'U8',
  'fp8-64': 'U8',
  'fp8-32': 'U8',
};

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
  readonly config: ModelConfig;
  readonly weightsFile: string;
  readonly weightBytes: number;
  readonly weights: ReadonlyMap<string, LocatedWeight>;
}

/** Bytes of a weight of this format and shape. */
export function bytesOf(format: WeightFormat, shape: readonly number[]): number {
  const count = shape.reduce((product, dim) => product * dim, 1);
  if (format === 'nvfp4-tile') return tiledBytes(shape[0] ?? 0, shape[1] ?? 0);
  if (isScaledFp8(format)) return scaledFp8Layout(format, [shape[0] ?? 0, shape[1] ?? 0]).bytes;
  return count * { bf16: 2, f32: 4, fp8: 1 }[format];
}

export function isEngineFolder(path: string): boolean {
  return existsSync(join(path, 'engine.json'));
}

/** Throws UserError('bad_engine_folder') when the folder is incomplete, of another version, or its parts disagree. */
export function openEngineFolder(path: string): EngineFolder {
  if (!isEngineFolder(path)) throw bad(path, 'has no engine.json');
  try {
    return open(path);
  } catch (cause) {
    if (!(cause instanceof UserError) || cause.code === 'bad_engine_folder') throw cause;
    throw bad(path, cause.message, cause);
  }
}

function bad(path: string, message: string, cause?: UserError): UserError {
  const hint = 'Build it again with `copse build`.';
  return new UserError('bad_engine_folder', `${path}: ${message}`, { hint, cause });
}

function open(path: string): EngineFolder {
  const json = readJson(join(path, 'engine.json'));
  if (!isRecord(json) || json.format !== engineFormat)
    throw bad(path, `format ${isRecord(json) ? json.format : json}, this version reads ${engineFormat}`);
  const weightsFile = join(path, 'weights.safetensors');
  if (!existsSync(weightsFile)) throw bad(path, 'has no weights.safetensors');
  if (!isRecord(json.weights)) throw bad(path, 'engine.json lists no weights');
  const config = parseConfig(json.config);
  const tensors = readSafetensorsHeader(weightsFile);
  const weights = new Map<string, LocatedWeight>();
  for (const [name, weight] of Object.entries(json.weights))
    weights.set(name, locate(path, name, weight, tensors.get(name)));
  const hasMtp = json.hasMtp === true;
  checkComplete(path, config, weights, hasMtp);
  checkKvScales(path, json.kvScales);
  const eosTokenIds = tokenIds(json.eosTokenIds);
  const manifest = { ...(json as unknown as EngineManifest), hasMtp, eosTokenIds };
  return { path, manifest, config, weightsFile, weightBytes: statSync(weightsFile).size, weights };
}

type Json = Record<string, unknown>;

const isRecord = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isSize = (value: unknown): boolean => Number.isSafeInteger(value) && (value as number) > 0;
const isScale = (value: unknown): boolean => Number.isFinite(value) && (value as number) > 0;

/** What engine.json says about a weight, held against the tensor that the file has under its name. */
function locate(path: string, name: string, json: unknown, tensor: TensorInfo | undefined): LocatedWeight {
  const wrong = (message: string): UserError => bad(path, `'${name}' ${message}`);
  if (tensor === undefined) throw wrong('is not in weights.safetensors');
  if (!isRecord(json)) throw wrong('is not described');
  const { format, shape, scale, inputScale, crc, error } = json;
  if (typeof format !== 'string' || !Object.hasOwn(safetensorsDtype, format))
    throw wrong(`has the unknown format ${format}`);
  if (!Array.isArray(shape) || !shape.every(isSize)) throw wrong(`has the shape [${shape}]`);
  if (!isScale(scale)) throw wrong(`has the scale ${scale}`);
  if (inputScale !== null && !isScale(inputScale)) throw wrong(`has the input scale ${inputScale}`);
  if (typeof crc !== 'number' || typeof error !== 'number') throw wrong('has no checksum or no error');
  const weight = json as unknown as EngineWeight;
  const expected = bytesOf(weight.format, weight.shape);
  if (tensor.dtype !== safetensorsDtype[weight.format] || tensor.bytes !== expected)
    throw wrong(`has ${tensor.bytes} bytes of ${tensor.dtype}, ${format} [${shape}] needs ${expected}`);
  if (tensor.offset % pageBytes !== 0) throw wrong(`starts at byte ${tensor.offset}, not at a page`);
  return { ...weight, offset: tensor.offset, bytes: tensor.bytes };
}

/** Every weight that the config asks for is there, in its shape and in a format that the model can use. */
function checkComplete(
  path: string,
  config: ModelConfig,
  weights: ReadonlyMap<string, LocatedWeight>,
  hasMtp: boolean,
): void {
  const head = { name: 'lm_head.weight', shape: [config.vocabSize, config.hiddenSize], linear: true };
  const expected = [...expectedWeights(config), ...(hasMtp ? expectedMtpWeights(config) : [])];
  for (const { name, shape, linear } of weights.has(head.name) ? [...expected, head] : expected) {
    const weight = weights.get(name);
    if (weight === undefined) throw bad(path, `'${name}' is missing`);
    if (`${weight.shape}` !== `${shape}`)
      throw bad(path, `'${name}' has the shape [${weight.shape}], its config needs [${shape}]`);
    const isTable = name.endsWith('embed_tokens.weight') && weight.format === 'bf16';
    if (!linear && !isTable && weight.format !== 'f32')
      throw bad(path, `'${name}' is ${weight.format}, expected f32`);
  }
}

function checkKvScales(path: string, scales: unknown): void {
  if (!isRecord(scales)) throw bad(path, 'engine.json has no kvScales');
  for (const [stem, pair] of Object.entries(scales))
    if (!isRecord(pair) || !isScale(pair.k) || !isScale(pair.v))
      throw bad(path, `the cache scales of '${stem}' are not positive numbers`);
}
