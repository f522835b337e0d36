/** The model around its goldens: weight formats, shapes of its memory, and misuse. */
import { describe, expect, it } from 'vitest';
import { randomFrom, randomValues } from '../../test/support/rig.ts';
import { type Backend, openReference } from '../backends/index.ts';
import {
  type Checkpoint,
  expectedMtpWeights,
  expectedWeights,
  memoryCheckpoint,
  parseConfig,
  type TensorDtype,
} from '../checkpoint/index.ts';
import { dequantizeNvfp4, e4m3Decode, e4m3Encode, f32ToBf16, quantizeNvfp4 } from '../dtypes/index.ts';
import { checkpointSource, loadModel, type Model, type WeightSource } from './index.ts';

const config = {
  ...{
    model_type: 'qwen3_5_text',
    vocab_size: 48,
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 2,
  },
  ...{ layer_types: ['linear_attention', 'full_attention'], num_attention_heads: 4, num_key_value_heads: 2 },
  ...{ head_dim: 16, linear_num_key_heads: 2, linear_num_value_heads: 4, linear_key_head_dim: 8 },
  ...{ linear_value_head_dim: 8, linear_conv_kernel_dim: 4, tie_word_embeddings: false },
  ...{ mtp_num_hidden_layers: 1, max_position_embeddings: 1024 },
};

interface Tensor {
  dtype: TensorDtype;
  shape: readonly number[];
  bytes: Uint8Array;
}

const bytesOf = (values: Float32Array | Uint16Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
const f32 = (values: Float32Array, shape: readonly number[]): Tensor => ({
  dtype: 'F32',
  shape,
  bytes: bytesOf(values),
});

/** Random weights; `store` decides how each matrix lies in the file. */
function randomCheckpoint(
  store: (stem: string, values: Float32Array, shape: readonly number[]) => Record<string, Tensor>,
  extra: { readonly tied?: boolean; readonly withMtp?: boolean } = {},
): Checkpoint {
  const { tied = false, withMtp = true } = extra;
  const json = { ...config, tie_word_embeddings: tied };
  const parsed = parseConfig(json);
  const random = randomFrom(21);
  const tensors: Record<string, Tensor> = {};
  for (const { name, shape, linear } of [...expectedWeights(parsed), ...expectedMtpWeights(parsed)]) {
    const values = randomValues(
      shape.reduce((a, b) => a * b, 1),
      random,
    ).map((x) => x * (linear ? (shape.at(-1) as number) ** -0.5 : 0.5));
    if (name.startsWith('mtp.') && !withMtp) continue;
    const stem = name.replace(/\.weight$/, '');
    Object.assign(tensors, linear ? store(stem, values, shape) : { [name]: f32(values, shape) });
  }
  return memoryCheckpoint(json, tensors);
}

const plainFile = (stem: string, values: Float32Array, shape: readonly number[]): Record<string, Tensor> => ({
  [`${stem}.weight`]: f32(values, shape),
});

/** What `stored` means, as plain fp32 tensors. */
const formats: Record<
  string,
  {
    store: Parameters<typeof randomCheckpoint>[0];
    meaning: Parameters<typeof randomCheckpoint>[0];
    tolerance: number;
  }
> = {
  'ModelOpt NVFP4, multiplied with int8 activations': {
    store(stem, values, [out, input]) {
      const q = quantizeNvfp4(values, out as number, input as number);
      return {
        [`${stem}.weight`]: { dtype: 'U8', shape: [out as number, (input as number) / 2], bytes: q.codes },
        [`${stem}.weight_scale`]: {
          dtype: 'F8_E4M3',
          shape: [out as number, (input as number) / 16],
          bytes: q.scales,
        },
        [`${stem}.weight_scale_2`]: f32(Float32Array.of(q.scale2), []),
      };
    },
    meaning: (stem, values, shape) =>
      plainFile(stem, dequantizeNvfp4(quantizeNvfp4(values, shape[0] as number, shape[1] as number)), shape),
    tolerance: 0.05,
  },
  'ModelOpt FP8': {
    store: (stem, values, shape) => ({
      [`${stem}.weight`]: {
        dtype: 'F8_E4M3',
        shape,
        bytes: Uint8Array.from(values, (x) => e4m3Encode(x / 0.01)),
      },
      [`${stem}.weight_scale`]: f32(Float32Array.of(0.01), []),
    }),
    meaning: (stem, values, shape) =>
      plainFile(
        stem,
        values.map((x) => (e4m3Decode[e4m3Encode(x / 0.01)] as number) * Math.fround(0.01)),
        shape,
      ),
    tolerance: 1e-5,
  },
  bf16: {
    store(stem, values, shape) {
      const halves = new Uint16Array(values.length);
      f32ToBf16(values, halves);
      return { [`${stem}.weight`]: { dtype: 'BF16', shape, bytes: bytesOf(halves) } };
    },
    meaning(stem, values, shape) {
      const halves = new Uint16Array(values.length);
      f32ToBf16(values, halves);
      const wide = new Uint32Array(values.length).map((_, i) => (halves[i] as number) << 16);
      return plainFile(stem, new Float32Array(wide.buffer), shape);
    },
    tolerance: 0,
  },
};

const ids = [3, 14, 15, 9, 2, 6, 5, 35, 8, 9, 7, 9];

const allRows = Int32Array.from(ids.keys());

async function run(
  backend: Backend,
  model: Model,
  kind: 'main' | 'mtp' = 'main',
  logitRows = allRows,
): Promise<Float32Array> {
  const pages = Int32Array.of(1, 0, 2);
  const kv = backend.createKvPool({
    ...model.kvShape,
    dtype: 'f32',
    pageTokens: 8,
    pages: 3,
    slots: 1,
    maxNodes: 4,
  });
  const state = backend.createStatePool({ ...model.stateShape, slots: 1, maxNodes: 4, snapshots: 0 });
  const chain = { slot: 0, firstRow: 0, ctxLen: 0, chainLen: ids.length, pages };
  const batch = {
    rows: ids.length,
    ids: Int32Array.from(ids),
    positions: Int32Array.from(ids.keys()),
    segments: [{ ...chain, nodeParents: new Int32Array(0), nodeStart: 0 }],
  };
  const pools = { kv, state };
  const main = model.forward(batch, logitRows, pools);
  const { logits } =
    kind === 'main' ? main : model.forwardMtp(batch, { hidden: main.hidden, logitRows }, pools);
  const values = new Float32Array(logitRows.length * model.vocabSize);
  await backend.read(logits, 0, values);
  return values;
}

const load = (backend: Backend, ck: Checkpoint): Model =>
  loadModel(backend, checkpointSource(backend, ck), { maxRows: 16 });

function largestDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((max, value, i) => Math.max(max, Math.abs(value - (b[i] as number))), 0);
}

