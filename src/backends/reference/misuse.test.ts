/** Each misuse of the back-end stops with a message that names the value and the limit. */
import { describe, expect, it } from 'vitest';
import type { Batch, KvSpec, Segment, StateSpec } from '../backend.ts';
import { openReference } from './index.ts';

const stateSpec: StateSpec = {
  ...{ layers: 1, keyHeads: 2, valueHeads: 4, keyDim: 6, valueDim: 5, convKernel: 4, chunk: 8 },
  ...{ hiddenDim: 3, slots: 2, maxNodes: 12, snapshots: 2 },
};
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

/** Everything that a case may touch, fresh for each. */
function bench() {
  const backend = openReference();
  const kv = backend.createKvPool(kvSpec);
  const state = backend.createStatePool(stateSpec);
  const buffer = backend.alloc(4000);
  const other = backend.alloc(4000);
  const scales = { kScale: 1, vScale: 1 };
  const store = (batch: Batch): void => backend.storeKv(kv, 0, { k: buffer, v: buffer, ...scales }, batch);
  const attend = (batch: Batch): void =>
    backend.attention(other, { q: buffer, pool: kv, layer: 0, heads: 1, ...scales }, batch);
  const conv = (batch: Batch): void => backend.conv(other, buffer, buffer, state, 0, batch);
  const matrix = backend.weightFrom({ format: 'f32', outDim: 2, inDim: 2, scale: 1 }, new Uint8Array(16));
  return { backend, kv, state, buffer, other, store, attend, conv, matrix };
}

