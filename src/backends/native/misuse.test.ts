/** A bad index or size is an exception of the native back-end, never a crash or a wrong number. */
import { writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Batch, Buffer, KvPool, Segment, StatePool } from '../backend.ts';
import { openNative, tryNative } from './index.ts';

const ints = (...values: number[]): Int32Array => Int32Array.from(values);
const ones = { kScale: 1, vScale: 1 };

function segment(given: Partial<Segment>): Segment {
  return {
    ...{
      slot: 0,
      firstRow: 0,
      ctxLen: 0,
      chainLen: 1,
      pages: ints(5, 2, 7),
      nodeParents: ints(),
      nodeStart: 0,
    },
    ...given,
  };
}

function batch(rows: number, ...segments: Partial<Segment>[]): Batch {
  return {
    rows,
    ids: new Int32Array(rows),
    positions: new Int32Array(rows),
    segments: segments.map(segment),
  };
}

interface Bench {
  readonly native: ReturnType<typeof openNative>;
  readonly kv: KvPool;
  readonly state: StatePool;
  readonly x: Buffer;
  readonly y: Buffer;
}

function open(): Bench {
  const native = openNative(1);
  const kv = native.createKvPool({
    ...{ dtype: 'fp8', layers: 1, kvHeads: 1, headDim: 4, pageTokens: 4, pages: 8, slots: 2, maxNodes: 12 },
  });
  const state = native.createStatePool({
    ...{ layers: 1, keyHeads: 2, valueHeads: 4, keyDim: 6, valueDim: 5, convKernel: 4, chunk: 8 },
    ...{ hiddenDim: 3, slots: 2, maxNodes: 12, snapshots: 2 },
  });
  return { native, kv, state, x: native.alloc(4000), y: native.alloc(4000) };
}

const store = ({ native, kv, x }: Bench, given: Batch): void =>
  native.storeKv(kv, 0, { k: x, v: x, ...ones }, given);
const path = (given: object) => ({ slot: 0, ctxLen: 0, nodes: ints(0), pages: ints(5), ...given });
const one = { from: 0, to: 1 };

