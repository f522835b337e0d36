/** Mixture of experts: what `route`, `groupedLinear`, `mixExperts` and `addGated` mean. Every row is computed from itself alone. */
import { assert } from '../../util/index.ts';
import { linear } from './linear.ts';
import { sigmoid } from './rows.ts';
import type { DecodedWeight } from './weights.ts';

/** Ids and probabilities of the k best experts of a row, best first, ties to the lower id. */
export function route(
  out: { readonly ids: Int32Array; readonly weights: Float32Array },
  logits: Float32Array,
  renormalize: 'renormalize' | 'keep',
): void {
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const exps = Array.from(logits, (x) => Math.exp(x - largest));
  const order = Array.from(logits.keys()).sort(
    (a, b) => (logits[b] as number) - (logits[a] as number) || a - b,
  );
  const chosen = order.slice(0, out.ids.length);
  const sum = (renormalize === 'renormalize' ? chosen : order).reduce((s, e) => s + (exps[e] as number), 0);
  out.ids.set(chosen);
  out.weights.set(chosen.map((e) => (exps[e] as number) / sum));
}

/** `x` has the rows of `routes`, or one per choice. */
export function groupedLinear(
  out: Float32Array,
  experts: readonly DecodedWeight[],
  x: Float32Array,
  {
    ids,
    perInput,
  }: { readonly ids: Int32Array /** Choices that share an input row. */; readonly perInput: number },
): void {
  ids.forEach((id, i) => {
    const expert = experts[id];
    assert(expert !== undefined, `expert ${id} of ${experts.length}`);
    const { inDim, outDim } = expert;
    const at = Math.floor(i / perInput) * inDim;
    linear(out.subarray(i * outDim, (i + 1) * outDim), expert, x.subarray(at, at + inDim), 1);
  });
}

export function mixExperts(out: Float32Array, y: Float32Array, weights: Float32Array, dim: number): void {
  const k = weights.length / (out.length / dim);
  for (let at = 0; at < out.length; at++) {
    const row = Math.floor(at / dim);
    let sum = 0;
    for (let j = 0; j < k; j++)
      sum += (weights[row * k + j] as number) * (y[(row * k + j) * dim + (at % dim)] as number);
    out[at] = sum;
  }
}

export function addGated(x: Float32Array, y: Float32Array, gate: Float32Array): void {
  const dim = x.length / gate.length;
  for (let at = 0; at < x.length; at++)
    x[at] = (x[at] as number) + sigmoid(gate[Math.floor(at / dim)] as number) * (y[at] as number);
}
