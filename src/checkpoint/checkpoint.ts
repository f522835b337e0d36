/** A Hugging Face checkpoint folder: config, and tensors by name, sharded or not. Tensors are read one at a time. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { assert, UserError } from '../util/index.ts';
import { type ModelConfig, tokenIds } from './config.ts';
import { parseConfig } from './registry.ts';
import { readAt, readSafetensorsHeader, type TensorDtype, type TensorInfo } from './safetensors.ts';
import { shorten, show } from './show.ts';
import { checkQuantization } from './supported.ts';

export interface Checkpoint {
  readonly folder: string;
  readonly config: ModelConfig;
  /** Ids that end an answer: of config.json and generation_config.json together. */
  readonly eosTokenIds: readonly number[];
  /** `quantization_config` of config.json: what tensors alone do not say, such as the version of GPTQ. */
  readonly quantization: Readonly<Record<string, unknown>> | null;
  readonly tensors: ReadonlyMap<string, Pick<TensorInfo, 'name' | 'dtype' | 'shape' | 'bytes'>>;
  /** A tensor's bytes, or a part of them, in memory of their own. Nothing stays open between reads. */
  read(name: string, part?: BytePart): Uint8Array;
}

export interface BytePart {
  /** From the start of the tensor. */
  readonly from: number;
  readonly bytes: number;
}

/** Far above any config or index; tokenizers are read elsewhere. */
export const maxJsonBytes = 64 * 2 ** 20;

export function readJson(file: string): unknown {
  try {
    const { size } = statSync(file);
    if (size > maxJsonBytes) throw new Error(`${size} bytes, the limit is ${maxJsonBytes}`);
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new UserError('bad_checkpoint', `can not read ${file}: ${(cause as Error).message}`, { cause });
  }
}

export function openCheckpoint(folder: string): Checkpoint {
  if (!existsSync(join(folder, 'config.json')))
    throw new UserError('bad_checkpoint', `${folder} has no config.json`, {
      hint: 'Name a Hugging Face checkpoint folder.',
    });
  const json = readJson(join(folder, 'config.json'));
  const config = parseConfig(json);
  const modelOpt = join(folder, 'hf_quant_config.json');
  if (existsSync(modelOpt)) {
    const quantization = recordIn(readJson(modelOpt), 'quantization');
    if (quantization !== null) checkQuantization('hf_quant_config.json: quantization', quantization);
  }
  const tensors = withSideFiles(folder, listTensors(folder));
  const generation = join(folder, 'generation_config.json');
  const extra = existsSync(generation)
    ? (readJson(generation) as { eos_token_id?: unknown } | null)?.eos_token_id
    : null;
  return {
    folder,
    config,
    eosTokenIds: [...new Set([...config.eosTokenIds, ...tokenIds(extra)])],
    quantization: quantizationOf(json),
    tensors,
    read(name, part) {
      const tensor = tensors.get(name);
      if (tensor === undefined)
        throw new UserError('bad_checkpoint', `${folder} has no tensor '${name}'`, { param: name });
      const { from, bytes } = part ?? { from: 0, bytes: tensor.bytes };
      assert(from >= 0 && from + bytes <= tensor.bytes, `bytes ${from} + ${bytes} lie in '${name}'`);
      return readAt(tensor.file, tensor.offset + from, bytes);
    },
  };
}

function recordIn(json: unknown, key: string): Readonly<Record<string, unknown>> | null {
  const value = typeof json === 'object' && json !== null ? (json as Record<string, unknown>)[key] : null;
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
}

const quantizationOf = (json: unknown): Checkpoint['quantization'] =>
  recordIn(json, 'quantization_config') ?? recordIn(recordIn(json, 'text_config'), 'quantization_config');

/**
 * With the tensors of files that the index does not name, such as an MTP layer in a file of its own. Those that repeat listed
 * tensors (the same model in another split) are left alone.
 */
function withSideFiles(folder: string, listed: Map<string, TensorInfo>): Map<string, TensorInfo> {
  const known = new Set([...listed.values()].map(({ file }) => basename(file)));
  const all = new Map(listed);
  for (const name of readdirSync(folder).sort()) {
    if (!name.endsWith('.safetensors') || known.has(name)) continue;
    for (const [tensor, info] of readSafetensorsHeader(join(folder, name)))
      if (!all.has(tensor)) all.set(tensor, info);
  }
  return all;
}

function listTensors(folder: string): Map<string, TensorInfo> {
  const index = join(folder, 'model.safetensors.index.json');
  if (!existsSync(index)) return readSafetensorsHeader(join(folder, 'model.safetensors'));
  const map = (readJson(index) as { weight_map?: unknown } | null)?.weight_map;
  if (typeof map !== 'object' || map === null)
    throw new UserError('bad_checkpoint', `${index} has no weight_map`);
  const shards = new Map<string, Map<string, TensorInfo>>();
  const tensors = new Map<string, TensorInfo>();
  for (const [name, shard] of Object.entries(map)) {
    if (typeof shard !== 'string' || basename(shard) !== shard || !shard.endsWith('.safetensors'))
      throw new UserError(
        'bad_checkpoint',
        `${index}: '${shorten(name)}' names the shard ${show(shard)}, a file name was expected`,
      );
    let listed = shards.get(shard);
    if (listed === undefined) {
      listed = readSafetensorsHeader(join(folder, shard));
      shards.set(shard, listed);
    }
    const tensor = listed.get(name);
    if (tensor === undefined)
      throw new UserError(
        'bad_checkpoint',
        `${shard} lacks the tensor '${shorten(name)}' that ${basename(index)} lists`,
      );
    tensors.set(name, tensor);
  }
  return tensors;
}

/** The twin of `openCheckpoint` for tests. */
export function memoryCheckpoint(
  configJson: unknown,
  tensors: Record<string, { dtype: TensorDtype; shape: readonly number[]; bytes: Uint8Array }>,
): Checkpoint {
  const config = parseConfig(configJson);
  const listed = Object.entries(tensors).map(
    ([name, { dtype, shape, bytes }]) => [name, { name, dtype, shape, bytes: bytes.length }] as const,
  );
  return {
    folder: 'memory',
    config,
    eosTokenIds: config.eosTokenIds,
    quantization: quantizationOf(configJson),
    tensors: new Map(listed),
    read(name, part) {
      const tensor = Object.hasOwn(tensors, name) ? tensors[name] : undefined;
      if (tensor === undefined) throw new UserError('bad_checkpoint', `no tensor '${name}'`, { param: name });
      const { from, bytes } = part ?? { from: 0, bytes: tensor.bytes.length };
      return tensor.bytes.slice(from, from + bytes);
    },
  };
}
