/**
 * The forward against transformers' logits and an independent MTP, in fp32 on bf16 weights. `native` runs every case; `reference`
 * runs both hybrids and the three shortest of the eleven copse-tiny cases, because plain TypeScript takes seconds for each.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { availableBackends } from '../../test/support/backends.ts';
import type { Backend, Buffer } from '../backends/index.ts';
import { openCheckpoint } from '../checkpoint/index.ts';
import { present } from '../util/index.ts';
import { checkpointSource, loadModel, type Model, type Pools } from './index.ts';

const fromRoot = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const readGolden = (path: string) => JSON.parse(readFileSync(fromRoot(`test/golden/${path}`), 'utf8'));

/** Longest prompt per back-end. */
const promptLimit = { reference: 320, native: Number.POSITIVE_INFINITY };

/** Rows of a prompt per forward: slices that end inside chunks and pages. */
const slice = 250;

interface TinyCase {
  readonly ids: number[];
  readonly argmax: number[];
  readonly last_logits: number[];
  readonly greedy: number[];
  readonly mtp_drafts: number[];
  readonly mtp_top4: [number, number][][];
}

/** One sequence in slot 0. */
class Chain {
  readonly #backend: Backend;
  readonly #model: Model;
  readonly #pools: Pools;
  readonly #pages: Int32Array;
  readonly #lastHidden: Buffer;
  tokens = 0;
  mtpTokens = 0;

  constructor(backend: Backend, model: Model, maxTokens: number) {
    const pageTokens = 16;
    this.#lastHidden = backend.alloc(model.hiddenSize);
    const pages = Math.ceil(maxTokens / pageTokens);
    this.#backend = backend;
    this.#model = model;
    this.#pages = Int32Array.from({ length: pages }, (_, i) => pages - 1 - i);
    this.#pools = {
      kv: backend.createKvPool({ ...model.kvShape, dtype: 'f32', pageTokens, pages, slots: 1, maxNodes: 8 }),
      state: backend.createStatePool({ ...model.stateShape, slots: 1, maxNodes: 8, snapshots: 0 }),
    };
    backend.resetState(this.#pools.state, 0);
  }

  #batch(ids: readonly number[], ctxLen: number) {
    return {
      rows: ids.length,
      ids: Int32Array.from(ids),
      positions: Int32Array.from(ids, (_, i) => ctxLen + i),
      segments: [
        {
          slot: 0,
          firstRow: 0,
          ctxLen,
          chainLen: ids.length,
          pages: this.#pages,
          nodeParents: new Int32Array(0),
          nodeStart: 0,
        },
      ],
    };
  }

  async #values(buffer: Buffer, rows: number): Promise<Float32Array[]> {
    const all = new Float32Array(rows * this.#model.vocabSize);
    await this.#backend.read(buffer, 0, all);
    const width = this.#model.vocabSize;
    return Array.from({ length: rows }, (_, row) => all.subarray(row * width, (row + 1) * width));
  }

  /** Logits of the rows named; `hidden` stays with the model. */
  async extend(ids: readonly number[], logitRows: 'all' | 'last') {
    const wanted = logitRows === 'all' ? ids.map((_, i) => i) : [ids.length - 1];
    const batch = this.#batch(ids, this.tokens);
    const { logits, hidden } = this.#model.forward(batch, Int32Array.from(wanted), this.#pools);
    this.tokens += ids.length;
    return { logits: await this.#values(logits, wanted.length), hidden };
  }

  /** ids[i] is the token behind the position whose hidden row is hidden[i]; logits and output of the last row. */
  async extendMtp(ids: readonly number[], hidden: Buffer) {
    const batch = this.#batch(ids, this.mtpTokens);
    const input = { hidden, logitRows: Int32Array.of(ids.length - 1) };
    const result = this.#model.forwardMtp(batch, input, this.#pools);
    this.mtpTokens += ids.length;
    const [last] = await this.#values(result.logits, 1);
    this.#backend.gatherRows(
      this.#lastHidden,
      result.hidden,
      Int32Array.of(ids.length - 1),
      this.#model.hiddenSize,
    );
    return { logits: last as Float32Array, hidden: this.#lastHidden };
  }
}

const argmax = (row: Float32Array): number =>
  row.reduce((best, value, i) => (value > (row[best] as number) ? i : best), 0);

