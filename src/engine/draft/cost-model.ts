/**
 * What a step of n rows costs on this machine, from a few measured points; in between it is interpolated, in both
 * directions. Times are medians in milliseconds. Kept beside the engine folder as `cost.json`.
 */
import { assert, present } from '../../util/index.ts';

export const measuredRows = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48] as const;

export interface CostTable {
  /** What the times depend on: kernels, threads, model; a table with another key is measured again. */
  readonly key: string;
  readonly rows: readonly number[];
  /** Context lengths, ascending. */
  readonly contexts: readonly number[];
  /** stepMs[c][r]: one forward of rows[r] rows at contexts[c]. */
  readonly stepMs: readonly (readonly number[])[];
  /** draftMs[c]: one MTP draft step of one row; empty without MTP. */
  readonly draftMs: readonly number[];
  /** fillMs[c]: what filling the MTP layer adds to a prompt token; empty without MTP. */
  readonly fillMs: readonly number[];
}

export class CostModel {
  readonly table: CostTable;

  constructor(table: CostTable) {
    assert(table.rows.length > 0 && table.contexts.length > 0, 'a cost table has points');
    assert(table.stepMs.length === table.contexts.length, 'one line of costs per context');
    this.table = table;
  }

  /** Milliseconds of one forward of `rows` rows with `context` tokens before them. */
  step(rows: number, context: number): number {
    const { contexts, stepMs, rows: points } = this.table;
    return interpolate(
      contexts,
      (c) => interpolate(points, (r) => present(present(stepMs[c], 'line')[r], 'cost'), rows),
      context,
    );
  }

  /** Milliseconds of one MTP draft step. */
  draft(context: number): number {
    const { contexts, draftMs } = this.table;
    return draftMs.length === 0
      ? Number.POSITIVE_INFINITY
      : interpolate(contexts, (c) => present(draftMs[c], 'draft cost'), context);
  }
}

/** Computed prompt tokens per generated one in agent work: 533 and 66 per turn of the Edge Agentic workload. */
const promptPerAnswer = 8;
/** How often a guess of an MTP layer is right before it was seen at work. */
const guessRight = 0.7;

/**
 * Filling the MTP layer makes every prompt token dearer, its guesses make answers cheaper. True when an agent's turn is expected
 * to gain, at the longest context that was measured, by chains of the best length.
 */
export function mtpPays(cost: CostModel): boolean {
  const { contexts, fillMs } = cost.table;
  const context = contexts.at(-1) ?? 0;
  const plain = cost.step(1, context);
  const draft = cost.draft(context);
  let best = plain;
  let tokens = 1;
  for (let length = 1; length <= 8; length++) {
    tokens += guessRight ** length;
    best = Math.min(best, (cost.step(1 + length, context) + length * draft) / tokens);
  }
  return plain - best > promptPerAnswer * (fillMs.at(-1) ?? 0);
}

/** Piecewise linear over ascending points; beyond the ends the last piece goes on. */
function interpolate(points: readonly number[], valueAt: (index: number) => number, x: number): number {
  if (points.length === 1) return valueAt(0);
  let i = points.findIndex((point) => point >= x);
  if (i < 0) i = points.length - 1;
  if (i === 0) i = 1;
  const [x0, x1] = [present(points[i - 1], 'point'), present(points[i], 'point')];
  const [y0, y1] = [valueAt(i - 1), valueAt(i)];
  return Math.max(y0 + ((y1 - y0) * (x - x0)) / (x1 - x0), Number.EPSILON);
}

/**
 * How many of the best nodes to verify: the count (0 included) with the most expected tokens per millisecond.
 * `scores` are expected gains, best first; `spentMs` is what drafting has cost already, whatever is chosen.
 */
export function bestNodeCount(
  scores: readonly number[],
  stepMs: (rows: number) => number,
  spentMs: number,
): number {
  let best = { count: 0, rate: 1 / (stepMs(1) + spentMs) };
  let tokens = 1;
  for (const [i, score] of scores.entries()) {
    tokens += score;
    const rate = tokens / (stepMs(2 + i) + spentMs);
    if (rate > best.rate) best = { count: i + 1, rate };
  }
  return best.count;
}
