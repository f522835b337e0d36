/**
 * Every op of every back-end against `reference`, with cases as data. A difference is measured in units of the largest magnitude of the
 * reference output; the tolerances are those of fp32 sums in another order. Ids and copies are equal. Rows alone equal rows in a batch
 * bit for bit (sequences: exactness.backend.test.ts).
 */
import { afterAll, describe, expect, it } from 'vitest';
import { availableBackends } from '../../test/support/backends.ts';
import { Rig, type RigShape, randomFrom, randomValues, rigVocab } from '../../test/support/rig.ts';
import { makeWeight } from '../../test/support/weights.ts';
import { packTiles } from '../dtypes/index.ts';
import { type Backend, type Batch, type Buffer, openReference, type WeightFormat } from './index.ts';

type Values = Float32Array | Int32Array;

interface OpCase {
  readonly name: string;
  /** 0 = equal. */
  readonly tolerance: number;
  readonly run: (backend: Backend, random: () => number) => Promise<readonly Values[]>;
}

async function floats(backend: Backend, buffer: Buffer, count = buffer.bytes / 4): Promise<Float32Array> {
  const values = new Float32Array(count);
  await backend.read(buffer, 0, values);
  return values;
}

async function ints(backend: Backend, buffer: Buffer): Promise<Int32Array> {
  const values = new Int32Array(buffer.bytes / 4);
  await backend.read(buffer, 0, values);
  return values;
}

const formats: WeightFormat[] = [
  'nvfp4-tile',
  'bf16',
  'f32',
  'fp8',
  'fp8-row',
  'fp8-128',
  'fp8-64',
  'fp8-32',
];
const linearShapes = [
  [1, 16],
  [15, 96],
  [16, 128],
  [33, 144],
  [40, 256],
  [100, 400],
] as const;

const linearCases: OpCase[] = formats.flatMap((format) =>
  linearShapes.flatMap(([outDim, inDim]) =>
    [1, 3, 13, 37].map((rows) => ({
      name: `linear ${format} [${outDim}, ${inDim}], ${rows} rows`,
      tolerance: 2e-6,
      run: async (backend, random) => {
        const weight = makeWeight(backend, format, [outDim, inDim], random);
        const out = backend.alloc(rows * outDim);
        backend.linear(out, weight, backend.upload(randomValues(rows * inDim, random)), rows);
        return [await floats(backend, out)];
      },
    })),
  ),
);

const eps = 1e-6;

/** Ops over `rows` x `dim` values; dims below, at and beyond vector widths. */
const rowCases: OpCase[] = [
  [1, 1],
  [1, 16],
  [3, 20],
  [5, 96],
  [2, 257],
].flatMap(([rows, dim]) => {
  const [r, d] = [rows as number, dim as number];
  const count = r * d;
  const op = (
    name: string,
    tolerance: number,
    issue: (backend: Backend, out: Buffer, x: Buffer, y: Buffer, w: Buffer) => void,
  ): OpCase => ({
    name: `${name}, ${r} x ${d}`,
    tolerance,
    run: async (backend, random) => {
      const out = backend.alloc(count);
      const x = backend.upload(randomValues(count, random).map((v) => 4 * v));
      const y = backend.upload(randomValues(count, random));
      issue(backend, out, x, y, backend.upload(randomValues(d, random)));
      return [await floats(backend, out), await floats(backend, x)];
    },
  });
  return [
    op('rmsNorm', 2e-6, (b, out, x, _, w) => b.rmsNorm(out, x, w, { rows: r, dim: d, eps })),
    op('rmsNorm in place', 2e-6, (b, _, x, __, w) => b.rmsNorm(x, x, w, { rows: r, dim: d, eps })),
    op('gatedRmsNorm', 2e-6, (b, out, x, y, w) => b.gatedRmsNorm(out, x, y, w, { rows: r, dim: d, eps })),
    op('gatedRmsNorm in place', 2e-6, (b, _, x, y, w) =>
      b.gatedRmsNorm(x, x, y, w, { rows: r, dim: d, eps }),
    ),
    op('add', 0, (b, _, x, y) => b.add(x, y, count)),
    op('add of a part', 0, (b, _, x, y) => b.add(x, y, count - 1)),
    op('siluMul', 2e-6, (b, out, x, y) => b.siluMul(out, x, y, count)),
    op('siluMul in place', 2e-6, (b, _, x, y) => b.siluMul(x, x, y, count)),
    op('sigmoidMul', 2e-6, (b, out, x, y) => b.sigmoidMul(out, x, y, count)),
    op('sigmoidMul in place', 2e-6, (b, _, x, y) => b.sigmoidMul(x, x, y, count)),
    op('gatherRows', 0, (b, out, x) =>
      b.gatherRows(
        out,
        x,
        Int32Array.from({ length: r }, (_, i) => r - 1 - i),
        d,
      ),
    ),
  ];
});

