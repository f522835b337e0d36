/** Ops that treat each row (or each value) by itself. Sums run in double precision, in order, and are rounded once to fp32. */
import { assert } from '../../util/index.ts';

export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
export const silu = (x: number): number => x / (1 + Math.exp(-x));
export const softplus = (x: number): number => (x > 20 ? x : Math.log1p(Math.exp(x)));

export function embed(out: Float32Array, table: Float32Array, ids: Int32Array, dim: number): void {
  const vocab = table.length / dim;
  ids.forEach((id, row) => {
    assert(id >= 0 && id < vocab, `token ${id} is within the vocabulary of ${vocab}`);
    out.set(table.subarray(id * dim, (id + 1) * dim), row * dim);
  });
}

/** 1 / sqrt(mean(x^2) + eps) over x[from .. from + dim). */
export function inverseRms(x: Float32Array, from: number, dim: number, eps: number): number {
  let sum = 0;
  for (let i = from; i < from + dim; i++) sum += (x[i] as number) * (x[i] as number);
  return 1 / Math.sqrt(sum / dim + eps);
}

export function rmsNorm(out: Float32Array, x: Float32Array, w: Float32Array, eps: number): void {
  const dim = w.length;
  for (let from = 0; from < x.length; from += dim) {
    const unit = inverseRms(x, from, dim, eps);
    for (let i = 0; i < dim; i++) out[from + i] = (x[from + i] as number) * unit * (1 + (w[i] as number));
  }
}

export function gatedRmsNorm(
  out: Float32Array,
  o: Float32Array,
  z: Float32Array,
  w: Float32Array,
  eps: number,
): void {
  const dim = w.length;
  for (let from = 0; from < o.length; from += dim) {
    const unit = inverseRms(o, from, dim, eps);
    for (let i = 0; i < dim; i++)
      out[from + i] = (w[i] as number) * ((o[from + i] as number) * unit) * silu(z[from + i] as number);
  }
}

export function add(x: Float32Array, y: Float32Array): void {
  for (let i = 0; i < x.length; i++) x[i] = (x[i] as number) + (y[i] as number);
}

export function siluMul(out: Float32Array, gate: Float32Array, up: Float32Array): void {
  for (let i = 0; i < out.length; i++) out[i] = silu(gate[i] as number) * (up[i] as number);
}

export function sigmoidMul(out: Float32Array, x: Float32Array, gate: Float32Array): void {
  for (let i = 0; i < out.length; i++) out[i] = (x[i] as number) * sigmoid(gate[i] as number);
}

export function argmax(row: Float32Array): number {
  let best = 0;
  for (let i = 1; i < row.length; i++) if ((row[i] as number) > (row[best] as number)) best = i;
  return best;
}

function logSumExp(row: Float32Array): number {
  const max = row[argmax(row)] as number;
  let sum = 0;
  for (let i = 0; i < row.length; i++) sum += Math.exp((row[i] as number) - max);
  return max + Math.log(sum);
}

/** Insertion into a short sorted list: a later id goes behind its equals. */
export function topK(row: Float32Array, k: number): { ids: number[]; logProbs: number[] } {
  const ids: number[] = [];
  const valueAt = (rank: number): number => row[ids[rank] as number] as number;
  for (let id = 0; id < row.length; id++) {
    const value = row[id] as number;
    if (ids.length === k && value <= valueAt(k - 1)) continue;
    let rank = ids.length;
    while (rank > 0 && value > valueAt(rank - 1)) rank--;
    ids.splice(rank, 0, id);
    if (ids.length > k) ids.pop();
  }
  const total = logSumExp(row);
  return { ids, logProbs: ids.map((_, rank) => valueAt(rank) - total) };
}
