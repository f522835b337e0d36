/**
 * Canonical arithmetic (architecture, section 7), per back-end and bit for bit: an output depends on the row's path and positions
 * alone. Not on neighbours, slices, the tree around it, or what was committed how.
 */
import fc from 'fast-check';
import { afterAll, describe, it } from 'vitest';
import { availableBackends } from '../../test/support/backends.ts';
import {
  expectSame,
  idsOf,
  Rig,
  type RigShape,
  randomFrom,
  randomTree,
  rootPath,
  randomTokens as tokens,
  type Work,
} from '../../test/support/rig.ts';

const shapes: Record<string, RigShape> = {
  'fp8, pages of 16, chunk 32': {
    dtype: 'fp8',
    heads: 6,
    kvHeads: 2,
    headDim: 32,
    pageTokens: 16,
    keyHeads: 2,
    valueHeads: 6,
    keyDim: 32,
    valueDim: 32,
    convKernel: 4,
    chunk: 32,
    scales: { kScale: 0.5, vScale: 0.03 },
  },
  'bf16, pages of 8, chunk 16, odd widths': {
    dtype: 'bf16',
    heads: 3,
    kvHeads: 1,
    headDim: 20,
    pageTokens: 8,
    keyHeads: 2,
    valueHeads: 2,
    keyDim: 12,
    valueDim: 20,
    convKernel: 4,
    chunk: 16,
    scales: { kScale: 1, vScale: 1 },
  },
  'f32, pages of 32, chunk 32, short conv': {
    dtype: 'f32',
    heads: 2,
    kvHeads: 2,
    headDim: 16,
    pageTokens: 32,
    keyHeads: 1,
    valueHeads: 3,
    keyDim: 16,
    valueDim: 8,
    convKernel: 2,
    chunk: 32,
    scales: { kScale: 1, vScale: 1 },
  },
};

const seeds = fc.integer({ min: 0, max: 2 ** 31 });
const prefixes = fc.integer({ min: 0, max: 110 });

