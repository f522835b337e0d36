/** Runs a model over one sequence without engine and cache: pages in a row, one slot. */
import type { Backend, KvDtype } from '../../src/backends/index.ts';
import type { Model, Pools } from '../../src/models/index.ts';

export const pageTokens = 32;

export function openPools(
  backend: Backend,
  model: Model,
  { tokens = 4096, dtype = 'f32' as KvDtype, slots = 1 } = {},
): Pools {
  const pages = slots * Math.ceil(tokens / pageTokens);
  return {
    kv: backend.createKvPool({ ...model.kvShape, dtype, pageTokens, pages, slots, maxNodes: 64 }),
    state: backend.createStatePool({ ...model.stateShape, slots, maxNodes: 64, snapshots: 4 }),
  };
}

export interface Chain {
  readonly slot: number;
  readonly ctxLen: number;
  readonly ids: ArrayLike<number>;
  readonly pages: Int32Array;
}

export function pageRange(from: number, tokens: number): Int32Array {
  return Int32Array.from({ length: Math.ceil(tokens / pageTokens) }, (_, i) => from + i);
}

export function chainBatch({ slot, ctxLen, ids, pages }: Chain) {
  const rows = ids.length;
  const segment = {
    slot,
    firstRow: 0,
    ctxLen,
    chainLen: rows,
    pages,
    nodeParents: new Int32Array(0),
    nodeStart: 0,
  };
  return {
    rows,
    ids: Int32Array.from(ids),
    positions: Int32Array.from({ length: rows }, (_, i) => ctxLen + i),
    segments: [segment],
  };
}

/** Logits of the rows asked for, [rows][vocab]. */
export async function logitsOf(
  backend: Backend,
  model: Model,
  pools: Pools,
  chain: Chain,
  rows: number[],
): Promise<Float32Array[]> {
  const { logits } = model.forward(chainBatch(chain), Int32Array.from(rows), pools);
  const values = new Float32Array(rows.length * model.vocabSize);
  await backend.read(logits, 0, values);
  return rows.map((_, i) => values.subarray(i * model.vocabSize, (i + 1) * model.vocabSize));
}

export function argmax(values: ArrayLike<number>): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if ((values[i] ?? 0) > (values[best] ?? 0)) best = i;
  return best;
}
