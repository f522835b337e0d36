/**
 * A tree whose every frontier node is expanded with its own parent (qwen35-model 5.3): per step the best `topK` nodes by
 * cumulative log-probability grow `topK` children each; of all nodes the best are kept.
 */
import type { DraftTree } from '../draft-tree.ts';
import type { DepthList } from './shared-tree.ts';

export interface GrownNode {
  readonly id: number;
  readonly parent: number;
  readonly depth: number;
  readonly score: number;
}

export class FullTree {
  readonly nodes: GrownNode[] = [];
  readonly #topK: number;

  constructor(topK: number) {
    this.#topK = topK;
  }

  /** Adds the children of a node (-1 = root); returns their indices. */
  expand(parent: number, list: DepthList): number[] {
    const from = this.nodes[parent];
    const depth = from === undefined ? 0 : from.depth + 1;
    const base = from?.score ?? 0;
    return list.ids.slice(0, this.#topK).map((id, i) => {
      this.nodes.push({ id, parent, depth, score: base + (list.logProbs[i] ?? Number.NEGATIVE_INFINITY) });
      return this.nodes.length - 1;
    });
  }

  /** The frontier of the next step: the best of the newest nodes. */
  frontier(candidates: readonly number[]): number[] {
    return this.#best(candidates, this.#topK).sort((a, b) => a - b);
  }

  /** The best `count` nodes, closed under parents: a score never exceeds that of its parent, ties go to the earlier node. */
  best(count: number): DraftTree {
    const chosen = this.#best([...this.nodes.keys()], count).sort((a, b) => a - b);
    const place = new Map(chosen.map((node, i) => [node, i]));
    return {
      ids: Int32Array.from(chosen, (node) => this.nodes[node]?.id ?? 0),
      parents: Int32Array.from(chosen, (node) => place.get(this.nodes[node]?.parent ?? -1) ?? -1),
    };
  }

  #best(nodes: readonly number[], count: number): number[] {
    const score = (node: number): number => this.nodes[node]?.score ?? Number.NEGATIVE_INFINITY;
    return [...nodes].sort((a, b) => score(b) - score(a) || a - b).slice(0, count);
  }
}