describe('qwen35', () => {
  it.each(Object.entries(formats))('gives with %s weights what their values give', async (_, format) => {
    const backend = openReference();
    for (const kind of ['main', 'mtp'] as const) {
      const stored = await run(backend, load(backend, randomCheckpoint(format.store)), kind);
      const plain = await run(backend, load(backend, randomCheckpoint(format.meaning)), kind);
      const size = Math.max(...plain.map(Math.abs));
      expect(size).toBeGreaterThan(0.5);
      expect(largestDifference(stored, plain)).toBeLessThanOrEqual(format.tolerance * size);
    }
  });

  it('declares its memory: MTP is the last KV layer and keeps a hidden row', () => {
    const backend = openReference();
    const model = load(backend, randomCheckpoint(plainFile));
    expect(model.kvShape).toEqual({ layers: 2, kvHeads: 2, headDim: 16 });
    expect(model.stateShape).toMatchObject({
      layers: 1,
      keyHeads: 2,
      valueHeads: 4,
      chunk: 32,
      hiddenDim: 32,
    });
    const plain = load(backend, randomCheckpoint(plainFile, { withMtp: false }));
    expect([plain.hasMtp, plain.kvShape.layers, plain.stateShape.hiddenDim]).toEqual([false, 1, 0]);
  });

  it('uses the embedding as head when tied, unless the source has a head of its own', async () => {
    const backend = openReference();
    const ck = randomCheckpoint(plainFile, { tied: true });
    const tied = await run(backend, load(backend, ck));
    const source = checkpointSource(backend, ck);
    const negated = new Float32Array(48 * 32).fill(0.25);
    const head = backend.weightFrom({ format: 'f32', outDim: 48, inDim: 32, scale: 1 }, bytesOf(negated));
    const withHead: WeightSource = {
      ...source,
      has: (name) => name === 'lm_head.weight' || source.has(name),
      matrix: (name) => (name === 'lm_head.weight' ? head : source.matrix(name)),
    };
    const own = await run(backend, loadModel(backend, withHead, { maxRows: 16 }));
    expect(source.has('lm_head.weight')).toBe(false);
    expect(new Set(own.subarray(0, 48)).size).toBe(1);
    expect(new Set(tied.subarray(0, 48)).size).toBe(48);
  });

  it('gives a row the same logits whichever rows are asked for', async () => {
    const backend = openReference();
    const model = load(backend, randomCheckpoint(plainFile));
    const all = await run(backend, model);
    for (const rows of [[11], [0, 5], []]) {
      const some = await run(backend, model, 'main', Int32Array.from(rows));
      expect([...some]).toEqual(rows.flatMap((row) => [...all.subarray(row * 48, (row + 1) * 48)]));
    }
  });

  it('refuses MTP without its weights, too many rows, and logit rows that are not there', async () => {
    const backend = openReference();
    const model = load(backend, randomCheckpoint(plainFile, { withMtp: false }));
    await expect(async () => run(backend, model, 'mtp')).rejects.toThrow('the MTP layer of this model');
    const small = loadModel(backend, checkpointSource(backend, randomCheckpoint(plainFile)), {
      maxRows: 11,
    });
    await expect(async () => run(backend, small)).rejects.toThrow('12 rows, at most 11');
    const kv = backend.createKvPool({
      ...model.kvShape,
      dtype: 'f32',
      pageTokens: 8,
      pages: 1,
      slots: 1,
      maxNodes: 1,
    });
    const state = backend.createStatePool({ ...model.stateShape, slots: 1, maxNodes: 1, snapshots: 0 });
    const batch = { rows: 1, ids: Int32Array.of(1), positions: Int32Array.of(0), segments: [] };
    expect(() => model.forward(batch, Int32Array.of(1), { kv, state })).toThrow(
      'logit row 1 is one of 1 rows',
    );
    expect(() =>
      loadModel(backend, checkpointSource(backend, randomCheckpoint(plainFile)), { maxRows: 0 }),
    ).toThrow('at most 0 rows');
  });

  it('frees its memory and closes its source', () => {
    const backend = openReference();
    let closed = 0;
    const source = {
      ...checkpointSource(backend, randomCheckpoint(plainFile)),
      close: () => {
        closed++;
      },
    };
    const model = loadModel(backend, source, { maxRows: 4 });
    model.close();
    expect(closed).toBe(1);
    expect(() => model.close()).toThrow(/is live/);
  });
});
