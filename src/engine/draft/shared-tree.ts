/**
 * Best-first growth of a tree from one candidate list per depth (qwen35-model 5.2): the children of every node at depth
 * d - 1 are offered the list of depth d. Chosen are the nodes with the best cumulative log-probability.
 */
import { present } from '../../util/index.ts';
import type { DraftTree } from '../draft-tree.ts';

/** Candidates of one depth, best first. */
export interface DepthList {
  readonly ids: readonly number[];
  readonly logProbs: readonly number[];
}

interface Grown {
  readonly depth: number;
  readonly score: number;
  /** Next candidate of the following depth to offer. */
  next: number;
}

/** `nodes` counts the root, as the reference submission does: the tree has at most nodes - 1 drafts. */
export function growSharedTree(lists: readonly DepthList[], nodes: number): DraftTree {
  const grown: Grown[] = [{ depth: 0, score: 0, next: 0 }];
  const ids: number[] = [];
  const parents: number[] = [];
  while (grown.length < nodes) {
    let best: { parent: number; score: number } | null = null;
    for (const [parent, node] of grown.entries()) {
      const logProb = lists[node.depth]?.logProbs[node.next];
      if (logProb === undefined || !Number.isFinite(logProb)) continue;
      const score = node.score + logProb;
      // Ties go to the lower parent, which comes first here.
      if (best === null || score > best.score) best = { parent, score };
    }
    if (best === null) break;
    const parent = present(grown[best.parent], 'parent');
    ids.push(present(lists[parent.depth]?.ids[parent.next], 'candidate'));
    parents.push(best.parent - 1);
    parent.next++;
    grown.push({ depth: parent.depth + 1, score: best.score, next: 0 });
  }
  return { ids: Int32Array.from(ids), parents: Int32Array.from(parents) };
}