function chainBatch(rows: number, firstPosition: number): Batch {
  return {
    rows,
    ids: new Int32Array(rows),
    positions: Int32Array.from({ length: rows }, (_, i) => firstPosition + 1000 * i),
    segments: [],
  };
}

const ropeCases: OpCase[] = [
  { heads: 6, kvHeads: 2, headDim: 32, rotaryDim: 8, scale: 1, position: 0 },
  { heads: 4, kvHeads: 1, headDim: 64, rotaryDim: 16, scale: 1, position: 61_000 },
  { heads: 3, kvHeads: 3, headDim: 20, rotaryDim: 20, scale: 1.1386, position: 250_000 },
].flatMap(({ heads, kvHeads, headDim, rotaryDim, scale, position }) =>
  [1, 5].map((rows) => ({
    name: `prepareQkv of ${heads}/${kvHeads} heads of ${headDim}, ${rows} rows from position ${position}`,
    tolerance: 2e-6,
    run: async (backend, random) => {
      const width = rows * heads * headDim;
      const [q, gate, k] = [
        backend.alloc(width),
        backend.alloc(width),
        backend.alloc(rows * kvHeads * headDim),
      ];
      const invFreq = Float32Array.from({ length: rotaryDim / 2 }, (_, i) => 1e7 ** ((-2 * i) / rotaryDim));
      const args = {
        ...{ q, gate, k, heads, kvHeads, headDim, eps },
        qg: backend.upload(randomValues(2 * width, random)),
        rawK: backend.upload(randomValues(rows * kvHeads * headDim, random)),
        qNorm: backend.upload(randomValues(headDim, random)),
        kNorm: backend.upload(randomValues(headDim, random)),
        rope: { rotaryDim, invFreq, scale },
      };
      backend.prepareQkv(args, chainBatch(rows, position));
      return [await floats(backend, q), await floats(backend, gate), await floats(backend, k)];
    },
  })),
);

/** Rows with equal best values, with all values equal, and with a larger value among the unusable ids. */
function logitRows(rows: number, width: number, random: () => number): Float32Array {
  const values = randomValues(rows * width, random).map((x) => Math.round(4 * x) / 2);
  values.fill(1, 0, width);
  for (let row = 0; row < rows; row++) values[(row + 1) * width - 1] = 1e6;
  return values;
}

const headCases: OpCase[] = [
  { rows: 1, width: 20, usable: 19, k: 1 },
  { rows: 3, width: 320, usable: 301, k: 8 },
  { rows: 5, width: 1003, usable: 1000, k: 20 },
].flatMap((shape): OpCase[] => [
  {
    name: `argmax of ${shape.usable} in ${shape.rows} rows`,
    tolerance: 0,
    run: async (backend, random) => {
      const out = backend.alloc(shape.rows);
      backend.argmax(out, backend.upload(logitRows(shape.rows, shape.width, random)), shape);
      return [await ints(backend, out)];
    },
  },
  {
    name: `topK, ids of the ${shape.k} best of ${shape.usable} in ${shape.rows} rows`,
    tolerance: 0,
    run: async (backend, random) => [await ints(backend, (await bestOf(backend, shape, random)).ids)],
  },
  {
    name: `topK, log-probabilities of the ${shape.k} best of ${shape.usable} in ${shape.rows} rows`,
    tolerance: 2e-6,
    run: async (backend, random) => [await floats(backend, (await bestOf(backend, shape, random)).logProbs)],
  },
]);

