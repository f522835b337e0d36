/**
 * How well the cost table predicts: measures the table as the engine does, then every row count again, and compares.
 *
 *   npx tsx perf/step-cost.ts ENGINE_FOLDER [RESULT.json]
 */
import { writeFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { openBackend } from '../src/backends/index.ts';
import { openEngineFolder } from '../src/build/index.ts';
import { CostModel } from '../src/engine/draft/cost-model.ts';
import { loadCosts } from '../src/engine/draft/measure.ts';
import { folderSource } from '../src/engine/folder-source.ts';
import { maxNodes } from '../src/engine/open.ts';
import { loadModel } from '../src/models/index.ts';

const [path, result] = process.argv.slice(2);
if (path === undefined) throw new Error('usage: step-cost.ts ENGINE_FOLDER [RESULT.json]');
const backend = openBackend({ name: 'native', threads: 0 });
const model = loadModel(backend, folderSource(backend, openEngineFolder(path)), { maxRows: 512 });
const contextTokens = 20_000;
const pools = {
  kv: backend.createKvPool({
    ...model.kvShape,
    dtype: 'fp8',
    pageTokens: 32,
    pages: 640,
    slots: 1,
    maxNodes,
  }),
  state: backend.createStatePool({ ...model.stateShape, slots: 1, maxNodes, snapshots: 1 }),
};
const parts = { backend, model, pools, contextTokens, probe: backend.alloc(1) };
const predicted = new CostModel(await loadCosts(null, parts));
const again = await loadCosts(null, parts);
const lines: { rows: number; context: number; predictedMs: number; measuredMs: number; ratio: number }[] = [];
for (const [c, context] of again.contexts.entries()) {
  for (const [r, rows] of again.rows.entries()) {
    const measuredMs = again.stepMs[c]?.[r] ?? 0;
    const predictedMs = predicted.step(rows, context);
    lines.push({ rows, context, predictedMs, measuredMs, ratio: predictedMs / measuredMs });
  }
}
for (const { rows, context, predictedMs, measuredMs, ratio } of lines)
  console.log(
    `${String(rows).padStart(3)} rows at ${String(context).padStart(5)}: predicted ${predictedMs.toFixed(2)} ms, measured ${measuredMs.toFixed(2)} ms, ratio ${ratio.toFixed(3)}`,
  );
const worst = Math.max(...lines.map(({ ratio }) => Math.abs(ratio - 1)));
const summary = {
  date: new Date().toISOString(),
  cpu: cpus()[0]?.model,
  cores: cpus().length,
  backend: backend.detail,
  worstError: worst,
  draftMs: predicted.table.draftMs,
  fillMs: predicted.table.fillMs,
  lines,
};
if (result !== undefined) writeFileSync(result, `${JSON.stringify(summary, null, 1)}\n`);
console.log(JSON.stringify({ worstError: worst }));
backend.close();