describe.each(availableBackends())('$name is exact', ({ open }) => {
  const backend = open();
  afterAll(() => backend.close());

  describe.each(Object.entries(shapes))('with %s', (_, shape) => {
    const rig = new Rig(backend, shape);

    /** A fresh sequence of `count` tokens; its state goes into `snapshot`. */
    async function begin(slot: number, ids: readonly number[], snapshot: number): Promise<void> {
      rig.reset(slot);
      if (ids.length > 0) await rig.step([{ slot, chain: ids }]);
      rig.save(slot, snapshot);
    }

    it('computes a chain in slices as in one piece', async () => {
      const cuts = fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1, maxLength: 12 });
      await fc.assert(
        fc.asyncProperty(seeds, cuts, async (seed, lengths) => {
          const ids = tokens(150, randomFrom(seed));
          rig.reset(0);
          const whole = await rig.step([{ slot: 0, chain: ids }]);
          rig.reset(1);
          const sliced: Float32Array[] = [];
          for (let from = 0, i = 0; from < ids.length; i++) {
            const to = Math.min(ids.length, from + (lengths[i % lengths.length] as number));
            sliced.push(...(await rig.step([{ slot: 1, chain: ids.slice(from, to) }])));
            from = to;
          }
          expectSame(sliced, whole, `slices of ${lengths}`);
        }),
        { numRuns: 6 },
      );
    });

    it('computes each node of a random tree as the last row of its root path', async () => {
      await fc.assert(
        fc.asyncProperty(seeds, prefixes, fc.integer({ min: 1, max: 64 }), async (seed, prefix, count) => {
          const random = randomFrom(seed);
          await begin(0, tokens(prefix, random), 0);
          const tree = randomTree(count, random);
          const root = tokens(1 + Math.floor(random() * 3), random);
          const rows = await rig.step([{ slot: 0, chain: root, nodes: tree }]);
          const leaves = [...tree.parents.keys()].filter((node) => !tree.parents.includes(node));
          for (const leaf of leaves) {
            const path = rootPath(tree.parents, leaf);
            rig.fork(0, 1, { tokens: prefix, snapshot: 0 });
            const chain = await rig.step([{ slot: 1, chain: [...root, ...idsOf(tree, path)] }]);
            const asNodes = [...root.keys(), ...path.map((node) => root.length + node)].map(
              (row) => rows[row],
            );
            expectSame(asNodes as Float32Array[], chain, `path ${path} behind ${prefix} tokens`);
          }
        }),
        { numRuns: 6 },
      );
    });

    it('continues behind a committed path as if it had been a chain', async () => {
      await fc.assert(
        fc.asyncProperty(seeds, prefixes, fc.boolean(), async (seed, prefix, hasChain) => {
          const random = randomFrom(seed);
          await begin(0, tokens(prefix, random), 0);
          const chain = hasChain ? tokens(2, random) : [];
          const plain: number[] = [...chain];
          for (let round = 0; round < 4; round++) {
            const tree = randomTree(24, random);
            await rig.step([{ slot: 0, chain: round === 0 ? chain : [], nodes: tree }]);
            const full = rootPath(tree.parents, Math.floor(random() * 24));
            const path = full.slice(0, Math.floor(random() * (full.length + 1)));
            rig.commit(0, path);
            plain.push(...idsOf(tree, path));
          }
          rig.save(0, 1);
          const rest = tokens(70, random);
          const continued = await rig.step([{ slot: 0, chain: rest }]);
          rig.fork(0, 1, { tokens: prefix, snapshot: 0 });
          if (plain.length > 0) await rig.step([{ slot: 1, chain: plain }]);
          expectSame(
            continued,
            await rig.step([{ slot: 1, chain: rest }]),
            `${plain.length} behind ${prefix}`,
          );
          rig.fork(0, 2, { tokens: prefix + plain.length, snapshot: 1 });
          expectSame(continued, await rig.step([{ slot: 2, chain: rest }]), 'restored behind the path');
        }),
        { numRuns: 6 },
      );
    });

    it('continues from a state saved at any token', async () => {
      const ids = tokens(100, randomFrom(3));
      const rest = tokens(40, randomFrom(4));
      rig.reset(0);
      const whole = await rig.step([{ slot: 0, chain: [...ids, ...rest] }]);
      for (const at of [0, 1, 3, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 95, 96, 97]) {
        await begin(0, ids.slice(0, at), 2);
        rig.fork(0, 1, { tokens: at, snapshot: 2 });
        expectSame(
          await rig.step([{ slot: 1, chain: ids.slice(at) }]),
          whole.slice(at, 100),
          `saved at ${at}`,
        );
      }
    });

    it('leaves no trace of a tree that was rejected', async () => {
      const random = randomFrom(5);
      await begin(0, tokens(45, random), 0);
      const root = tokens(1, random);
      const rest = tokens(50, random);
      const [alone] = await rig.step([{ slot: 0, chain: root }]);
      const plain = await rig.step([{ slot: 0, chain: rest }]);
      rig.fork(0, 1, { tokens: 45, snapshot: 0 });
      const rows = await rig.step([{ slot: 1, chain: root, nodes: randomTree(40, random) }]);
      rig.commit(1, []);
      expectSame(rows.slice(0, 1), [alone as Float32Array], 'root');
      expectSame(await rig.step([{ slot: 1, chain: rest }]), plain, 'after the tree');
    });

    it('computes a tree that grows over several forwards as one that comes at once', async () => {
      const random = randomFrom(6);
      await begin(0, tokens(61, random), 0);
      const tree = randomTree(30, random);
      rig.fork(0, 1, { tokens: 61, snapshot: 0 });
      const whole = await rig.step([{ slot: 0, chain: [], nodes: tree }]);
      const grown: Float32Array[] = [];
      for (const [start, end] of [
        [0, 1],
        [1, 9],
        [9, 30],
      ] as const) {
        const nodes = { ids: tree.ids.slice(0, end), parents: tree.parents.slice(0, end), start };
        grown.push(...(await rig.step([{ slot: 1, chain: [], nodes }])));
      }
      expectSame(grown, whole, 'nodes');
    });

    it('computes sequences in one batch as alone', async () => {
      const random = randomFrom(7);
      const works: Work[] = [
        { slot: 2, chain: tokens(37, random) },
        { slot: 0, chain: tokens(1, random), nodes: randomTree(13, random) },
        { slot: 1, chain: tokens(70, random), nodes: randomTree(5, random) },
      ];
      const prefix = [tokens(20, random), tokens(33, random), tokens(0, random)];
      const start = async (): Promise<void> => {
        for (let slot = 0; slot < 3; slot++) await begin(slot, prefix[slot] as number[], slot);
      };
      await start();
      const together = await rig.step(works);
      await start();
      const alone: Float32Array[] = [];
      for (const work of works) alone.push(...(await rig.step([work])));
      expectSame(together, alone, 'rows');
    });
  });
});