async function bestOf(
  backend: Backend,
  shape: { rows: number; width: number; usable: number; k: number },
  random: () => number,
): Promise<{ ids: Buffer; logProbs: Buffer }> {
  const out = { ids: backend.alloc(shape.rows * shape.k), logProbs: backend.alloc(shape.rows * shape.k) };
  backend.topK(out, backend.upload(logitRows(shape.rows, shape.width, random)), shape);
  return out;
}

const copyCases: OpCase[] = [
  ...(['bf16', 'f32'] as const).map((format) => ({
    name: `embed from ${format}`,
    tolerance: 0,
    run: async (backend: Backend, random: () => number) => {
      const out = backend.alloc(4 * 24);
      backend.embed(out, makeWeight(backend, format, [30, 24], random), Int32Array.of(29, 0, 7, 7));
      return [await floats(backend, out)];
    },
  })),
  {
    name: 'concatRows',
    tolerance: 0,
    run: async (backend, random) => {
      const out = backend.alloc(3 * 12);
      const [a, b] = [
        backend.upload(randomValues(3 * 5, random)),
        backend.upload(randomValues(3 * 7, random)),
      ];
      backend.concatRows(out, a, b, { rows: 3, dimA: 5, dimB: 7 });
      return [await floats(backend, out)];
    },
  },
  {
    name: 'write and read at an offset, fp32 and int32',
    tolerance: 0,
    run: async (backend, random) => {
      const buffer = backend.alloc(10);
      backend.write(buffer, 3, randomValues(4, random));
      backend.write(buffer, 8, Int32Array.of(-5, 2 ** 30));
      const tail = new Int32Array(2);
      await backend.read(buffer, 8, tail);
      return [await floats(backend, buffer, 8), tail];
    },
  },
  {
    name: 'keepHidden and loadHidden, through a snapshot',
    tolerance: 0,
    run: async (backend, random) => {
      const shape = {
        layers: 1,
        keyHeads: 1,
        valueHeads: 1,
        keyDim: 4,
        valueDim: 4,
        convKernel: 4,
        chunk: 8,
      };
      const pool = backend.createStatePool({ ...shape, hiddenDim: 12, slots: 2, maxNodes: 4, snapshots: 2 });
      backend.resetState(pool, 0);
      backend.keepHidden(pool, 0, backend.upload(randomValues(5 * 12, random)), 3);
      backend.saveState(pool, 0, 0, 1);
      backend.restoreState(pool, 1, 0, 1);
      const out = backend.alloc(3 * 12);
      backend.loadHidden(out, 2, pool, 1);
      return [await floats(backend, out)];
    },
  },
];

const rigShapes: RigShape[] = (['fp8', 'bf16', 'f32'] as const).flatMap((dtype) => [
  {
    ...{ dtype, heads: 6, kvHeads: 2, headDim: 32, pageTokens: 16, keyHeads: 2, valueHeads: 6, keyDim: 32 },
    ...{ valueDim: 32, convKernel: 4, chunk: 32, scales: { kScale: 0.5, vScale: 0.25 } },
  },
  {
    ...{ dtype, heads: 3, kvHeads: 1, headDim: 20, pageTokens: 8, keyHeads: 1, valueHeads: 3, keyDim: 12 },
    ...{ valueDim: 20, convKernel: 3, chunk: 8, scales: { kScale: 1, vScale: 1 } },
  },
]);

/** Chains across pages and chunks, a tree, a committed path, and the tokens behind it: attention, conv and delta rule. */
const sequenceCases: OpCase[] = rigShapes.map((shape) => ({
  name: `sequence in ${shape.dtype}, pages of ${shape.pageTokens}, chunk ${shape.chunk}, heads of ${shape.headDim}`,
  tolerance: 3e-5,
  run: async (backend, random) => {
    const ids = (count: number): number[] =>
      Array.from({ length: count }, () => Math.floor(random() * rigVocab));
    const rig = new Rig(backend, shape, 11);
    const rows = await rig.step([
      { slot: 0, chain: ids(61) },
      { slot: 2, chain: ids(1) },
    ]);
    const nodes = { ids: ids(7), parents: [-1, 0, 1, 0, -1, 2, 5] };
    rows.push(...(await rig.step([{ slot: 0, chain: ids(1), nodes }])));
    rig.commit(0, [0, 1, 2, 5]);
    rows.push(
      ...(await rig.step([
        { slot: 0, chain: ids(9) },
        { slot: 2, chain: ids(40) },
      ])),
    );
    return rows;
  },
}));

