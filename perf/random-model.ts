/**
 * Writes an engine folder with random weights, for measuring speed at sizes that no bundled model has.
 *
 *   npx tsx perf/random-model.ts OUT          the 1.88 B hybrid shape of the Qwen3.5 family
 */
import { randomFillSync } from 'node:crypto';
import { closeSync, mkdirSync, openSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { openEngineFolder } from '../src/build/index.ts';
import {
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  parseConfig,
} from '../src/checkpoint/index.ts';
import { tileBytes, tiledBytes } from '../src/dtypes/index.ts';

const config = {
  architectures: ['Qwen3_5ForCausalLM'],
  model_type: 'qwen3_5_text',
  hidden_size: 2048,
  intermediate_size: 6144,
  num_hidden_layers: 24,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  head_dim: 256,
  linear_num_key_heads: 16,
  linear_num_value_heads: 16,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  vocab_size: 248_320,
  max_position_embeddings: 32_768,
  mtp_num_hidden_layers: 1,
  tie_word_embeddings: false,
};

const alignment = 4096;

/** Random tiles with block scales near 1, small random bf16, ones for the rest: all finite. */
function randomBytes(format: string, bytes: number): Uint8Array {
  const data = randomFillSync(new Uint8Array(bytes));
  if (format === 'nvfp4-tile')
    for (let tile = 0; tile < bytes; tile += tileBytes)
      for (let i = 128; i < 144; i++) data[tile + i] = 0x30 + ((data[tile + i] as number) & 7);
  else if (format === 'bf16')
    for (let i = 1; i < bytes; i += 2) data[i] = 0x3c | ((data[i] as number) & 0x80);
  else new Float32Array(data.buffer).fill(0.01);
  return data;
}

function formatOf({ name, linear }: ExpectedWeight): 'nvfp4-tile' | 'bf16' | 'f32' {
  if (linear && !/in_proj_[ab]/.test(name)) return 'nvfp4-tile';
  return linear || name.endsWith('embed_tokens.weight') ? 'bf16' : 'f32';
}

const out = process.argv[2];
if (out === undefined) throw new Error('usage: random-model.ts OUT');
mkdirSync(out, { recursive: true });
const parsed = parseConfig(config);
const all = [...expectedWeights(parsed), ...expectedMtpWeights(parsed)];
const entries: Record<string, unknown> = {};
const weights: Record<string, unknown> = {};
const places: { format: string; bytes: number; at: number }[] = [];
let at = 0;
for (const weight of all) {
  const format = formatOf(weight);
  const count = weight.shape.reduce((a, b) => a * b, 1);
  const bytes =
    format === 'nvfp4-tile'
      ? tiledBytes(weight.shape[0] ?? 0, weight.shape[1] ?? 0)
      : count * (format === 'bf16' ? 2 : 4);
  const dtype = { 'nvfp4-tile': 'U8', bf16: 'BF16', f32: 'F32' }[format];
  entries[weight.name] = {
    dtype,
    shape: format === 'nvfp4-tile' ? [bytes] : weight.shape,
    data_offsets: [at, at + bytes],
  };
  weights[weight.name] = {
    format,
    shape: weight.shape,
    scale: format === 'nvfp4-tile' ? 0.01 : 1,
    inputScale: null,
    crc: 0,
    error: 0,
  };
  places.push({ format, bytes, at });
  const end = Math.ceil((at + bytes) / alignment) * alignment;
  if (end > at + bytes)
    entries[`__pad.${places.length}`] = {
      dtype: 'U8',
      shape: [end - at - bytes],
      data_offsets: [at + bytes, end],
    };
  at = end;
}
const text = Buffer.from(JSON.stringify(entries));
const header = Buffer.alloc(Math.ceil((8 + text.length) / alignment) * alignment, ' ');
header.writeBigUInt64LE(BigInt(header.length - 8), 0);
text.copy(header, 8);
const fd = openSync(join(out, 'weights.safetensors'), 'w');
writeSync(fd, header, 0, header.length, 0);
for (const { format, bytes, at: offset } of places)
  writeSync(fd, randomBytes(format, bytes), 0, bytes, header.length + offset);
writeSync(fd, new Uint8Array(1), 0, 1, header.length + at - 1);
closeSync(fd);
const manifest = {
  format: 1,
  recipe: 'nvfp4',
  source: 'random',
  config,
  eosTokenIds: [],
  hasMtp: true,
  kvScales: {},
  weights,
};
writeFileSync(join(out, 'engine.json'), JSON.stringify(manifest));
console.log(
  `${out}: ${openEngineFolder(out).weights.size} weights, ${((header.length + at) / 2 ** 30).toFixed(2)} GiB`,
);
