/**
 * Gated delta net (qwen35-model 2.5 and 5.6): the causal conv along a row's path, and the delta rule in closed form.
 *
 * For a row at position p, from S at base(p) = C * max(0, floor(p / C) - 1) and the log rows j of its ancestors since then:
 *   cum_j = g_base + .. + g_j
 *   R = beta (v - exp(cum) S' k - sum_j exp(cum - cum_j) (k . k_j) R_j)
 *   o = exp(cum) S' q + sum_j exp(cum - cum_j) (q . k_j) R_j + (q . k) R
 * Sums are in double precision, ancestors in order; k-hat, R, g and S are stored in fp32.
 */
import { assert } from '../../util/index.ts';
import type { Batch, StateSpec } from '../backend.ts';
import { chainEnd, checkBatch, type Row, rowsOf } from './paths.ts';
import { sigmoid, silu, softplus } from './rows.ts';
import { channelsOf, type StateLayer, type StateStore } from './state-store.ts';

const l2Eps = 1e-6;

const basePosition = (position: number, chunk: number): number =>
  chunk * Math.max(0, Math.floor(position / chunk) - 1);

function checkDepths(batch: Batch, chunk: number): void {
  for (const segment of batch.segments)
    for (const { nodes } of rowsOf(segment))
      assert(nodes.length <= chunk, `node depth ${nodes.length - 1} is below the chunk of ${chunk}`);
}

// ---- conv -----------------------------------------------------------------------------------------------

export function conv(
  io: { readonly out: Float32Array; readonly m: Float32Array; readonly w: Float32Array },
  store: StateStore,
  layer: number,
  batch: Batch,
): void {
  const channels = channelsOf(store.pool);
  const input = (row: number): Float32Array => io.m.subarray(row * channels, (row + 1) * channels);
  checkBatch(batch, store.pool);
  checkDepths(batch, store.pool.chunk);
  for (const segment of batch.segments) {
    const state = store.layer(segment.slot, layer);
    assert(
      state.windowTokens === segment.ctxLen,
      `window of ${state.windowTokens} tokens, context of ${segment.ctxLen}`,
    );
    const window = store.pool.convKernel - 1;
    for (const row of rowsOf(segment)) {
      const own = input(row.row);
      const y = io.out.subarray(row.row * channels, (row.row + 1) * channels);
      // The window follows the chain, so that it ends at the last chain row when the nodes come.
      const before = [...Array(window).keys(), ...row.nodes.map((node) => window + node)];
      if (row.nodes.length > 0) store.inputRow(state, before.at(-1) as number).set(own);
      else before.push(-1);
      const taps = before.slice(-window - 1).map((at) => (at < 0 ? own : store.inputRow(state, at)));
      convRow(y, taps, io.w);
      if (row.nodes.length === 0) store.pushInput(state, own);
    }
  }
}

/** taps: the inputs of the kernel's positions, oldest first. */
function convRow(y: Float32Array, taps: readonly Float32Array[], w: Float32Array): void {
  const kernel = taps.length;
  for (let channel = 0; channel < y.length; channel++) {
    let sum = 0;
    for (let tap = 0; tap < kernel; tap++)
      sum += (w[channel * kernel + tap] as number) * ((taps[tap] as Float32Array)[channel] as number);
    y[channel] = silu(sum);
  }
}

// ---- delta rule -----------------------------------------------------------------------------------------

export interface DeltaRows {
  readonly out: Float32Array;
  readonly qkv: Float32Array;
  readonly b: Float32Array;
  readonly a: Float32Array;
  readonly aLog: Float32Array;
  readonly dtBias: Float32Array;
}

export function deltaRule(rows: DeltaRows, store: StateStore, layer: number, batch: Batch): void {
  const { chunk } = store.pool;
  checkBatch(batch, store.pool);
  checkDepths(batch, chunk);
  for (const segment of batch.segments) {
    const state = store.layer(segment.slot, layer);
    assert(state.tokens === segment.ctxLen, `log of ${state.tokens} tokens, context of ${segment.ctxLen}`);
    for (const row of rowsOf(segment)) {
      deltaRow(rows, store.pool, state, row);
      if (row.nodes.length > 0) continue;
      state.tokens++;
      materializeIfDue(store.pool, state);
    }
  }
}

/** Log rows of the ancestors since the base, in order. */
function ancestors({ segment, position, nodes }: Row, chunk: number): number[] {
  const log: number[] = [];
  const committed = nodes.length > 0 ? chainEnd(segment) : position;
  for (let p = basePosition(position, chunk); p < committed; p++) log.push(p % (2 * chunk));
  for (const node of nodes.slice(0, -1)) log.push(2 * chunk + node);
  return log;
}

