/** An answer depends on its prompt alone: not on the cache, the neighbours, the slicing, the thread or what was evicted. */
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Engine, type EngineOptions, openEngine, openEngineWorker } from '../src/engine/index.ts';
import { defaultSampling } from '../src/sampling/index.ts';
import { availableBackends } from './support/backends.ts';
import {
  answerOf,
  collect,
  hybridCheckpoints,
  type Outcome,
  packedFolders,
  requestOf,
  run,
  tinyCheckpoint,
} from './support/engines.ts';

const golden = JSON.parse(readFileSync(new URL('golden/copse-tiny.json', import.meta.url), 'utf8'));
const folders = packedFolders();
afterAll(() => folders.remove());

const seeded = { ...defaultSampling, temperature: 1, seed: 7 };
const random = (length: number, salt: number, vocab: number): number[] =>
  Array.from({ length }, (_, i) => (Math.imul(i + 1, 2654435761 + salt * 40503) >>> 7) % vocab);

interface Case {
  readonly name: string;
  readonly backend: 'native' | 'reference';
  readonly checkpoint: string;
  readonly prompts: readonly number[][];
}

const native = availableBackends().some(({ name }) => name === 'native');
const tinyPrompts: number[][] = [9, 10, 7, 2].map((i) => golden.cases[i].ids);
const hybridPrompts = (vocab: number): number[][] => [
  random(70, 1, vocab),
  random(41, 2, vocab),
  random(96, 3, vocab),
  random(33, 4, vocab),
];
const cases: Case[] = [
  ...(native
    ? [
        {
          name: 'copse-tiny, native',
          backend: 'native' as const,
          checkpoint: tinyCheckpoint,
          prompts: tinyPrompts,
        },
      ]
    : []),
  ...hybridCheckpoints.map((checkpoint, i) => ({
    name: `hybrid ${i}, reference`,
    backend: 'reference' as const,
    checkpoint,
    prompts: hybridPrompts(320),
  })),
];

describe.each(cases)('$name', ({ backend, checkpoint, prompts }) => {
  const options = (more: Partial<EngineOptions> = {}) => ({
    folder: folders.of(checkpoint),
    backend,
    cacheBytes: 2 ** 27,
    contextTokens: 2048,
    ...more,
  });
  const requests = (i: number) => {
    const ids = prompts[i] ?? [];
    const boundaries = [Math.floor(ids.length / 3), Math.floor(ids.length / 2), ids.length - 3].filter(
      (at) => at > 0,
    );
    return [requestOf(ids, { boundaries }), requestOf(ids, { boundaries, sampling: seeded })];
  };
  let alone: Outcome[][] = [];

  async function withEngine(
    more: Partial<EngineOptions>,
    use: (engine: Engine) => Promise<void>,
  ): Promise<void> {
    const engine = await openEngine(options(more));
    try {
      await use(engine);
    } finally {
      await engine.close();
    }
  }

  const expectSame = (outcome: Outcome, i: number, j: number): void =>
    expect(answerOf(outcome)).toEqual(answerOf(alone[i]?.[j] as Outcome));

  /** Every prompt in an engine of its own: cold, alone, prefilled whole. */
  beforeAll(async () => {
    alone = [];
    for (const i of prompts.keys()) {
      const outcomes: Outcome[] = [];
      for (const request of requests(i))
        await withEngine(
          { prefillTokens: 2048 },
          async (engine) => void outcomes.push(await run(engine, request)),
        );
      alone.push(outcomes);
    }
  });

  it('answers alike from a warm cache', async () => {
    await withEngine({}, async (engine) => {
      for (const i of prompts.keys()) {
        for (const [j, request] of requests(i).entries()) {
          await run(engine, request);
          const warm = await run(engine, request);
          expect(warm.start?.cachedTokens).toBeGreaterThan(0);
          expectSame(warm, i, j);
        }
      }
    });
  });

  it('answers alike among four sequences', async () => {
    await withEngine({ maxSequences: 4 }, async (engine) => {
      const all = prompts.map((_, i) => i % 2);
      const outcomes = await Promise.all(all.map((j, i) => run(engine, requests(i)[j] ?? requestOf([]))));
      outcomes.forEach((outcome, i) => {
        expectSame(outcome, i, i % 2);
      });
    });
  });

  it('answers alike when prefill is sliced', async () => {
    for (const prefillTokens of [1, 7, 32]) {
      await withEngine({ prefillTokens, maxSequences: 2 }, async (engine) => {
        const outcomes = await Promise.all(
          prompts.slice(0, 2).map((_, i) => run(engine, requests(i)[0] ?? requestOf([]))),
        );
        outcomes.forEach((outcome, i) => {
          expectSame(outcome, i, 0);
        });
      });
    }
  });

  it('answers alike in a worker thread', async () => {
    const engine = await openEngineWorker(options());
    const outcomes = await Promise.all(prompts.map((_, i) => run(engine, requests(i)[1] ?? requestOf([]))));
    outcomes.forEach((outcome, i) => {
      expectSame(outcome, i, 1);
    });
    await engine.close();
  });

  it('answers alike after a neighbour was cancelled in prefill', async () => {
    await withEngine({ prefillTokens: 8 }, async (engine) => {
      const abort = new AbortController();
      const [request] = requests(0);
      const long = requestOf(random(1500, 9, 300), { boundaries: [100, 700] });
      const neighbour = collect(engine.generate(long, abort.signal));
      const own = run(engine, request ?? requestOf([]));
      setTimeout(() => abort.abort(), 5);
      expect((await neighbour).end?.reason).toBe('cancelled');
      expectSame(await own, 0, 0);
      expectSame(await run(engine, request ?? requestOf([])), 0, 0);
    });
  });

  it('answers alike before and after much of the tree was evicted', async () => {
    const probe = await openEngine(options());
    await run(probe, requests(0)[0] ?? requestOf([]));
    const { cache } = await probe.stats();
    await probe.close();
    await withEngine(
      { cacheBytes: Math.max(3 * cache.usedBytes, 2 ** 20 * 3), contextTokens: 256, maxSequences: 2 },
      async (engine) => {
        for (let round = 0; round < 3; round++) {
          for (const [i, ids] of prompts.entries()) {
            if (ids.length + 24 < 256) expectSame(await run(engine, requests(i)[0] ?? requestOf([])), i, 0);
            for (let salt = 0; salt < 2; salt++)
              await run(
                engine,
                requestOf(random(120, 100 * round + 10 * i + salt, 300), {
                  maxTokens: 2,
                  boundaries: [60, 110],
                }),
              );
          }
        }
        expect((await engine.stats()).cache.evictedSnapshots).toBeGreaterThan(0);
      },
    );
  });
});

