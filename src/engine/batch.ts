/** From what each sequence does in this step to the rows of one forward. */
import type { Batch, Segment } from '../backends/index.ts';
import { present } from '../util/index.ts';
import { type DraftTree, nodeDepths } from './draft-tree.ts';
import type { Sequence } from './sequence.ts';

export interface Work {
  readonly sequence: Sequence;
  /** Known tokens computed in this step, from computedLen on. */
  readonly chainLen: number;
  /** Empty unless the chain reaches the last known token. */
  readonly tree: DraftTree;
  /** True when the chain ends at the last known token: its logits choose the next one. */
  readonly choosesToken: boolean;
}

export interface Assembled {
  readonly batch: Batch;
  /** Rows whose logits are wanted; those of one work are adjacent: last chain row, then its nodes. */
  readonly logitRows: Int32Array;
  /** Index into logitRows of each work's last chain row, -1 = none. */
  readonly logitStart: readonly number[];
}

export function assemble(works: readonly Work[]): Assembled {
  const rows = works.reduce((sum, work) => sum + work.chainLen + work.tree.ids.length, 0);
  const ids = new Int32Array(rows);
  const positions = new Int32Array(rows);
  const segments: Segment[] = [];
  const logitRows: number[] = [];
  const logitStart: number[] = [];
  let row = 0;
  for (const { sequence, chainLen, tree, choosesToken } of works) {
    const ctxLen = sequence.computedLen;
    segments.push({
      slot: sequence.slot,
      firstRow: row,
      ctxLen,
      chainLen,
      pages: present(sequence.lease, 'lease').pages,
      nodeParents: tree.parents,
      nodeStart: 0,
    });
    for (let i = 0; i < chainLen; i++) positions[row + i] = ctxLen + i;
    ids.set(sequence.tokens.subarray(ctxLen, ctxLen + chainLen), row);
    const nodeRow = row + chainLen;
    ids.set(tree.ids, nodeRow);
    nodeDepths(tree.parents).forEach((depth, node) => {
      positions[nodeRow + node] = ctxLen + chainLen + depth;
    });
    logitStart.push(choosesToken ? logitRows.length : -1);
    if (choosesToken) for (let r = nodeRow - 1; r < nodeRow + tree.ids.length; r++) logitRows.push(r);
    row = nodeRow + tree.ids.length;
  }
  return { batch: { rows, ids, positions, segments }, logitRows: Int32Array.from(logitRows), logitStart };
}
