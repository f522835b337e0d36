/**
 * What the form of a constrained answer does to drafts: text without a choice is drafted, which costs nothing to find, and
 * guesses that the form rules out are dropped before they are verified.
 */
import type { DraftTree } from '../draft-tree.ts';
import type { Guide } from '../guide/guide.ts';
import type { CandidateTree } from './candidate-tree.ts';
import type { DepthList } from './shared-tree.ts';

/** Adds the text that must follow as a chain, at most `most` tokens; returns how many. */
export function addForced(tree: CandidateTree, guide: Guide | null, most: number): number {
  let parent = -1;
  let count = 0;
  for (const id of guide?.forced(most) ?? []) {
    parent = tree.add(parent, id, 'grammar', 1);
    if (parent < 0) break;
    count++;
  }
  return count;
}

/** The candidates that may follow, best first as before. */
export function allowedList(list: DepthList, guide: Guide | null): DepthList {
  if (guide === null) return list;
  const kept = [...list.ids.keys()].filter((i) => guide.after(list.ids[i] as number) !== null);
  return {
    ids: kept.map((i) => list.ids[i] as number),
    logProbs: kept.map((i) => list.logProbs[i] as number),
  };
}

/** The tree without the nodes that may not follow their parents, and what hangs on them. */
export function allowedTree(tree: DraftTree, guide: Guide | null): DraftTree {
  if (guide === null) return tree;
  const ids: number[] = [];
  const parents: number[] = [];
  const guides = new Map<number, { readonly guide: Guide; readonly place: number }>();
  for (const [node, id] of tree.ids.entries()) {
    const parent = tree.parents[node] as number;
    const before = parent < 0 ? { guide, place: -1 } : guides.get(parent);
    const after = before?.guide.after(id) ?? null;
    if (before === undefined || after === null) continue;
    guides.set(node, { guide: after, place: ids.length });
    ids.push(id);
    parents.push(before.place);
  }
  return { ids: Int32Array.from(ids), parents: Int32Array.from(parents) };
}
