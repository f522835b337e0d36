/** A Hugging Face checkpoint folder: config, and tensors by name, sharded or not. Tensors are read one at a time. */
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { UserError } from '../util/index.ts';
import { parseConfig, type Qwen35Config, tokenIds } from './config.ts';
import { readAt, readSafetensorsHeader, type TensorDtype, type TensorInfo } from './safetensors.ts';

export interface Checkpoint {
  readonly folder: string;
  readonly config: Qwen35Config;
  /** Ids that end an answer: of config.json and generation_config.json together. */
  readonly eosTokenIds: readonly number[];
  readonly tensors: ReadonlyMap<string, Pick<TensorInfo, 'name' | 'dtype' | 'shape' | 'bytes'>>;
  read(name: string): Uint8Array;
}

export function readJson(file: string): unknown {
  try {
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
  const config = parseConfig(readJson(join(folder, 'config.json')));
  const tensors = listTensors(folder);
  const generation = join(folder, 'generation_config.json');
  const extra = existsSync(generation)
    ? (readJson(generation) as { eos_token_id?: unknown } | null)?.eos_token_id
    : null;
  return {
    folder,
    config,
    eosTokenIds: [...new Set([...config.eosTokenIds, ...tokenIds(extra)])],
    tensors,
    read(name) {
      const tensor = tensors.get(name);
      if (tensor === undefined)
        throw new UserError('bad_checkpoint', `${folder} has no tensor '${name}'`, { param: name });
      return readAt(tensor.file, tensor.offset, tensor.bytes);
    },
  };
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
    if (typeof shard !== 'string' || basename(shard) !== shard || shard === '..')
      throw new UserError(
        'bad_checkpoint',
        `${index}: '${name}' names the shard ${JSON.stringify(shard)}, a file name was expected`,
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
        `${shard} lacks the tensor '${name}' that ${basename(index)} lists`,
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
    tensors: new Map(listed),
    read(name) {
      const tensor = tensors[name];
      if (tensor === undefined) throw new UserError('bad_checkpoint', `no tensor '${name}'`, { param: name });
      return tensor.bytes;
    },
  };
}
