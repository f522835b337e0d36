/**
 * A back-end with pools, and "tokens" whose inputs (q, k, v, conv input, gates) are fixed by their id: then every output of a row is a
 * function of its path of ids, and two ways to compute the same path can be compared bit for bit.
 */
import { expect } from 'vitest';
import type {
  Backend,
  Batch,
  Buffer,
  KvPool,
  KvSpec,
  Segment,
  StatePool,
  StateSpec,
} from '../../src/backends/index.ts';
import { present } from '../../src/util/index.ts';

export type RigShape = Pick<KvSpec, 'dtype' | 'kvHeads' | 'headDim' | 'pageTokens'> &
  Pick<StateSpec, 'keyHeads' | 'valueHeads' | 'keyDim' | 'valueDim' | 'convKernel' | 'chunk'> & {
    readonly heads: number;
    readonly scales: { readonly kScale: number; readonly vScale: number };
  };

/** Rows of one sequence in a step; nodes from `start` on are new. */
export interface Work {
  readonly slot: number;
  readonly chain: readonly number[];
  readonly nodes?: {
    readonly ids: readonly number[];
    readonly parents: readonly number[];
    readonly start?: number;
  };
}

/** Uniform numbers in [0, 1) from a seed (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Values with mean 0 and deviation 1, bell shaped. */
export function randomValues(count: number, random: () => number): Float32Array {
  return Float32Array.from(
    { length: count },
    () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random()),
  );
}

export const rigLayers = 2;
export const rigVocab = 40;
const maxRows = 256;
const slots = 3;
const maxNodes = 64;
const maxTokens = 320;
const inputNames = ['q', 'k', 'v', 'm', 'b', 'a'] as const;
const outputNames = ['attended', 'qkv', 'o'] as const;
type Name = (typeof inputNames)[number] | (typeof outputNames)[number];

export class Rig {
  readonly shape: RigShape;
  readonly tokens = new Int32Array(slots);
  readonly #backend: Backend;
  readonly #kv: KvPool;
  readonly #state: StatePool;
  readonly #widths: Record<Name, number>;
  readonly #buffers: Record<Name, Buffer>;
  /** Per layer and input: [rigVocab, width]. */
  readonly #tables: readonly Record<(typeof inputNames)[number], Float32Array>[];
  readonly #fixed: readonly { conv: Buffer; aLog: Buffer; dtBias: Buffer }[];
  readonly #pages: readonly Int32Array[];

  constructor(backend: Backend, shape: RigShape, seed = 1) {
    const random = randomFrom(seed);
    const { heads, kvHeads, headDim, keyHeads, keyDim, valueHeads, valueDim, pageTokens } = shape;
    const channels = 2 * keyHeads * keyDim + valueHeads * valueDim;
    this.shape = shape;
    this.#backend = backend;
    const perSlot = Math.ceil(maxTokens / pageTokens);
    const kvWidth = kvHeads * headDim;
    this.#kv = backend.createKvPool({ ...shape, layers: rigLayers, pages: slots * perSlot, slots, maxNodes });
    this.#state = backend.createStatePool({
      ...shape,
      layers: rigLayers,
      hiddenDim: 8,
      slots,
      maxNodes,
      snapshots: 4,
    });
    this.#widths = {
      q: heads * headDim,
      k: kvWidth,
      v: kvWidth,
      m: channels,
      b: valueHeads,
      a: valueHeads,
      attended: heads * headDim,
      qkv: channels,
      o: valueHeads * valueDim,
    };
    const named = <T>(names: readonly Name[], make: (width: number) => T): Record<Name, T> =>
      Object.fromEntries(names.map((name) => [name, make(this.#widths[name])])) as Record<Name, T>;
    this.#buffers = named([...inputNames, ...outputNames], (width) => backend.alloc(maxRows * width));
    const layers = Array.from({ length: rigLayers });
    this.#tables = layers.map(() => named(inputNames, (width) => randomValues(rigVocab * width, random)));
    this.#fixed = layers.map(() => ({
      conv: backend.upload(randomValues(channels * shape.convKernel, random)),
      aLog: backend.upload(randomValues(valueHeads, random).map((x) => x - 2)),
      dtBias: backend.upload(randomValues(valueHeads, random)),
    }));
    // Pages of a sequence are neither adjacent nor ascending.
    this.#pages = Array.from({ length: slots }, (_, slot) =>
      Int32Array.from({ length: perSlot }, (_, i) => (perSlot - 1 - i) * slots + slot),
    );
    for (let slot = 0; slot < slots; slot++) this.reset(slot);
  }

  reset(slot: number): void {
    this.#backend.resetState(this.#state, slot);
    this.tokens[slot] = 0;
  }

  /** One forward of all works together; per row the outputs of all ops and layers, one after the other. */
  async step(works: readonly Work[]): Promise<Float32Array[]> {
    const batch = assembleWorks(works, {
      tokensOf: (slot) => this.#tokensOf(slot),
      pagesOf: (slot) => this.#pagesOf(slot),
    });
    const rows = Array.from({ length: batch.rows }, () => [] as number[]);
    for (let layer = 0; layer < rigLayers; layer++) {
      this.#issue(layer, batch);
      for (const name of outputNames) {
        const width = this.#widths[name];
        const values = new Float32Array(batch.rows * width);
        await this.#backend.read(this.#buffers[name], 0, values);
        rows.forEach((row, i) => {
          row.push(...values.subarray(i * width, (i + 1) * width));
        });
      }
    }
    for (const { slot, chain } of works) this.tokens[slot] = this.#tokensOf(slot) + chain.length;
    return rows.map((row) => Float32Array.from(row));
  }

  commit(slot: number, nodes: readonly number[]): void {
    const path = {
      slot,
      ctxLen: this.#tokensOf(slot),
      nodes: Int32Array.from(nodes),
      pages: this.#pagesOf(slot),
    };
    this.#backend.commitKv(this.#kv, path, { from: 0, to: rigLayers });
    this.#backend.commitState(this.#state, path);
    this.tokens[slot] = path.ctxLen + nodes.length;
  }

  save(slot: number, snapshot: number): void {
    this.#backend.saveState(this.#state, slot, this.#tokensOf(slot), snapshot);
  }

  /** `to` continues where `from` was when `snapshot` was saved, on copies of its pages. */
  fork(from: number, to: number, at: { readonly tokens: number; readonly snapshot: number }): void {
    this.#backend.restoreState(this.#state, to, at.tokens, at.snapshot);
    const pages = Math.ceil(at.tokens / this.shape.pageTokens);
    for (let i = 0; i < pages; i++)
      this.#backend.copyPage(
        this.#kv,
        present(this.#pagesOf(to)[i], 'page'),
        present(this.#pagesOf(from)[i], 'page'),
      );
    this.tokens[to] = at.tokens;
  }

  #tokensOf(slot: number): number {
    return present(this.tokens[slot], 'slot');
  }

  #pagesOf(slot: number): Int32Array {
    return present(this.#pages[slot], 'slot');
  }

  #issue(layer: number, batch: Batch): void {
    const buffers = this.#buffers;
    const tables = present(this.#tables[layer], 'layer');
    const fixed = present(this.#fixed[layer], 'layer');
    const { scales, heads } = this.shape;
    for (const name of inputNames) {
      const width = this.#widths[name];
      const values = new Float32Array(batch.rows * width);
      batch.ids.forEach((id, row) => {
        values.set(tables[name].subarray(id * width, (id + 1) * width), row * width);
      });
      this.#backend.write(buffers[name], 0, values);
    }
    const { q, k, v, m, b, a, attended, qkv, o } = buffers;
    this.#backend.storeKv(this.#kv, layer, { k, v, ...scales }, batch);
    this.#backend.attention(attended, { q, pool: this.#kv, layer, heads, ...scales }, batch);
    this.#backend.conv(qkv, m, fixed.conv, this.#state, layer, batch);
    const { aLog, dtBias } = fixed;
    this.#backend.deltaRule({ out: o, qkv, b, a, aLog, dtBias }, this.#state, layer, batch);
  }
}

