/**
 * Measures what steps cost on this machine, once: forwards of 1 to 48 rows at a few context lengths, and MTP draft steps. Runs on
 * slot 0 before anything is served; it leaves scratch memory and an empty state behind.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Backend, Batch, Buffer } from '../../backends/index.ts';
import type { Model, Pools } from '../../models/index.ts';
import { nodeDepths } from '../draft-tree.ts';
import { type CostTable, measuredRows } from './cost-model.ts';

export interface MeasureParts {
  readonly backend: Backend;
  readonly model: Model;
  readonly pools: Pools;
  readonly contextTokens: number;
  /** Any buffer: reading it waits. */
  readonly probe: Buffer;
}

/** Counted up when a figure comes to mean something else: older tables are measured again. */
const tableVersion = 2;

const contexts = [0, 4096, 16_384];
/** All points are measured in turn, round after round: a disturbance then hits one value of many points, not all of one. */
const leastRounds = 3;
const mostRounds = 25;
/** Prompt tokens per measured slice: few enough for a large model to be measured in seconds. */
const prefillRows = 48;
/** Rounds beyond the least ones are added while they fit. */
const spendMs = 2500;

/** The table of the engine folder when it was measured under the same conditions, else a new one, kept there if possible. */
export async function loadCosts(folder: string | null, parts: MeasureParts): Promise<CostTable> {
  const { backend, model, pools } = parts;
  const key = [
    `table ${tableVersion}`,
    backend.name,
    backend.detail,
    pools.kv.dtype,
    pools.kv.pageTokens,
    model.hasMtp,
    parts.contextTokens,
  ].join(' · ');
  const path = folder === null ? null : join(folder, 'cost.json');
  const known = path === null ? null : readTable(path);
  if (known?.key === key) return known;
  const table = await measure(parts, key);
  if (path !== null) {
    try {
      writeFileSync(path, `${JSON.stringify(table)}\n`);
    } catch {
      // A folder that can not be written is measured again next time.
    }
  }
  return table;
}

function readTable(path: string): CostTable | null {
  try {
    const table = existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as CostTable) : null;
    const isWhole =
      table?.stepMs?.length === table?.contexts?.length &&
      table?.stepMs?.every((line) => line.length === table.rows.length);
    return isWhole ? table : null;
  } catch {
    return null;
  }
}

interface Point {
  readonly run: () => void;
  readonly times: number[];
}

async function measure(parts: MeasureParts, key: string): Promise<CostTable> {
  const { backend, model, pools } = parts;
  // The reference back-end refuses a context that was never computed, and is slow at any.
  const isFast = backend.name !== 'reference';
  const used = contexts.filter((at) => at === 0 || (isFast && at + 64 <= parts.contextTokens));
  const rows = measuredRows.filter((count) => count <= model.maxRows && count - 1 <= pools.state.maxNodes);
  const slice = Math.min(prefillRows, model.maxRows);
  const point = (run: () => void): Point => ({ run, times: [] });
  // An MTP pass starts from the hidden rows of some forward; which one does not matter for its time.
  const { hidden } = model.forward(batchOf(parts, 0, { chain: slice, nodes: 0 }), new Int32Array(0), pools);
  backend.resetState(pools.state, 0);
  const lines = used.map((context) => ({
    steps: rows.map((count) => point(() => step(parts, context, count))),
    mtp: model.hasMtp
      ? {
          draft: point(() =>
            mtpPass(parts, batchOf(parts, context, { chain: 1, nodes: 0 }), {
              hidden,
              logitRows: Int32Array.of(0),
            }),
          ),
          fill: point(() =>
            mtpPass(parts, batchOf(parts, context, { chain: slice, nodes: 0 }), {
              hidden,
              logitRows: new Int32Array(0),
            }),
          ),
        }
      : null,
  }));
  const points = lines.flatMap(({ steps, mtp }) => [...steps, ...(mtp === null ? [] : Object.values(mtp))]);
  const started = performance.now();
  // Weights that were never touched are still on disk.
  points[0]?.run();
  for (let round = 0; round < mostRounds; round++) {
    if (round >= leastRounds && performance.now() - started > spendMs) break;
    for (const { run, times } of points) times.push(await timed(parts, run));
  }
  backend.resetState(pools.state, 0);
  const perMtp = (name: 'draft' | 'fill', each: number): number[] =>
    lines.flatMap(({ mtp }) => (mtp === null ? [] : [median(mtp[name].times) / each]));
  return {
    key,
    rows,
    contexts: used,
    stepMs: lines.map(({ steps }) => steps.map(({ times }) => median(times))),
    draftMs: perMtp('draft', 1),
    fillMs: perMtp('fill', slice),
  };
}

/** A chain of known tokens, and a tree of two branches behind it. */
function batchOf(
  { pools, model }: MeasureParts,
  context: number,
  shape: { chain: number; nodes: number },
): Batch {
  const { chain, nodes } = shape;
  const rows = chain + nodes;
  const nodeParents = Int32Array.from({ length: nodes }, (_, node) => Math.max(-1, node - 2));
  const positions = Array.from({ length: chain }, (_, i) => context + i);
  for (const depth of nodeDepths(nodeParents)) positions.push(context + chain + depth);
  const pageCount = Math.ceil((context + rows + 1) / pools.kv.pageTokens);
  const pages = Int32Array.from({ length: pageCount }, (_, i) => i % Math.max(1, pools.kv.pages));
  return {
    rows,
    ids: Int32Array.from({ length: rows }, (_, i) => i % model.vocabSize),
    positions: Int32Array.from(positions),
    segments: [{ slot: 0, firstRow: 0, ctxLen: context, chainLen: chain, pages, nodeParents, nodeStart: 0 }],
  };
}

function step(parts: MeasureParts, context: number, rows: number): void {
  const wanted = Int32Array.from({ length: rows }, (_, i) => i);
  parts.model.forward(batchOf(parts, context, { chain: 1, nodes: rows - 1 }), wanted, parts.pools);
}

function mtpPass(parts: MeasureParts, batch: Batch, input: { hidden: Buffer; logitRows: Int32Array }): void {
  parts.model.forwardMtp(batch, input, parts.pools);
}

async function timed({ backend, probe, pools }: MeasureParts, run: () => void): Promise<number> {
  backend.resetState(pools.state, 0);
  const started = performance.now();
  run();
  // Reading waits for the ops before it.
  await backend.read(probe, 0, new Float32Array(1));
  return performance.now() - started;
}

function median(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] as number;
}
