/**
 * The one tree that all draft sources add to. Equal tokens under the same parent are one node; every node has a
 * conditional probability (that it is right, if its parent is) per source, and a score: the product down its path.
 */
import type { DraftTree } from '../draft-tree.ts';
import type { Guide } from '../guide/guide.ts';

/**
 * Where a guess came from: the MTP layer, this sequence's own text, texts of the tenant's finished sequences, or several;
 * or the form that the answer must have leaves no choice.
 */
export type Source = 'mtp' | 'suffix' | 'history' | 'both' | 'grammar';

type OneSource = Exclude<Source, 'both'>;

export interface Candidate {
  readonly id: number;
  /** Index of the parent candidate, -1 = the last known token. */
  readonly parent: number;
  readonly depth: number;
  source: Source;
  /** The source's own claim, the key of its calibration. */
  claim: number;
  /** Calibrated probability given the parent. */
  probability: number;
  score: number;
}

export type Calibrate = (source: Source, depth: number, claim: number) => number;

export class CandidateTree {
  readonly nodes: Candidate[] = [];
  readonly #children = new Map<string, number>();
  readonly #calibrate: Calibrate;
  readonly #maxDepth: number;
  /** Where a constrained answer stands behind each node, and behind the last known token. */
  readonly #guides: (Guide | null)[] = [];
  readonly #guide: Guide | null;

  constructor(calibrate: Calibrate, limits: { readonly maxDepth: number; readonly guide: Guide | null }) {
    this.#calibrate = calibrate;
    this.#maxDepth = limits.maxDepth;
    this.#guide = limits.guide;
  }

  /**
   * Adds a guess, or strengthens the node that already makes it. Returns its index, -1 when it lies too deep or the form of
   * the answer rules it out.
   */
  add(parent: number, id: number, source: OneSource, claim: number): number {
    const depth = parent < 0 ? 0 : this.#node(parent).depth + 1;
    if (depth >= this.#maxDepth) return -1;
    const key = `${parent}:${id}`;
    const known = this.#children.get(key);
    if (known !== undefined) {
      this.#strengthen(known, source, claim);
      return known;
    }
    const before = parent < 0 ? this.#guide : (this.#guides[parent] ?? null);
    const guide = before?.after(id) ?? null;
    if (before !== null && guide === null) return -1;
    this.#guides.push(guide);
    const probability = this.#calibrate(source, depth, claim);
    const score = probability * (parent < 0 ? 1 : this.#node(parent).score);
    this.nodes.push({ id, parent, depth, source, claim, probability, score });
    this.#children.set(key, this.nodes.length - 1);
    return this.nodes.length - 1;
  }

  /** The node under `parent` that the form of the answer leaves no choice about. */
  forcedChild(parent: number): number | null {
    const index = this.nodes.findIndex((node) => node.parent === parent && node.source === 'grammar');
    return index < 0 ? null : index;
  }

  /** The `count` best nodes as a tree, closed under parents: scores fall along a path, so the best ones are. */
  best(count: number): { tree: DraftTree; chosen: number[] } {
    const order = this.nodes.map((_, index) => index);
    this.#rescore();
    order.sort((a, b) => this.#node(b).score - this.#node(a).score || a - b);
    const chosen = order.slice(0, count).sort((a, b) => a - b);
    const place = new Map(chosen.map((candidate, node) => [candidate, node]));
    const ids = Int32Array.from(chosen, (index) => this.#node(index).id);
    const parents = Int32Array.from(chosen, (index) => place.get(this.#node(index).parent) ?? -1);
    return { tree: { ids, parents }, chosen };
  }

  /** Scores of all nodes, best first: the expected number of accepted tokens that each further node adds. */
  scores(): number[] {
    this.#rescore();
    return this.nodes.map((node) => node.score).sort((a, b) => b - a);
  }

  #strengthen(index: number, source: OneSource, claim: number): void {
    const node = this.#node(index);
    // What is forced stays so, whoever guesses it too.
    if (node.source === 'grammar') return;
    if (node.source !== source) node.source = 'both';
    node.claim = Math.max(node.claim, claim);
    node.probability = Math.max(node.probability, this.#calibrate(node.source, node.depth, node.claim));
  }

  /** Parents precede children, and a node never scores above its parent. */
  #rescore(): void {
    for (const node of this.nodes)
      node.score = node.probability * (node.parent < 0 ? 1 : this.#node(node.parent).score);
  }

  #node(index: number): Candidate {
    const node = this.nodes[index];
    if (node === undefined) throw new RangeError(`candidate ${index} of ${this.nodes.length}`);
    return node;
  }
}