/** The batch of all works, each behind the tokens its slot already has. */
export function assembleWorks(
  works: readonly Work[],
  at: { tokensOf(slot: number): number; pagesOf(slot: number): Int32Array },
): Batch {
  const ids: number[] = [];
  const positions: number[] = [];
  const segments: Segment[] = works.map(({ slot, chain, nodes }) => {
    const ctxLen = at.tokensOf(slot);
    const parents = nodes?.parents ?? [];
    const nodeStart = nodes?.start ?? 0;
    const firstRow = ids.length;
    chain.forEach((id, i) => {
      ids.push(id);
      positions.push(ctxLen + i);
    });
    for (let node = nodeStart; node < parents.length; node++) {
      ids.push(present(nodes?.ids[node], 'node'));
      positions.push(ctxLen + chain.length + rootPath(parents, node).length - 1);
    }
    return {
      slot,
      firstRow,
      ctxLen,
      chainLen: chain.length,
      pages: at.pagesOf(slot),
      nodeParents: Int32Array.from(parents),
      nodeStart,
    };
  });
  return { rows: ids.length, ids: Int32Array.from(ids), positions: Int32Array.from(positions), segments };
}

/** Nodes from a child of -1 down to `node`. */
export function rootPath(parents: readonly number[], node: number): number[] {
  const path: number[] = [];
  for (let at = node; at >= 0; at = present(parents[at], 'parent')) path.unshift(at);
  return path;
}

const maxDepth = 12;

export interface Tree {
  readonly ids: number[];
  readonly parents: number[];
}

/** Deep and bushy at once: half of the nodes hang on the newest one that is not too deep. */
export function randomTree(count: number, random: () => number): Tree {
  const tree: Tree = { ids: [], parents: [] };
  for (let node = 0; node < count; node++) {
    const candidates = [...tree.parents.keys()].filter((at) => rootPath(tree.parents, at).length < maxDepth);
    const newest = candidates.at(-1) ?? -1;
    const any = candidates[Math.floor(random() * (candidates.length + 1))] ?? -1;
    tree.parents.push(random() < 0.5 ? newest : any);
    tree.ids.push(Math.floor(random() * rigVocab));
  }
  return tree;
}

export const randomTokens = (count: number, random: () => number): number[] =>
  Array.from({ length: count }, () => Math.floor(random() * rigVocab));

export const idsOf = (tree: Tree, path: readonly number[]): number[] =>
  path.map((node) => tree.ids[node] as number);

/** Same bits: NaN equals NaN, and 0 is not -0. */
export function expectSame(
  actual: readonly Float32Array[],
  expected: readonly Float32Array[],
  what: string,
): void {
  expect(actual.length, what).toBe(expected.length);
  const bits = (row: Float32Array | undefined): Uint32Array =>
    new Uint32Array((row ?? new Float32Array(0)).buffer);
  expected.forEach((row, i) => {
    const wanted = bits(row);
    const got = bits(actual[i]);
    const at = wanted.findIndex((value, j) => value !== got[j]);
    if (at >= 0) expect.fail(`${what}: row ${i} differs at ${at}: ${actual[i]?.[at]} instead of ${row[at]}`);
  });
}