function deltaRow(rows: DeltaRows, spec: StateSpec, state: StateLayer, row: Row): void {
  const { keyHeads, keyDim, valueHeads, valueDim, chunk } = spec;
  const keys = keyHeads * keyDim;
  const node = row.nodes.at(-1);
  const own = node === undefined ? row.position % (2 * chunk) : 2 * chunk + node;
  const qkv = rows.qkv.subarray(row.row * channelsOf(spec), (row.row + 1) * channelsOf(spec));
  const q = new Float32Array(keys);
  for (let h = 0; h < keyHeads; h++) {
    const from = h * keyDim;
    l2Norm(q.subarray(from, from + keyDim), qkv.subarray(from, from + keyDim), keyDim ** -0.5);
    l2Norm(
      state.k.subarray(own * keys + from, own * keys + from + keyDim),
      qkv.subarray(keys + from, keys + from + keyDim),
      1,
    );
  }
  const log = ancestors(row, chunk);
  const half = (basePosition(row.position, chunk) / chunk) % 2;
  for (let h = 0; h < valueHeads; h++) {
    const at = row.row * valueHeads + h;
    const decay =
      -Math.exp(rows.aLog[h] as number) * softplus((rows.a[at] as number) + (rows.dtBias[h] as number));
    state.g[own * valueHeads + h] = decay;
    const keyFrom = Math.floor((h * keyHeads) / valueHeads) * keyDim;
    deltaHead(spec, state, {
      head: h,
      half,
      own,
      log,
      q: q.subarray(keyFrom, keyFrom + keyDim),
      keyFrom,
      v: qkv.subarray(2 * keys + h * valueDim, 2 * keys + (h + 1) * valueDim),
      beta: sigmoid(rows.b[at] as number),
      out: rows.out.subarray(at * valueDim, (at + 1) * valueDim),
    });
  }
}

function l2Norm(out: Float32Array, x: Float32Array, scale: number): void {
  let sum = 0;
  for (const value of x) sum += value * value;
  const unit = scale / Math.sqrt(sum + l2Eps);
  for (let i = 0; i < x.length; i++) out[i] = (x[i] as number) * unit;
}

interface HeadRow {
  readonly head: number;
  /** Which half holds S at the base. */
  readonly half: number;
  /** Log row of this row. */
  readonly own: number;
  /** Log rows of its ancestors since the base. */
  readonly log: readonly number[];
  readonly q: Float32Array;
  /** Where this head's key begins within a log row. */
  readonly keyFrom: number;
  readonly v: Float32Array;
  readonly beta: number;
  readonly out: Float32Array;
}

function deltaHead(spec: StateSpec, state: StateLayer, row: HeadRow): void {
  const { keyHeads, keyDim, valueHeads, valueDim } = spec;
  const { head, own, log, q, v, out } = row;
  const keyAt = (logRow: number): number => logRow * keyHeads * keyDim + row.keyFrom;
  const rAt = (logRow: number): number => (logRow * valueHeads + head) * valueDim;
  const k = state.k.subarray(keyAt(own), keyAt(own) + keyDim);
  const cums = prefixSums([...log, own].map((logRow) => state.g[logRow * valueHeads + head] as number));
  const cum = cums[log.length] as number;
  const predicted = new Float64Array(valueDim);
  const answer = new Float64Array(valueDim);
  const decay = Math.exp(cum);
  for (let i = 0; i < keyDim; i++) {
    const sRow = ((row.half * valueHeads + head) * keyDim + i) * valueDim;
    addScaled(predicted, state.s, sRow, decay * (k[i] as number));
    addScaled(answer, state.s, sRow, decay * (q[i] as number));
  }
  log.forEach((logRow, j) => {
    const weight = Math.exp(cum - (cums[j] as number));
    addScaled(predicted, state.r, rAt(logRow), weight * dot(k, state.k, keyAt(logRow)));
    addScaled(answer, state.r, rAt(logRow), weight * dot(q, state.k, keyAt(logRow)));
  });
  for (let i = 0; i < valueDim; i++)
    state.r[rAt(own) + i] = row.beta * ((v[i] as number) - (predicted[i] as number));
  addScaled(answer, state.r, rAt(own), dot(q, k, 0));
  out.set(answer);
}

function prefixSums(values: readonly number[]): number[] {
  let sum = 0;
  return values.map((value) => {
    sum += value;
    return sum;
  });
}

function addScaled(sum: Float64Array, x: Float32Array, from: number, factor: number): void {
  for (let i = 0; i < sum.length; i++) sum[i] = (sum[i] as number) + factor * (x[from + i] as number);
}

function dot(a: Float32Array, b: Float32Array, bFrom: number): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[bFrom + i] as number);
  return sum;
}

/** At n = C*m tokens: S at C*m = exp(cum) S at C*(m-1) + sum_j exp(cum - cum_j) k_j R_j^T over the chunk's log rows. */
export function materializeIfDue(spec: StateSpec, state: StateLayer): void {
  const { chunk, valueHeads, keyHeads, keyDim, valueDim } = spec;
  if (state.tokens % chunk !== 0) return;
  const multiple = state.tokens / chunk;
  const log = Array.from({ length: chunk }, (_, i) => (state.tokens - chunk + i) % (2 * chunk));
  const size = keyDim * valueDim;
  const sum = new Float64Array(valueDim);
  for (let head = 0; head < valueHeads; head++) {
    const cums = prefixSums(log.map((logRow) => state.g[logRow * valueHeads + head] as number));
    const cum = cums[chunk - 1] as number;
    const from = (((multiple + 1) % 2) * valueHeads + head) * size;
    const to = ((multiple % 2) * valueHeads + head) * size;
    const key = Math.floor((head * keyHeads) / valueHeads) * keyDim;
    for (let i = 0; i < keyDim; i++) {
      sum.fill(0);
      addScaled(sum, state.s, from + i * valueDim, Math.exp(cum));
      log.forEach((logRow, j) => {
        const r = (logRow * valueHeads + head) * valueDim;
        const ki = state.k[logRow * keyHeads * keyDim + key + i] as number;
        addScaled(sum, state.r, r, Math.exp(cum - (cums[j] as number)) * ki);
      });
      state.s.set(sum, to + i * valueDim);
    }
  }
}
