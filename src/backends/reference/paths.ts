/**
 * Rows and their ancestors. Checks everything that a batch claims, so that a wrong position or parent stops here.
 *
 * A row's path is: the committed tokens, the chain rows up to it, and for a node its ancestors among the nodes.
 */
import { assert } from '../../util/index.ts';
import type { Batch, Segment } from '../backend.ts';

export interface Row {
  readonly segment: Segment;
  /** Index in the batch. */
  readonly row: number;
  readonly position: number;
  /** For a node the nodes from a child of -1 down to itself; empty for a chain row. */
  readonly nodes: readonly number[];
}

export function nodePath(parents: Int32Array, node: number): number[] {
  const path: number[] = [];
  for (let at = node; at >= 0; at = parents[at] as number) path.push(at);
  return path.reverse();
}

/** Tokens that are committed once the forward is through. */
export const chainEnd = (segment: Segment): number => segment.ctxLen + segment.chainLen;

/** All rows of a segment: the chain in order, then the nodes of this forward. */
export function rowsOf(segment: Segment): Row[] {
  const { firstRow, ctxLen, chainLen, nodeParents, nodeStart } = segment;
  const rows: Row[] = [];
  for (let i = 0; i < chainLen; i++)
    rows.push({ segment, row: firstRow + i, position: ctxLen + i, nodes: [] });
  for (let node = nodeStart; node < nodeParents.length; node++) {
    const nodes = nodePath(nodeParents, node);
    const row = firstRow + chainLen + node - nodeStart;
    rows.push({ segment, row, position: chainEnd(segment) + nodes.length - 1, nodes });
  }
  return rows;
}

const rowCount = ({ chainLen, nodeParents, nodeStart }: Segment): number =>
  chainLen + nodeParents.length - nodeStart;

/** Slots and nodes must exist in the pool that the op uses; a slot has one segment at most. */
export function checkBatch(
  batch: Batch,
  limits: { readonly slots: number; readonly maxNodes: number },
): void {
  assert(batch.positions.length >= batch.rows, `${batch.rows} rows have positions`);
  const seen = new Set<number>();
  for (const segment of batch.segments) {
    const { slot } = segment;
    assert(
      Number.isInteger(slot) && slot >= 0 && slot < limits.slots,
      `slot ${slot} is below ${limits.slots}`,
    );
    assert(!seen.has(slot), `slot ${slot} has one segment`);
    seen.add(slot);
    checkSegment(batch, segment, limits.maxNodes);
  }
}

function checkSegment(batch: Batch, segment: Segment, maxNodes: number): void {
  const { firstRow, ctxLen, chainLen, nodeParents, nodeStart } = segment;
  assert(ctxLen >= 0 && chainLen >= 0, `context of ${ctxLen} tokens and chain of ${chainLen}`);
  assert(
    nodeStart >= 0 && nodeStart <= nodeParents.length,
    `node start ${nodeStart} of ${nodeParents.length}`,
  );
  assert(nodeStart === 0 || chainLen === 0, 'no chain row comes between the nodes of two forwards');
  assert(nodeParents.length <= maxNodes, `${nodeParents.length} nodes, the pool has ${maxNodes}`);
  assert(
    firstRow >= 0 && firstRow + rowCount(segment) <= batch.rows,
    `rows ${firstRow} .. ${firstRow + rowCount(segment)} of ${batch.rows}`,
  );
  nodeParents.forEach((parent, node) => {
    assert(parent >= -1 && parent < node, `parent ${parent} comes before node ${node}`);
  });
  for (const { row, position } of rowsOf(segment))
    assert(batch.positions[row] === position, `row ${row} is at ${position}, got ${batch.positions[row]}`);
}

/** The page of a token, checked. */
export function pageOf(
  pages: Int32Array,
  token: number,
  pool: { pageTokens: number; pages: number },
): number {
  const page = pages[Math.floor(token / pool.pageTokens)];
  assert(page !== undefined, `a page for token ${token}, ${pages.length} given`);
  assert(page >= 0 && page < pool.pages, `page ${page} is below ${pool.pages}`);
  return page;
}