/** How far the best value is ahead of the second. */
function lead(row: Float32Array): number {
  const [first, second] = [...row].sort((a, b) => b - a) as [number, number];
  return first - second;
}

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let max = 0;
  for (let i = 0; i < b.length; i++) max = Math.max(max, Math.abs((a[i] as number) - (b[i] as number)));
  return max;
}

function expectArgmax(rows: readonly Float32Array[], golden: readonly number[]): void {
  expect(rows).toHaveLength(golden.length);
  const wrong = rows.flatMap((row, i) => (lead(row) > 1e-2 && argmax(row) !== golden[i] ? [i] : []));
  expect(wrong).toEqual([]);
}

describe.each(availableBackends())('goldens on $name', ({ name, open }) => {
  const backend = open();
  afterAll(() => backend.close());

  it.each(['hybrid-rep3-untied', 'hybrid-rep1-tied-vl'])(
    '%s gives the logits of all rows',
    async (folder) => {
      const golden = readGolden(`${folder}/golden.json`);
      const source = checkpointSource(backend, openCheckpoint(fromRoot(`test/golden/${folder}`)));
      const model = loadModel(backend, source, { maxRows: golden.ids.length });
      const { logits } = await new Chain(backend, model, 256).extend(golden.ids, 'all');
      expectArgmax(logits, golden.argmax);
      for (const [row, values] of Object.entries(golden.logits_rows as Record<string, number[]>))
        expect(largestDifference(logits[Number(row)] as Float32Array, values)).toBeLessThan(2e-3);
      expect(model.hasMtp).toBe(false);
      model.close();
    },
  );

  const tiny = readGolden('copse-tiny.json');
  const source = checkpointSource(backend, openCheckpoint(fromRoot('models/copse-tiny')));
  const model = loadModel(backend, source, { maxRows: slice });
  const cases = (tiny.cases as TinyCase[])
    .map((golden, index) => ({ index, golden }))
    .filter(({ golden }) => golden.ids.length <= promptLimit[name]);

  it.each(cases)('copse-tiny case $index gives logits, answer and drafts', async ({ golden }) => {
    const chain = new Chain(backend, model, 2048);
    const rows: Float32Array[] = [];
    let step = await chain.extend(golden.ids.slice(0, slice), 'all');
    const drafts = new Drafts(chain, golden);
    for (let from = slice; ; from += slice) {
      rows.push(...step.logits);
      await drafts.fill(from, step.hidden);
      if (from >= golden.ids.length) break;
      step = await chain.extend(golden.ids.slice(from, from + slice), 'all');
    }
    const last = rows.at(-1) as Float32Array;
    expectArgmax(rows, golden.argmax);
    expect(largestDifference(last, golden.last_logits)).toBeLessThan(2e-3);
    await drafts.expectGolden();
    const answer = [argmax(last)];
    while (answer.length < golden.greedy.length) {
      const { logits } = await chain.extend(answer.slice(-1), 'last');
      answer.push(argmax(logits[0] as Float32Array));
    }
    expect(answer).toEqual(golden.greedy);
  });
});

/** Six drafts in a chain: the layer's own output is the hidden row of the next pass (qwen35-model 4.3). */
class Drafts {
  readonly #chain: Chain;
  readonly #golden: TinyCase;
  #step: { logits: Float32Array; hidden: Buffer } | null = null;

  constructor(chain: Chain, golden: TinyCase) {
    this.#chain = chain;
    this.#golden = golden;
  }

  /** The slots of a prompt slice that ends at `end`; the last one takes the first token of the answer. */
  async fill(end: number, hidden: Buffer): Promise<void> {
    const { ids, greedy } = this.#golden;
    const known = [...ids, greedy[0] as number];
    this.#step = await this.#chain.extendMtp(known.slice(this.#chain.mtpTokens + 1, end + 1), hidden);
  }

  async expectGolden(): Promise<void> {
    const drafts: number[] = [];
    for (const top of this.#golden.mtp_top4) {
      const { logits, hidden } = present(this.#step, 'the output of the last slot');
      for (const [id, logit] of top) expect(Math.abs((logits[id] as number) - logit)).toBeLessThan(2e-3);
      const best = argmax(logits);
      expect(best).toBe(top[0]?.[0]);
      drafts.push(best);
      this.#step = await this.#chain.extendMtp([best], hidden);
    }
    expect(drafts).toEqual(this.#golden.mtp_drafts);
  }
}
