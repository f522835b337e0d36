/**
 * Gated full attention (qwen35-model 2.4): rotation, storing K and V, and the online softmax over a row's path.
 * Scores and sums are in double precision; blocks are pageTokens wide at absolute positions and taken in order, so a row's
 * result is the same whether its ancestors are committed tokens, chain rows or draft nodes.
 */
import { assert } from '../../util/index.ts';
import type { Batch, RopeSpec, Segment } from '../backend.ts';
import type { KvPart, KvStore } from './kv-store.ts';
import { chainEnd, checkBatch, pageOf, type Row, rowsOf } from './paths.ts';
import { inverseRms } from './rows.ts';

/** Half-split rotation of the first rotaryDim channels of x[from ..]; the angle is an fp32 product. */
export function rotate(x: Float32Array, from: number, position: number, rope: RopeSpec): void {
  const half = rope.rotaryDim / 2;
  for (let i = 0; i < half; i++) {
    const angle = Math.fround(position * (rope.invFreq[i] as number));
    const cos = Math.fround(Math.cos(angle) * rope.scale);
    const sin = Math.fround(Math.sin(angle) * rope.scale);
    const low = x[from + i] as number;
    const high = x[from + half + i] as number;
    x[from + i] = low * cos - high * sin;
    x[from + half + i] = high * cos + low * sin;
  }
}

/** rms1p, then rotation, of src[srcFrom .. + headDim) into out[outFrom ..]. */
export function normAndRotate(
  out: { readonly values: Float32Array; readonly from: number },
  src: { readonly values: Float32Array; readonly from: number },
  norm: { readonly weight: Float32Array; readonly eps: number },
  position: number,
  rope: RopeSpec,
): void {
  const dim = norm.weight.length;
  const unit = inverseRms(src.values, src.from, dim, norm.eps);
  for (let i = 0; i < dim; i++)
    out.values[out.from + i] = (src.values[src.from + i] as number) * unit * (1 + (norm.weight[i] as number));
  rotate(out.values, out.from, position, rope);
}

interface KvRows {
  readonly k: Float32Array;
  readonly v: Float32Array;
  readonly kScale: number;
  readonly vScale: number;
}

export function storeKv(store: KvStore, layer: number, kv: KvRows, batch: Batch): void {
  const { kvHeads, headDim } = store.pool;
  store.checkLayer(layer);
  checkBatch(batch, store.pool);
  const put = (row: Row, part: KvPart, head: number): void => {
    const from = (row.row * kvHeads + head) * headDim;
    const x = kv[part].subarray(from, from + headDim);
    const scale = part === 'k' ? kv.kScale : kv.vScale;
    const node = row.nodes.at(-1);
    const { slot, pages } = row.segment;
    if (node === undefined) store.putToken({ pages, token: row.position }, { layer, part, head }, x, scale);
    else store.putNode({ slot, node }, { layer, part, head }, x, scale);
  };
  for (const segment of batch.segments)
    for (const row of rowsOf(segment))
      for (let head = 0; head < kvHeads; head++) {
        put(row, 'k', head);
        put(row, 'v', head);
      }
}

interface AttentionArgs {
  readonly q: Float32Array;
  readonly store: KvStore;
  readonly layer: number;
  readonly heads: number;
  readonly kScale: number;
  readonly vScale: number;
}

export function attention(out: Float32Array, args: AttentionArgs, batch: Batch): void {
  const { store, heads, layer } = args;
  const { kvHeads } = store.pool;
  store.checkLayer(layer);
  assert(heads % kvHeads === 0, `${heads} query heads share ${kvHeads} KV heads`);
  checkBatch(batch, store.pool);
  for (const segment of batch.segments) {
    const rows = rowsOf(segment);
    if (rows.length === 0) continue;
    for (let kvHead = 0; kvHead < kvHeads; kvHead++) {
      const keys = visible(store, segment, { layer, part: 'k', head: kvHead }, args.kScale);
      const values = visible(store, segment, { layer, part: 'v', head: kvHead }, args.vScale);
      for (const row of rows) attendGroup(out, args, kvHead, row, { keys, values });
    }
  }
}

/** What the rows of a segment may see of one head: committed tokens and chain [chainEnd, headDim], then all nodes. */
function visible(
  store: KvStore,
  segment: Segment,
  place: { readonly layer: number; readonly part: KvPart; readonly head: number },
  scale: number,
): Float32Array {
  const { headDim } = store.pool;
  const tokens = chainEnd(segment);
  const { slot, pages, nodeParents } = segment;
  const out = new Float32Array((tokens + nodeParents.length) * headDim);
  if (tokens > 0) pageOf(pages, tokens - 1, store.pool);
  store.getTokens({ pages, tokens }, place, out, scale);
  for (let node = 0; node < nodeParents.length; node++)
    store.getNode({ slot, node }, place, out.subarray((tokens + node) * headDim), scale);
  return out;
}

/** The query heads that share a KV head. */
function attendGroup(
  out: Float32Array,
  args: AttentionArgs,
  kvHead: number,
  row: Row,
  seen: { readonly keys: Float32Array; readonly values: Float32Array },
): void {
  const { kvHeads, headDim, pageTokens } = args.store.pool;
  const group = args.heads / kvHeads;
  const path = pathIndices(row);
  for (let head = kvHead * group; head < (kvHead + 1) * group; head++) {
    const at = (row.row * args.heads + head) * headDim;
    const query = args.q.subarray(at, at + headDim);
    attendHead(out.subarray(at, at + headDim), query, path, seen, pageTokens);
  }
}

/** Index of each position 0 .. row.position among the visible rows. */
function pathIndices({ segment, position, nodes }: Row): Int32Array {
  const tokens = nodes.length > 0 ? chainEnd(segment) : position + 1;
  const path = new Int32Array(position + 1);
  for (let i = 0; i < tokens; i++) path[i] = i;
  nodes.forEach((node, depth) => {
    path[tokens + depth] = chainEnd(segment) + node;
  });
  return path;
}

function attendHead(
  out: Float32Array,
  query: Float32Array,
  path: Int32Array,
  { keys, values }: { readonly keys: Float32Array; readonly values: Float32Array },
  blockTokens: number,
): void {
  const dim = query.length;
  const sum = new Float64Array(dim);
  const weights = new Float64Array(blockTokens);
  let max = Number.NEGATIVE_INFINITY;
  let total = 0;
  for (let from = 0; from < path.length; from += blockTokens) {
    const to = Math.min(from + blockTokens, path.length);
    let newMax = max;
    for (let i = from; i < to; i++) {
      const key = (path[i] as number) * dim;
      let dot = 0;
      for (let d = 0; d < dim; d++) dot += (query[d] as number) * (keys[key + d] as number);
      const score = dot / Math.sqrt(dim);
      weights[i - from] = score;
      if (score > newMax) newMax = score;
    }
    const shrink = Math.exp(max - newMax);
    total *= shrink;
    for (let d = 0; d < dim; d++) sum[d] = (sum[d] as number) * shrink;
    for (let i = from; i < to; i++) {
      const weight = Math.exp((weights[i - from] as number) - newMax);
      const value = (path[i] as number) * dim;
      total += weight;
      for (let d = 0; d < dim; d++) sum[d] = (sum[d] as number) + weight * (values[value + d] as number);
    }
    max = newMax;
  }
  for (let d = 0; d < dim; d++) out[d] = (sum[d] as number) / total;
}
