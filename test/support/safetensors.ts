/** Writes safetensors files and checkpoint folders for tests, sound ones and, through `rawHeader`, any other. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  expectedMtpWeights,
  expectedWeights,
  parseConfig,
  type TensorDtype,
} from '../../src/checkpoint/index.ts';
import { bf16Encode } from '../../src/dtypes/index.ts';

export interface TestTensor {
  readonly dtype: TensorDtype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export function safetensorsBytes(tensors: Readonly<Record<string, TestTensor>>): Uint8Array {
  let at = 0;
  const header = Object.entries(tensors).map(([name, { dtype, shape, bytes }]) => {
    const entry = [name, { dtype, shape, data_offsets: [at, at + bytes.length] }];
    at += bytes.length;
    return entry;
  });
  const data = Buffer.concat(Object.values(tensors).map(({ bytes }) => bytes));
  return rawHeader(JSON.stringify(Object.fromEntries(header)), data);
}

/** A file with this header text, whatever it says, and `data` behind it. */
export function rawHeader(text: string, data: Uint8Array = new Uint8Array(0)): Uint8Array {
  const header = Buffer.from(text);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, data]);
}

export function f32Tensor(shape: readonly number[], values: ArrayLike<number>): TestTensor {
  return { dtype: 'F32', shape, bytes: new Uint8Array(Float32Array.from(values).buffer) };
}

export function bf16Tensor(shape: readonly number[], value: (i: number) => number): TestTensor {
  const count = shape.reduce((product, dim) => product * dim, 1);
  const halves = Uint16Array.from({ length: count }, (_, i) => bf16Encode(value(i)));
  return { dtype: 'BF16', shape, bytes: new Uint8Array(halves.buffer) };
}

/** Repeatable values between -0.5 and 0.5. */
export function noise(seed: number): (i: number) => number {
  return (i) => {
    const x = Math.sin((i + 1) * 12.9898 + seed * 78.233) * 43_758.5453;
    return x - Math.floor(x) - 0.5;
  };
}

/** The smallest hybrid: one layer of each kind, every matrix a few NVFP4 blocks wide. */
export const smallConfig = {
  model_type: 'qwen3_5_text',
  vocab_size: 40,
  hidden_size: 32,
  intermediate_size: 48,
  num_hidden_layers: 2,
  layer_types: ['linear_attention', 'full_attention'],
  num_attention_heads: 2,
  num_key_value_heads: 1,
  head_dim: 16,
  linear_num_key_heads: 1,
  linear_num_value_heads: 2,
  linear_key_head_dim: 16,
  linear_value_head_dim: 16,
  mtp_num_hidden_layers: 1,
  tie_word_embeddings: false,
  eos_token_id: 3,
};

/** All tensors of a config in bf16, with MTP. */
export function smallTensors(config: unknown = smallConfig): Record<string, TestTensor> {
  const parsed = parseConfig(config);
  const weights = [...expectedWeights(parsed), ...expectedMtpWeights(parsed)];
  return Object.fromEntries(weights.map(({ name, shape }, i) => [name, bf16Tensor(shape, noise(i))]));
}

export function writeCheckpoint(
  folder: string,
  tensors: Readonly<Record<string, TestTensor>>,
  config: unknown = smallConfig,
): string {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  writeFileSync(join(folder, 'model.safetensors'), safetensorsBytes(tensors));
  return folder;
}
