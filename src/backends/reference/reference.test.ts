/** The definition itself: against the plain formulas where an op uses a cleverer form, and against misuse. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { randomFrom, randomValues } from '../../../test/support/rig.ts';
import { dequantizeNvfp4, packTiles, quantizeNvfp4 } from '../../dtypes/index.ts';
import type { Backend, Batch, Buffer, KvSpec, Segment, StateSpec } from '../backend.ts';
import { openReference, pageBytesOf, snapshotBytesOf } from './index.ts';

const stateSpec: StateSpec = {
  ...{ layers: 1, keyHeads: 2, valueHeads: 4, keyDim: 6, valueDim: 5, convKernel: 4, chunk: 8 },
  ...{ hiddenDim: 3, slots: 2, maxNodes: 12, snapshots: 2 },
};
const channels = 2 * 2 * 6 + 4 * 5;
const kvSpec: KvSpec = {
  ...{ dtype: 'f32', layers: 1, kvHeads: 1, headDim: 4, pageTokens: 4, pages: 8, slots: 2, maxNodes: 12 },
};

function segmentOf(given: Partial<Segment>): Segment {
  const pages = Int32Array.of(5, 2, 7, 0, 1, 3, 4, 6);
  return {
    ...{ slot: 0, firstRow: 0, ctxLen: 0, chainLen: 1, pages, nodeParents: new Int32Array(0), nodeStart: 0 },
    ...given,
  };
}

function batchOf(segment: Partial<Segment>, positions: readonly number[]): Batch {
  const rows = positions.length;
  return {
    ...{ rows, ids: new Int32Array(rows), positions: Int32Array.from(positions) },
    segments: [segmentOf(segment)],
  };
}

const chain = (count: number): Batch => batchOf({ chainLen: count }, [...Array(count).keys()]);

async function floats(backend: Backend, buffer: Buffer): Promise<Float32Array> {
  const values = new Float32Array(buffer.bytes / 4);
  await backend.read(buffer, 0, values);
  return values;
}

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  expect(a.length).toBe(b.length);
  return Array.from(a).reduce((max, value, i) => Math.max(max, Math.abs(value - (b[i] as number))), 0);
}

interface DeltaInput {
  readonly qkv: Float32Array;
  readonly b: Float32Array;
  readonly a: Float32Array;
  readonly aLog: Float32Array;
  readonly dtBias: Float32Array;
}

/** The recurrence of qwen35-model 2.5 (6), one value head, in double precision. */
function recurrence({ qkv, b, a, aLog, dtBias }: DeltaInput, rows: number, head: number): number[][] {
  const [dk, dv, hv, rep] = [6, 5, 4, 2];
  const unit = (x: number[]): number[] => {
    const size = Math.sqrt(x.reduce((sum, v) => sum + v * v, 0) + 1e-6);
    return x.map((v) => v / size);
  };
  const s = Array.from({ length: dk }, () => new Array<number>(dv).fill(0));
  const column = (x: number[], j: number): number =>
    s.reduce((sum, row, i) => sum + (row[j] as number) * (x[i] as number), 0);
  return Array.from({ length: rows }, (_, t) => {
    const row = [...qkv.subarray(t * channels, (t + 1) * channels)];
    const key = Math.floor(head / rep) * dk;
    const q = unit(row.slice(key, key + dk)).map((v) => v / Math.sqrt(dk));
    const k = unit(row.slice(12 + key, 12 + key + dk));
    const v = row.slice(24 + head * dv, 24 + (head + 1) * dv);
    const at = t * hv + head;
    const beta = 1 / (1 + Math.exp(-(b[at] as number)));
    const decay = Math.exp(
      -Math.exp(aLog[head] as number) * Math.log(1 + Math.exp((a[at] as number) + (dtBias[head] as number))),
    );
    for (const line of s)
      line.forEach((_, j) => {
        line[j] = (line[j] as number) * decay;
      });
    const delta = v.map((value, j) => beta * (value - column(k, j)));
    s.forEach((line, i) => {
      delta.forEach((d, j) => {
        line[j] = (line[j] as number) + (k[i] as number) * d;
      });
    });
    return delta.map((_, j) => column(q, j));
  });
}