describe('reuse', () => {
  const checkpoint = hybridCheckpoints[0] ?? '';
  const history = random(200, 5, 300);
  const boundaries = [40, 110, 180];

  async function reuseOf(second: number[], secondBoundaries: number[]) {
    const engine = await openEngine({
      folder: folders.of(checkpoint),
      backend: native ? 'native' : 'reference',
      cacheBytes: 2 ** 27,
      contextTokens: 1024,
    });
    await run(engine, requestOf([...history, 1, 2, 3], { boundaries: [...boundaries, 200], maxTokens: 2 }));
    const request = requestOf(second, { boundaries: secondBoundaries, maxTokens: 8 });
    const warm = await run(engine, request);
    await engine.close();
    const cold = await openEngine({
      folder: folders.of(checkpoint),
      backend: native ? 'native' : 'reference',
      cacheBytes: 2 ** 27,
      contextTokens: 1024,
    });
    expect(answerOf(warm)).toEqual(answerOf(await run(cold, request)));
    await cold.close();
    return warm.start;
  }

  it('reaches the message before an edited last message', async () => {
    const edited = [...history.slice(0, 185), 7, 7, 7, 7];
    expect(await reuseOf(edited, [...boundaries, 187])).toMatchObject({
      cachedTokens: 180,
      matchedTokens: 185,
      reuseLimit: 'no-snapshot',
    });
  });

  it('reaches the deepest message boundary of a branch in the middle of history', async () => {
    const branch = [...history.slice(0, 130), ...random(60, 8, 300)];
    expect(await reuseOf(branch, [40, 110, 150])).toMatchObject({ cachedTokens: 110, matchedTokens: 130 });
  });

  it('is nothing when the system prompt differs', async () => {
    const other = [...random(40, 77, 300), ...history.slice(40)];
    expect(await reuseOf(other, boundaries)).toMatchObject({ cachedTokens: 0 });
  });

  it('is everything but the generation prompt when a conversation goes on', async () => {
    expect(await reuseOf([...history, ...random(30, 3, 300)], [...boundaries, 200, 220])).toMatchObject({
      cachedTokens: 200,
    });
  });
});
