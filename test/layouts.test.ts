/**
 * Every published layout through packing and the forward: copse-tiny is stored in it, packed, and its logits are held against those
 * of the values that the layout means.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import type { Backend } from '../src/backends/index.ts';
import { buildEngine, openEngineFolder } from '../src/build/index.ts';
import { openCheckpoint, readJson } from '../src/checkpoint/index.ts';
import { folderSource } from '../src/engine/folder-source.ts';
import { checkpointSource, loadModel, type WeightSource } from '../src/models/index.ts';
import { availableBackends } from './support/backends.ts';
import { storeTiny } from './support/layout-checkpoint.ts';
import { layoutMakers } from './support/layouts.ts';

const root = mkdtempSync(join(tmpdir(), 'copse-layouts-'));
afterAll(() => rmSync(root, { recursive: true }));

/** The start of a recorded prompt: what the model is for. */
const golden = readJson(fileURLToPath(new URL('golden/copse-tiny.json', import.meta.url))) as {
  cases: { ids: number[] }[];
};
const ids = Int32Array.from((golden.cases[0] as { ids: number[] }).ids.slice(0, 96));

async function logits(backend: Backend, source: WeightSource): Promise<Float32Array> {
  const model = loadModel(backend, source, { maxRows: ids.length });
  const shared = { slots: 1, maxNodes: 1 };
  const kv = backend.createKvPool({ ...model.kvShape, ...shared, dtype: 'f32', pageTokens: 16, pages: 6 });
  const state = backend.createStatePool({ ...model.stateShape, ...shared, snapshots: 0 });
  backend.resetState(state, 0);
  const rows = Int32Array.from(ids.keys());
  const chain = {
    slot: 0,
    firstRow: 0,
    ctxLen: 0,
    chainLen: ids.length,
    pages: Int32Array.from({ length: 6 }, (_, i) => i),
  };
  const batch = {
    ...{ rows: ids.length, ids, positions: rows },
    segments: [{ ...chain, nodeParents: new Int32Array(0), nodeStart: 0 }],
  };
  const values = new Float32Array(ids.length * model.vocabSize);
  await backend.read(model.forward(batch, rows, { kv, state }).logits, 0, values);
  return values;
}

/** Mean over the rows of sum p log(p / q), in nats. */
function divergence(p: Float32Array, q: Float32Array): number {
  const width = p.length / ids.length;
  let sum = 0;
  for (let row = 0; row < ids.length; row++) {
    const [a, b] = [p, q].map((all) => all.subarray(row * width, (row + 1) * width)) as [
      Float32Array,
      Float32Array,
    ];
    const logSum = (x: Float32Array): number => {
      const max = x.reduce((m, v) => Math.max(m, v));
      return max + Math.log(x.reduce((s, v) => s + Math.exp(v - max), 0));
    };
    const [za, zb] = [logSum(a), logSum(b)];
    for (let i = 0; i < width; i++) {
      const lp = (a[i] as number) - za;
      sum += Math.exp(lp) * (lp - ((b[i] as number) - zb));
    }
  }
  return sum / ids.length;
}

const open = availableBackends().at(-1)?.open;

describe.runIf(open !== undefined)('copse-tiny', () => {
  it.each(layoutMakers.map((maker) => [maker.name, maker] as const))(
    'in %s means what it says',
    async (name, maker) => {
      const backend = (open as () => Backend)();
      const folder = join(root, name.replaceAll(' ', '-'));
      const meant = storeTiny(maker, folder);
      const expected = await logits(backend, checkpointSource(backend, meant));
      const direct = await logits(backend, checkpointSource(backend, openCheckpoint(folder)));
      const out = `${folder}-engine`;
      const recipe = maker.packing === 'kept' ? 'plain' : 'nvfp4';
      buildEngine({ checkpoint: folder, out, recipe });
      const packed = openEngineFolder(out);
      const got = await logits(backend, folderSource(backend, packed));
      const figures = { direct: divergence(expected, direct), packed: divergence(expected, got) };
      expect(figures.direct).toBeLessThan(0.001);
      expect(figures.packed).toBeLessThan(maker.packing === 'kept' ? 0.001 : 0.03);
      const errors = [...packed.weights]
        .filter(([weight]) => /_proj\.weight$/.test(weight))
        .map(([, { error }]) => error);
      if (maker.packing === 'kept') expect(Math.max(...errors)).toBe(0);
      backend.close();
    },
    60_000,
  );
});