describe('reference', () => {
  it('computes the closed form of the delta rule as the recurrence', async () => {
    const backend = openReference();
    const random = randomFrom(1);
    const rows = 45;
    const input: DeltaInput = {
      qkv: randomValues(rows * channels, random),
      b: randomValues(rows * 4, random),
      a: randomValues(rows * 4, random),
      aLog: randomValues(4, random),
      dtBias: randomValues(4, random),
    };
    const pool = backend.createStatePool(stateSpec);
    const out = backend.alloc(rows * 20);
    const buffers = {
      qkv: backend.upload(input.qkv),
      b: backend.upload(input.b),
      a: backend.upload(input.a),
      aLog: backend.upload(input.aLog),
      dtBias: backend.upload(input.dtBias),
    };
    backend.deltaRule({ out, ...buffers }, pool, 0, chain(rows));
    const values = await floats(backend, out);
    for (let head = 0; head < 4; head++) {
      const expected = recurrence(input, rows, head);
      const actual = expected.map((_, t) => values.subarray((t * 4 + head) * 5, (t * 4 + head + 1) * 5));
      expected.forEach((row, t) => {
        expect(largestDifference(actual[t] as Float32Array, row)).toBeLessThan(1e-5);
      });
    }
  });

  it('convolves over the last inputs of the path and applies SiLU', async () => {
    const backend = openReference();
    const random = randomFrom(2);
    const pool = backend.createStatePool(stateSpec);
    const [m, w] = [randomValues(6 * channels, random), randomValues(channels * 4, random)];
    const out = backend.alloc(6 * channels);
    // Rows 0 to 2 are the chain, rows 3 and 4 a path below it, row 5 a second child of the chain.
    const nodeParents = Int32Array.of(-1, 0, -1);
    const batch = batchOf({ chainLen: 3, nodeParents }, [0, 1, 2, 3, 4, 3]);
    backend.conv(out, backend.upload(m), backend.upload(w), pool, 0, batch);
    const paths = [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 5]];
    const expected = paths.flatMap((path) =>
      Array.from({ length: channels }, (_, ch) => {
        const taps = path.slice(-4);
        const sum = taps.reduce(
          (total, row, i) =>
            total + (w[ch * 4 + 4 - taps.length + i] as number) * (m[row * channels + ch] as number),
          0,
        );
        return sum / (1 + Math.exp(-sum));
      }),
    );
    expect(largestDifference(await floats(backend, out), expected)).toBeLessThan(1e-6);
  });

  it('attends over a path across pages as a plain softmax does', async () => {
    const backend = openReference();
    const random = randomFrom(3);
    const pool = backend.createKvPool(kvSpec);
    const [q, k, v] = [
      randomValues(13 * 8, random),
      randomValues(13 * 4, random),
      randomValues(13 * 4, random),
    ];
    const nodeParents = Int32Array.of(-1, 0, -1, 2);
    const batch = batchOf({ chainLen: 9, nodeParents }, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 9, 10]);
    const scales = { kScale: 1, vScale: 1 };
    const out = backend.alloc(13 * 8);
    backend.storeKv(pool, 0, { k: backend.upload(k), v: backend.upload(v), ...scales }, batch);
    backend.attention(out, { q: backend.upload(q), pool, layer: 0, heads: 2, ...scales }, batch);
    const values = await floats(backend, out);
    const common = [0, 1, 2, 3, 4, 5, 6, 7, 8];
    for (const [row, path] of [
      [8, common],
      [10, [...common, 9, 10]],
      [12, [...common, 11, 12]],
    ] as const) {
      for (const head of [0, 1]) {
        const query = q.subarray((row * 2 + head) * 4, (row * 2 + head + 1) * 4);
        const weights = path.map((at) =>
          Math.exp(query.reduce((sum, x, d) => sum + x * (k[at * 4 + d] as number), 0) / 2),
        );
        const total = weights.reduce((a, b) => a + b, 0);
        const expected = [0, 1, 2, 3].map((d) =>
          path.reduce((sum, at, i) => sum + ((weights[i] as number) / total) * (v[at * 4 + d] as number), 0),
        );
        const actual = values.subarray((row * 2 + head) * 4, (row * 2 + head + 1) * 4);
        expect(largestDifference(actual, expected)).toBeLessThan(1e-6);
      }
    }
  });

  it('multiplies NVFP4 weights within the error of int8 activations', async () => {
    const backend = openReference();
    const random = randomFrom(4);
    const [outDim, inDim] = [21, 272];
    const quantized = quantizeNvfp4(randomValues(outDim * inDim, random), outDim, inDim);
    const x = randomValues(inDim, random);
    const spec = { format: 'nvfp4-tile', outDim, inDim, scale: quantized.scale2 } as const;
    const weight = backend.weightFrom(spec, packTiles(quantized.codes, quantized.scales, outDim, inDim));
    const out = backend.alloc(outDim);
    backend.linear(out, weight, backend.upload(x), 1);
    const w = dequantizeNvfp4(quantized);
    const exact = Array.from({ length: outDim }, (_, o) =>
      x.reduce((sum, value, i) => sum + value * (w[o * inDim + i] as number), 0),
    );
    const step = Math.max(...x.map(Math.abs)) / 127;
    const error = largestDifference(await floats(backend, out), exact);
    expect(error).toBeGreaterThan(0);
    expect(error).toBeLessThan(step * Math.sqrt(inDim) * 1.5);
  });

  it('stores FP8 rounded and saturated, in units of the scale', async () => {
    const backend = openReference();
    const pool = backend.createKvPool({ ...kvSpec, dtype: 'fp8' });
    const [k, v] = [
      backend.upload(new Float32Array(4)),
      backend.upload(Float32Array.of(1.06, -2000, 0.3, 0)),
    ];
    const scales = { kScale: 1, vScale: 2 };
    backend.storeKv(pool, 0, { k, v, ...scales }, chain(1));
    const out = backend.alloc(4);
    backend.attention(out, { q: k, pool, layer: 0, heads: 1, ...scales }, chain(1));
    expect([...(await floats(backend, out))]).toEqual([1, -896, 0.3125, 0]);
  });

  it('reads weights from a file, and names what a truncated one lacks', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'copse-'));
    const path = join(folder, 'weights');
    writeFileSync(path, new Uint8Array(Float32Array.of(9, 1, 2, 3, 4).buffer));
    const backend = openReference();
    const file = backend.openWeights(path);
    const spec = { format: 'f32', outDim: 2, inDim: 2, scale: 1 } as const;
    const out = backend.alloc(2);
    backend.linear(out, file.weight(spec, 4, 16), backend.upload(Float32Array.of(1, 10)), 1);
    expect([...(await floats(backend, out))]).toEqual([21, 43]);
    expect(() => file.weight(spec, 8, 16)).toThrow(/has 20 bytes, a weight lies at 8 \.\. 24/);
    file.close();
    expect(() => file.weight(spec, 4, 16)).toThrow(/is open/);
    rmSync(folder, { recursive: true });
  });

  it('counts the bytes of pages and snapshots', () => {
    const backend = openReference();
    expect(backend.createKvPool({ ...kvSpec, dtype: 'bf16' }).pageBytes).toBe(2 * 4 * 4 * 2);
    expect(pageBytesOf(kvSpec)).toBe(2 * 4 * 4 * 4);
    const perLayer = 2 * 4 * 6 * 5 + 16 * (12 + 20 + 4) + 3 * channels;
    expect(backend.createStatePool(stateSpec).snapshotBytes).toBe(4 * (perLayer + 3));
    expect(snapshotBytesOf(stateSpec)).toBe(4 * (perLayer + 3));
  });
});
