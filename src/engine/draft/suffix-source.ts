/**
 * Drafts what has followed the same words before. Occurrences vote for the next tokens; a long agreement is worth
 * more than a short one, and a newer occurrence counts like an older one.
 */
import type { CandidateTree } from './candidate-tree.ts';
import type { Occurrence } from './suffix-index.ts';

export interface SuffixLimits {
  /** Longest continuation. */
  readonly steps: number;
  /** Nodes added at most. */
  readonly nodes: number;
}

/** Chance, before any evidence, that the text goes on as it did after an agreement of this many tokens. */
function trust(matchLen: number): number {
  return 1 - 1 / (1 + 0.35 * matchLen);
}

export function addSuffixDrafts(
  tree: CandidateTree,
  { source, found }: { source: 'suffix' | 'history'; found: readonly Occurrence[] },
  limits: SuffixLimits,
): void {
  let left = limits.nodes;
  const grow = (parent: number, group: readonly Occurrence[], step: number): void => {
    if (step >= limits.steps || left <= 0) return;
    for (const [id, members] of votes(group, step)) {
      if (left <= 0) return;
      const best = Math.max(...members.map((member) => member.matchLen)) + step;
      const share = weight(members) / weight(group);
      const node = tree.add(parent, id, source, share * trust(best));
      if (node < 0) continue;
      left--;
      grow(node, members, step + 1);
    }
  };
  grow(-1, found, 0);
}

function weight(group: readonly Occurrence[]): number {
  return group.reduce((sum, { matchLen }) => sum + matchLen * matchLen, 0);
}

/** Occurrences grouped by the token that follows after `step` tokens, heaviest group first. */
function votes(group: readonly Occurrence[], step: number): [number, Occurrence[]][] {
  const byId = new Map<number, Occurrence[]>();
  for (const occurrence of group) {
    const at = occurrence.next + step;
    if (at >= occurrence.index.length) continue;
    const id = occurrence.index.token(at);
    if (id < 0) continue;
    const members = byId.get(id);
    if (members === undefined) byId.set(id, [occurrence]);
    else members.push(occurrence);
  }
  return [...byId].sort((a, b) => weight(b[1]) - weight(a[1]));
}