const parents = (...values: number[]): Int32Array => Int32Array.from(values);
const misuse: [string, RegExp, (on: ReturnType<typeof bench>) => unknown][] = [
  [
    'a freed buffer',
    /buffer \d+ is live/,
    ({ backend, buffer, other }) => {
      backend.free(buffer);
      backend.add(other, buffer, 1);
    },
  ],
  [
    'freeing twice',
    /is live/,
    ({ backend, buffer }) => {
      backend.free(buffer);
      backend.free(buffer);
    },
  ],
  [
    'values past the end',
    /4001 values fit/,
    ({ backend, buffer, other }) => backend.add(other, buffer, 4001),
  ],
  [
    'a negative offset',
    /fit into buffer/,
    ({ backend, buffer }) => backend.write(buffer, -9, new Float32Array(2)),
  ],
  [
    'a closed back-end',
    /is open/,
    ({ backend }) => {
      backend.close();
      backend.alloc(1);
    },
  ],
  [
    'a weight of the wrong size',
    /has 16 bytes, got 15/,
    ({ backend }) => backend.weightFrom({ format: 'f32', outDim: 2, inDim: 2, scale: 1 }, new Uint8Array(15)),
  ],
  [
    'NVFP4 inputs that fill no block',
    /multiple of 16/,
    ({ backend }) =>
      backend.weightFrom({ format: 'nvfp4-tile', outDim: 2, inDim: 24, scale: 1 }, new Uint8Array(288)),
  ],
  [
    'linear in place',
    /not its input/,
    ({ backend, buffer, matrix }) => backend.linear(buffer, matrix, buffer, 1),
  ],
  [
    'more rows than a buffer has',
    /fit into buffer/,
    ({ backend, buffer, other, matrix }) => backend.linear(other, matrix, buffer, 2001),
  ],
  [
    'a token beyond the vocabulary',
    /token 2 is within/,
    ({ backend, other, matrix }) => backend.embed(other, matrix, parents(0, 2)),
  ],
  [
    'gathering a row that is not there',
    /row 1000 of 1000/,
    ({ backend, buffer, other }) => backend.gatherRows(other, buffer, parents(1000), 4),
  ],
  [
    'more usable ids than logits',
    /11 usable of 10/,
    ({ backend, buffer, other }) => backend.argmax(other, buffer, { rows: 1, width: 10, usable: 11 }),
  ],
  [
    'more candidates than ids',
    /best 5 of 4/,
    ({ backend, buffer, other }) =>
      backend.topK({ ids: other, logProbs: other }, buffer, { rows: 1, width: 4, usable: 4, k: 5 }),
  ],
  ['a slot beyond the pool', /slot 2 is below 2/, ({ store }) => store(batchOf({ slot: 2 }, [0]))],
  [
    'two segments of a slot',
    /slot 0 has one segment/,
    ({ store }) => store({ ...chain(2), segments: [segmentOf({}), segmentOf({ firstRow: 1 })] }),
  ],
  ['rows beyond the batch', /rows 0 \.\. 3 of 2/, ({ store }) => store(batchOf({ chainLen: 3 }, [0, 1]))],
  ['a wrong position', /row 1 is at 1, got 7/, ({ store }) => store(batchOf({ chainLen: 2 }, [0, 7]))],
  [
    'a parent that comes later',
    /parent 1 comes before node 0/,
    ({ store }) => store(batchOf({ nodeParents: parents(1, -1) }, [0, 1, 1])),
  ],
  [
    'more nodes than the pool has',
    /13 nodes, the pool has 12/,
    ({ store }) =>
      store(batchOf({ nodeParents: new Int32Array(13).fill(-1) }, [0, ...new Array(13).fill(1)])),
  ],
  [
    'chain rows between two node passes',
    /between the nodes/,
    ({ store }) => store(batchOf({ nodeParents: parents(-1, -1), nodeStart: 1 }, [0, 1])),
  ],
  [
    'too few pages',
    /a page for token 4, 1 given/,
    ({ store }) => store(batchOf({ chainLen: 5, pages: parents(0) }, [0, 1, 2, 3, 4])),
  ],
  ['a page beyond the pool', /page 8 is below 8/, ({ store }) => store(batchOf({ pages: parents(8) }, [0]))],
  [
    'a layer beyond the pool',
    /KV layer 1 of 1/,
    ({ backend, kv, buffer }) =>
      backend.storeKv(kv, 1, { k: buffer, v: buffer, kScale: 1, vScale: 1 }, chain(1)),
  ],
  ['a page that was never written', /page 5 was written/, ({ attend }) => attend(chain(1))],
  [
    'a page that was discarded',
    /page 5 was written/,
    ({ backend, kv, store, attend }) => {
      store(chain(1));
      backend.discardPages(kv, parents(5));
      attend(chain(1));
    },
  ],
  ['copying an empty page', /page 3 was written/, ({ backend, kv }) => backend.copyPage(kv, 1, 3)],
  [
    'a tree deeper than a chunk',
    /node depth 8 is below the chunk of 8/,
    ({ conv }) =>
      conv(batchOf({ nodeParents: parents(-1, 0, 1, 2, 3, 4, 5, 6, 7) }, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])),
  ],
  [
    'a context that the state has not seen',
    /window of 0 tokens, context of 3/,
    ({ conv }) => conv(batchOf({ ctxLen: 3 }, [3])),
  ],
  [
    'committing what was not computed',
    /is at 2 tokens/,
    ({ backend, state }) =>
      backend.commitState(state, { slot: 0, ctxLen: 2, nodes: parents(0), pages: parents() }),
  ],
  [
    'a snapshot that was not saved',
    /snapshot 1 was saved/,
    ({ backend, state }) => backend.restoreState(state, 0, 0, 1),
  ],
  [
    'a snapshot of another length',
    /is of 0 tokens, asked for 4/,
    ({ backend, state }) => {
      backend.saveState(state, 0, 0, 1);
      backend.restoreState(state, 0, 4, 1);
    },
  ],
  [
    'a discarded snapshot',
    /was saved/,
    ({ backend, state }) => {
      backend.saveState(state, 0, 0, 1);
      backend.discardSnapshots(state, parents(1));
      backend.restoreState(state, 0, 0, 1);
    },
  ],
  [
    'saving at a length the slot is not at',
    /is at 9 tokens/,
    ({ backend, state }) => backend.saveState(state, 0, 9, 0),
  ],
];

describe('reference refuses', () => {
  it.each(misuse)('%s', (_, message, misuseOf) => {
    expect(() => misuseOf(bench())).toThrow(message);
  });
});
