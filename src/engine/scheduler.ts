/**
 * What runs in the next step: every decoding sequence first, then prompt slices in order of admission.
 * A slice ends early where a snapshot is due, so that the state of exactly that token count can be saved.
 */
import type { Work } from './batch.ts';
import { type DraftTree, emptyTree } from './draft-tree.ts';
import type { Sequence } from './sequence.ts';

export interface StepBudget {
  /** Prompt tokens per step. */
  readonly prefillTokens: number;
  /** Rows per step, nodes included. */
  readonly maxRows: number;
}

/** A slice beside decoding sequences is this many times shorter. */
const decodingShare = 4;

export function planStep(
  running: readonly Sequence[],
  treeOf: (sequence: Sequence) => DraftTree,
  budget: StepBudget,
): Work[] {
  const works: Work[] = [];
  let rows = 0;
  const decoding = running.filter((sequence) => !sequence.isPrefill);
  for (const [i, sequence] of decoding.entries()) {
    const free = budget.maxRows - rows - (decoding.length - i);
    const proposed = treeOf(sequence);
    const tree = proposed.ids.length <= free ? proposed : emptyTree;
    works.push({ sequence, chainLen: 1, tree, choosesToken: true });
    rows += 1 + tree.ids.length;
  }
  // Beside sequences that decode a slice is short: each of their tokens waits for it.
  const slice = decoding.length > 0 ? Math.ceil(budget.prefillTokens / decodingShare) : budget.prefillTokens;
  let tokens = Math.min(slice, budget.maxRows - rows);
  for (const sequence of running) {
    if (!sequence.isPrefill || tokens <= 0) continue;
    const work = promptSlice(sequence, tokens);
    works.push(work);
    tokens -= work.chainLen;
  }
  return works;
}

function promptSlice(sequence: Sequence, tokens: number): Work {
  const from = sequence.computedLen;
  const due = sequence.snapshotsDue.find((position) => position > from) ?? sequence.knownLen;
  const end = Math.min(from + tokens, due, sequence.knownLen);
  return { sequence, chainLen: end - from, tree: emptyTree, choosesToken: end === sequence.knownLen };
}