const misuse: [string, RegExp, (on: Bench) => unknown][] = [
  [
    'a freed buffer',
    /buffer \d+ does not exist/,
    ({ native, x, y }) => {
      native.free(x);
      native.add(y, x, 1);
    },
  ],
  ['values past the end', /holds 4000 values, 4001/, ({ native, x, y }) => native.add(y, x, 4001)],
  ['a count that is no number', /expected a count/, ({ native, x, y }) => native.add(y, x, Number.NaN)],
  ['a negative offset', /expected a count/, ({ native, x }) => native.write(x, -1, new Float32Array(1))],
  [
    'rows beyond 32 bits',
    /32-bit/,
    ({ native, x }) => native.argmax(x, x, { rows: 2 ** 40, width: 1, usable: 1 }),
  ],
  ['more memory than there is', /no memory/, ({ native }) => native.alloc(2 ** 50)],
  [
    'a reading in doubles',
    /not an Int32Array or Float32Array/,
    ({ native, x }) => native.write(x, 0, new Float64Array(1) as unknown as Float32Array),
  ],
  [
    'linear in place',
    /its input/,
    ({ native, x }) =>
      native.linear(
        x,
        native.weightFrom({ format: 'f32', outDim: 2, inDim: 2, scale: 1 }, new Uint8Array(16)),
        x,
        1,
      ),
  ],
  [
    'a weight of the wrong size',
    /has 15 bytes, expected 16/,
    ({ native }) => native.weightFrom({ format: 'f32', outDim: 2, inDim: 2, scale: 1 }, new Uint8Array(15)),
  ],
  [
    'a weight past the end of its file',
    /of a file of 16/,
    ({ native }) => {
      const file = join(tmpdir(), `copse-misuse-${process.pid}`);
      writeFileSync(file, new Uint8Array(16));
      native.openWeights(file).weight({ format: 'f32', outDim: 2, inDim: 2, scale: 1 }, 4, 16);
    },
  ],
  ['a file that is not there', /can not open/, ({ native }) => native.openWeights('/nowhere/at/all')],
  ['a slot beyond the pool', /slot 2 of 2/, (on) => store(on, batch(1, { slot: 2 }))],
  ['two segments of a slot', /two segments of slot 0/, (on) => store(on, batch(2, {}, { firstRow: 1 }))],
  ['rows beyond the batch', /rows 0 to 3 of 2/, (on) => store(on, batch(2, { chainLen: 3 }))],
  [
    'a parent that comes later',
    /node 0 has the parent 1/,
    (on) => store(on, batch(3, { nodeParents: ints(1, -1) })),
  ],
  ['a parent below the root', /has the parent -2/, (on) => store(on, batch(2, { nodeParents: ints(-2) }))],
  [
    'more nodes than the pool has',
    /13 nodes, the limit is 12/,
    (on) => store(on, batch(14, { nodeParents: new Int32Array(13).fill(-1) })),
  ],
  ['too few pages', /13 tokens need 4 pages, the table has 3/, (on) => store(on, batch(1, { ctxLen: 12 }))],
  ['a page beyond the pool', /page 8 of 8/, (on) => store(on, batch(1, { pages: ints(8) }))],
  ['a negative page', /page -1 of 8/, (on) => store(on, batch(1, { pages: ints(-1) }))],
  ['a negative context', /impossible lengths/, (on) => store(on, batch(1, { ctxLen: -1 }))],
  [
    'a context near the end of int',
    /2147483647 and 1 tokens/,
    (on) => store(on, batch(1, { ctxLen: 2 ** 31 - 1 })),
  ],
  [
    'nodes deeper than a chunk',
    /9 deep, the limit is 8/,
    ({ native, state, x, y }) =>
      native.conv(y, x, x, state, 0, batch(10, { nodeParents: ints(-1, 0, 1, 2, 3, 4, 5, 6, 7) })),
  ],
  [
    'a commit at a negative position',
    /-1 committed tokens/,
    ({ native, kv }) => native.commitKv(kv, path({ ctxLen: -1 }), one),
  ],
  [
    'a commit of a node that can not be',
    /node 12 of 12/,
    ({ native, state }) => native.commitState(state, path({ nodes: ints(12) })),
  ],
  [
    'a commit without a page',
    /has no page/,
    ({ native, kv }) => native.commitKv(kv, path({ ctxLen: 4 }), one),
  ],
  ['copying a page that can not be', /pages 8 and 0 of 8/, ({ native, kv }) => native.copyPage(kv, 8, 0)],
  ['a snapshot beyond the pool', /snapshot 2 of 2/, ({ native, state }) => native.saveState(state, 0, 0, 2)],
  [
    'a token beyond the vocabulary',
    /token 2 of 2/,
    ({ native, y }) =>
      native.embed(
        y,
        native.weightFrom({ format: 'f32', outDim: 2, inDim: 2, scale: 1 }, new Uint8Array(16)),
        ints(2),
      ),
  ],
];

describe.skipIf(tryNative().reason !== null)('the native back-end stops at', () => {
  it.each(misuse)('%s', (_, message, run) => {
    const on = open();
    expect(() => run(on)).toThrow(message);
    // It goes on working.
    const fresh = on.native.alloc(16);
    on.native.add(fresh, fresh, 16);
    on.native.close();
  });

  it('use after closing, and closes twice', () => {
    const { native, x, y } = open();
    native.close();
    native.close();
    expect(() => native.add(x, y, 1)).toThrow('the back-end is closed');
  });

  it('nothing when several instances work side by side', async () => {
    const [a, b] = [open(), open()];
    a.native.write(a.x, 0, Float32Array.of(1, 2));
    b.native.write(b.x, 0, Float32Array.of(3, 4));
    a.native.add(a.x, a.x, 2);
    a.native.close();
    const got = new Float32Array(2);
    await b.native.read(b.x, 0, got);
    expect([...got]).toEqual([3, 4]);
    b.native.close();
  });
});
