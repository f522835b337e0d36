/**
 * What a source's claim is worth, learned on line: per source, depth and claim, the share of the nodes that were
 * right among those whose parent was right. Old evidence fades, so that the figures follow the workload.
 */
import type { Candidate, Source } from './candidate-tree.ts';

const claimBuckets = 10;
const maxDepth = 32;
const sources: readonly Source[] = ['mtp', 'suffix', 'history', 'both', 'grammar'];
/** Evidence worth of the claim itself, in observations. */
const priorWeight = 4;
/** Counts are halved when they reach this. */
const memory = 256;

export class Calibration {
  readonly #right = new Float64Array(sources.length * maxDepth * claimBuckets);
  readonly #seen = new Float64Array(this.#right.length);

  /** Probability that a node is right, given that its parent is. Between 0.001 and 0.999. */
  readonly probability = (source: Source, depth: number, claim: number): number => {
    const cell = cellOf(source, depth, claim);
    const right = (this.#right[cell] as number) + priorWeight * claim;
    const seen = (this.#seen[cell] as number) + priorWeight;
    return Math.min(0.999, Math.max(0.001, right / seen));
  };

  /** One verified node whose parent was accepted. */
  observe(node: Pick<Candidate, 'source' | 'depth' | 'claim'>, wasRight: 0 | 1): void {
    const cell = cellOf(node.source, node.depth, node.claim);
    this.#right[cell] = (this.#right[cell] as number) + wasRight;
    this.#seen[cell] = (this.#seen[cell] as number) + 1;
    if ((this.#seen[cell] as number) < memory) return;
    this.#right[cell] = (this.#right[cell] as number) / 2;
    this.#seen[cell] = (this.#seen[cell] as number) / 2;
  }
}

function cellOf(source: Source, depth: number, claim: number): number {
  const bucket = Math.min(claimBuckets - 1, Math.max(0, Math.floor(claim * claimBuckets)));
  return (sources.indexOf(source) * maxDepth + Math.min(depth, maxDepth - 1)) * claimBuckets + bucket;
}