const cases = [...linearCases, ...rowCases, ...ropeCases, ...headCases, ...copyCases, ...sequenceCases];

function expectClose(actual: Values, expected: Values, tolerance: number): void {
  expect(actual.length).toBe(expected.length);
  const size = Array.from(expected).reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  const limit = tolerance * size;
  for (const [i, value] of expected.entries()) {
    const difference = Math.abs((actual[i] as number) - value);
    if (!(difference <= limit)) expect.fail(`value ${i} is ${actual[i]} instead of ${value}, limit ${limit}`);
  }
}

describe.each(availableBackends())('$name agrees with reference', ({ open }) => {
  const backend = open();
  const reference = openReference();
  afterAll(() => {
    backend.close();
    reference.close();
  });

  it.each(cases)('$name', async ({ run, tolerance }) => {
    const [actual, expected] = [await run(backend, randomFrom(5)), await run(reference, randomFrom(5))];
    expect(actual.length).toBe(expected.length);
    for (const [i, values] of expected.entries()) expectClose(actual[i] as Values, values, tolerance);
  });
});

describe.each(availableBackends())('$name', ({ open }) => {
  const backend = open();
  afterAll(() => backend.close());

  it.each(formats)('multiplies a row by %s weights as it does in any batch', async (format) => {
    const [outDim, inDim, most] = [35, 144, 29];
    const random = randomFrom(9);
    const weight = makeWeight(backend, format, [outDim, inDim], random);
    const x = randomValues(most * inDim, random);
    const input = backend.upload(x);
    const out = backend.alloc(most * outDim);
    backend.linear(out, weight, input, most);
    const whole = await floats(backend, out);
    for (let count = 1; count <= most; count++) {
      const from = most - count;
      backend.write(input, 0, x.slice(from * inDim));
      backend.linear(out, weight, input, count);
      const part = await floats(backend, out, count * outDim);
      expect(Buffer.compare(bytesOf(part), bytesOf(whole.slice(from * outDim))), `${count} rows`).toBe(0);
    }
  });

  it('rounds activations to int8 with ties to even, per group of 128 inputs', async () => {
    // Groups with a largest magnitude of 127 have a scale of 1: codes are the rounded values.
    const x = Float32Array.from({ length: 144 }, (_, i) => (i % 128 === 0 ? 127 : (i % 16) - 7.5));
    const codes = [...x].map((v) => (Math.abs(v) === 127 ? v : 2 * Math.round(v / 2)));
    const { codes: ones, scales } = {
      codes: new Uint8Array(72).fill(0x22),
      scales: new Uint8Array(9).fill(0x38),
    };
    const spec = { format: 'nvfp4-tile', outDim: 1, inDim: 144, scale: 1 } as const;
    const weight = backend.weightFrom(spec, packTiles(ones, scales, 1, 144));
    const out = backend.alloc(1);
    backend.linear(out, weight, backend.upload(x), 1);
    expect([...(await floats(backend, out))]).toEqual([codes.reduce((a, b) => a + b, 0)]);
  });

  it('gives zero for rows of zeros and keeps rows apart', async () => {
    const weight = makeWeight(backend, 'nvfp4-tile', [20, 256], randomFrom(2));
    const x = new Float32Array(3 * 256).fill(1, 256, 512);
    const out = backend.alloc(60);
    backend.linear(out, weight, backend.upload(x), 3);
    const values = await floats(backend, out);
    expect(values.subarray(0, 20).every((v) => v === 0)).toBe(true);
    expect(values.subarray(20, 40).every((v) => v !== 0)).toBe(true);
    expect(values.subarray(40).every((v) => v === 0)).toBe(true);
  });
});

const bytesOf = (values: Float32Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
