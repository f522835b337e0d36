/** The forward pass against transformers and an independent MTP implementation, on every back-end, in fp32. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { openCheckpoint } from '../src/checkpoint/index.ts';
import { checkpointSource, loadQwen35 } from '../src/models/index.ts';
import { availableBackends } from './support/backends.ts';
import { argmax, chainBatch, logitsOf, openPools, pageRange } from './support/forward.ts';

const path = (relative: string): string => new URL(relative, import.meta.url).pathname;
const json = (relative: string) => JSON.parse(readFileSync(path(relative), 'utf8'));

function load(name: string, folder: string, maxRows: number) {
  const backend = availableBackends[name]?.() ?? expect.fail(`no back-end ${name}`);
  const model = loadQwen35(backend, checkpointSource(backend, openCheckpoint(path(folder))), {
    maxRows,
    maxLogitRows: maxRows,
  });
  return { backend, model };
}

describe.each(Object.keys(availableBackends))('golden logits on %s', (name) => {
  it.each(['hybrid-rep1-tied-vl', 'hybrid-rep3-untied'])('equal transformers on %s', async (folder) => {
    const golden = json(`golden/${folder}/golden.json`);
    const { backend, model } = load(name, `golden/${folder}`, 150);
    const chain = { slot: 0, ctxLen: 0, ids: golden.ids as number[], pages: pageRange(0, 150) };
    const rows = await logitsOf(
      backend,
      model,
      openPools(backend, model),
      chain,
      golden.ids.map((_: number, i: number) => i),
    );
    for (const [row, expected] of Object.entries(golden.logits_rows as Record<string, number[]>)) {
      const worst = Math.max(...expected.map((value, i) => Math.abs(value - (rows[Number(row)]?.[i] ?? 0))));
      expect(worst).toBeLessThan(2e-3);
    }
    rows.forEach((row, i) => {
      const [first, second] = [...row].sort((a, b) => b - a) as [number, number];
      if (first - second > 1e-2) expect(argmax(row)).toBe(golden.argmax[i]);
    });
    backend.close();
  });

  const tiny = json('golden/copse-tiny.json');
  // The plain TypeScript back-end takes seconds per prompt: two short cases stand for all there.
  const cases = name === 'reference' ? [9, 10] : tiny.cases.map((_: unknown, i: number) => i);

  it.each(cases)(
    'equal transformers on copse-tiny, case %i, and continue greedily and in drafts as it does',
    async (index) => {
      const golden = tiny.cases[index as number];
      const ids: number[] = golden.ids;
      const { backend, model } = load(name, '../models/copse-tiny', ids.length);
      const pools = openPools(backend, model);
      const pages = pageRange(0, ids.length + 256);
      const all = ids.map((_, i) => i);
      const { hidden, logits } = model.forward(
        chainBatch({ slot: 0, ctxLen: 0, ids, pages }),
        Int32Array.from(all),
        pools,
      );
      const values = new Float32Array(ids.length * model.vocabSize);
      await backend.read(logits, 0, values);
      const row = (i: number) => values.subarray(i * model.vocabSize, (i + 1) * model.vocabSize);
      const worst = Math.max(
        ...golden.last_logits.map((v: number, i: number) => Math.abs(v - (row(ids.length - 1)[i] ?? 0))),
      );
      expect(worst).toBeLessThan(2e-3);
      const wrong = all.filter((i) => argmax(row(i)) !== golden.argmax[i] && clear(row(i)));
      expect(wrong).toEqual([]);

      const mtpIds = [...ids.slice(1), golden.greedy[0]];
      const mtpBatch = chainBatch({ slot: 0, ctxLen: 0, ids: mtpIds, pages });
      let { logits: draftLogits, hidden: output } = model.forwardMtp(
        mtpBatch,
        { hidden, logitRows: Int32Array.of(ids.length - 1) },
        pools,
      );
      let from = ids.length - 1;
      const input = backend.alloc(model.hiddenSize);
      const parents: number[] = [];
      const drafts: number[] = [];
      while (true) {
        const draft = new Float32Array(model.vocabSize);
        await backend.read(draftLogits, 0, draft);
        const id = argmax(draft);
        const top = [...draft.keys()].sort((a, b) => (draft[b] ?? 0) - (draft[a] ?? 0)).slice(0, 4);
        golden.mtp_top4[drafts.length].forEach(([token, logit]: [number, number], i: number) => {
          expect(Math.abs((draft[token] ?? 0) - logit)).toBeLessThan(5e-3);
          expect(draft[top[i] ?? 0]).toBeCloseTo(draft[token] ?? 0, 2);
        });
        drafts.push(id);
        if (drafts.length === golden.mtp_drafts.length) break;
        backend.gatherRows(input, output, Int32Array.of(from), model.hiddenSize);
        const node = parents.length;
        parents.push(node - 1);
        const segment = {
          slot: 0,
          firstRow: 0,
          ctxLen: ids.length,
          chainLen: 0,
          pages,
          nodeParents: Int32Array.from(parents),
          nodeStart: node,
        };
        const batch = {
          rows: 1,
          ids: Int32Array.of(id),
          positions: Int32Array.of(ids.length + node),
          segments: [segment],
        };
        ({ logits: draftLogits, hidden: output } = model.forwardMtp(
          batch,
          { hidden: input, logitRows: Int32Array.of(0) },
          pools,
        ));
        from = 0;
      }
      expect(drafts).toEqual(golden.mtp_drafts);

      const greedy: number[] = [argmax(row(ids.length - 1))];
      while (greedy.length < golden.greedy.length) {
        const chain = { slot: 0, ctxLen: ids.length + greedy.length - 1, ids: greedy.slice(-1), pages };
        const [next] = await logitsOf(backend, model, pools, chain, [0]);
        greedy.push(argmax(next ?? []));
      }
      expect(greedy).toEqual(golden.greedy);
      backend.close();
    },
  );
});

function clear(row: Float32Array): boolean {
  const [first, second] = [...row].sort((a, b) => b - a) as [number, number];
  return first - second > 1e-2;
}
