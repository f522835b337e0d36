/**
 * Canonical arithmetic through a whole model, per back-end and bit for bit: logits of tree rows are those of their root path as a chain,
 * of slices those of the whole, of a batch those of each sequence alone. FP8 cache, bf16 weights.
 */
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { afterAll, describe, it } from 'vitest';
import { availableBackends } from '../../test/support/backends.ts';
import {
  assembleWorks,
  expectSame,
  idsOf,
  randomFrom,
  randomTokens,
  randomTree,
  rootPath,
  type Work,
} from '../../test/support/rig.ts';
import type { Backend } from '../backends/index.ts';
import { openCheckpoint } from '../checkpoint/index.ts';
import { checkpointSource, loadModel, type Model, type Pools } from './index.ts';

const slots = 2;
const pageTokens = 16;
const perSlot = 16;

/** Sequences of a model, with logits for every row. */
class Sequences {
  readonly #backend: Backend;
  readonly #model: Model;
  readonly #pools: Pools;
  readonly #tokens = [0, 0];

  constructor(backend: Backend, model: Model) {
    const shared = { slots, maxNodes: 64 };
    this.#backend = backend;
    this.#model = model;
    this.#pools = {
      kv: backend.createKvPool({
        ...{ ...model.kvShape, ...shared },
        ...{ dtype: 'fp8', pageTokens, pages: slots * perSlot },
      }),
      state: backend.createStatePool({ ...model.stateShape, ...shared, snapshots: 0 }),
    };
  }

  async begin(slot: number, ids: readonly number[]): Promise<void> {
    this.#backend.resetState(this.#pools.state, slot);
    this.#tokens[slot] = 0;
    if (ids.length > 0) await this.step([{ slot, chain: ids }]);
  }

  async step(works: readonly Work[]): Promise<Float32Array[]> {
    const batch = assembleWorks(works, {
      tokensOf: (slot) => this.#tokens[slot] as number,
      pagesOf: (slot) => Int32Array.from({ length: perSlot }, (_, i) => i * slots + slot),
    });
    const { logits } = this.#model.forward(batch, Int32Array.from(batch.ids.keys()), this.#pools);
    const width = this.#model.vocabSize;
    const values = new Float32Array(batch.rows * width);
    await this.#backend.read(logits, 0, values);
    for (const { slot, chain } of works) this.#tokens[slot] = (this.#tokens[slot] as number) + chain.length;
    return Array.from({ length: batch.rows }, (_, row) => values.slice(row * width, (row + 1) * width));
  }

  commit(slot: number, nodes: readonly number[]): void {
    const path = {
      slot,
      ctxLen: this.#tokens[slot] as number,
      nodes: Int32Array.from(nodes),
      pages: Int32Array.from({ length: perSlot }, (_, i) => i * slots + slot),
    };
    this.#backend.commitKv(this.#pools.kv, path, { from: 0, to: this.#pools.kv.layers });
    this.#backend.commitState(this.#pools.state, path);
    this.#tokens[slot] = path.ctxLen + nodes.length;
  }
}

const seeds = fc.integer({ min: 0, max: 2 ** 31 });

describe.each(availableBackends())('a hybrid model on $name', ({ open }) => {
  const backend = open();
  const folder = fileURLToPath(new URL('../../test/golden/hybrid-rep3-untied', import.meta.url));
  const source = checkpointSource(backend, openCheckpoint(folder));
  const sequences = new Sequences(backend, loadModel(backend, source, { maxRows: 128 }));
  afterAll(() => backend.close());

  it('gives every node of a tree, and what follows an accepted path, the logits of plain decoding', async () => {
    await fc.assert(
      fc.asyncProperty(seeds, fc.integer({ min: 0, max: 70 }), async (seed, prefix) => {
        const random = randomFrom(seed);
        const before = randomTokens(prefix, random);
        const tree = randomTree(40, random);
        const root = randomTokens(1, random);
        await sequences.begin(0, before);
        const rows = await sequences.step([{ slot: 0, chain: root, nodes: tree }]);
        const deepest = [...tree.parents.keys()].map((node) => rootPath(tree.parents, node));
        const path = deepest.reduce((best, other) => (other.length > best.length ? other : best), []);
        const side = rootPath(tree.parents, 39);
        const rest = randomTokens(10, random);
        sequences.commit(0, path);
        const after = await sequences.step([{ slot: 0, chain: rest }]);
        await sequences.begin(1, before);
        const chain = await sequences.step([{ slot: 1, chain: [...root, ...idsOf(tree, path)] }]);
        const asNodes = [0, ...path.map((node) => node + 1)].map((row) => rows[row] as Float32Array);
        expectSame(asNodes, chain, `path ${path} behind ${prefix} tokens`);
        expectSame(after, await sequences.step([{ slot: 1, chain: rest }]), 'behind the path');
        await sequences.begin(1, [...before, ...root]);
        const sideRows = side.map((node) => rows[node + 1] as Float32Array);
        for (const [i, id] of idsOf(tree, side).entries())
          expectSame(
            [sideRows[i] as Float32Array],
            await sequences.step([{ slot: 1, chain: [id] }]),
            `side ${i}`,
          );
      }),
      { numRuns: 4 },
    );
  });

  it('gives slices, and sequences side by side, the logits of one sequence in one piece', async () => {
    const random = randomFrom(8);
    const ids = [randomTokens(97, random), randomTokens(50, random)] as const;
    await sequences.begin(0, []);
    await sequences.begin(1, []);
    const whole = await sequences.step([{ slot: 0, chain: ids[0] }]);
    const other = await sequences.step([{ slot: 1, chain: ids[1] }]);
    await sequences.begin(0, ids[0].slice(0, 33));
    await sequences.begin(1, ids[1].slice(0, 1));
    const works = [
      { slot: 1, chain: ids[1].slice(1) },
      { slot: 0, chain: ids[0].slice(33) },
    ];
    expectSame(await sequences.step(works), [...other.slice(1), ...whole.slice(33)], 'rows');
  });
});
