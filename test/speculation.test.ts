/** Guesses never change an answer: all ways of drafting, cold and warm, alone and among four, greedy and sampled. */
import { afterAll, describe, expect, it } from 'vitest';
import { type GenerationStats, openEngine } from '../src/engine/index.ts';
import { loadTokenizer } from '../src/tokenizer/index.ts';
import { availableBackends } from './support/backends.ts';
import {
  answersOf,
  differing,
  draftModes,
  fewTokens,
  fixedModes,
  makeRowsFree,
  requestsFor,
} from './support/draft-modes.ts';
import { hybridCheckpoints, packedFolders, requestOf, run, tinyCheckpoint } from './support/engines.ts';
import { promptsFor, randomIds } from './support/prompts.ts';

const folders = packedFolders();
afterAll(() => folders.remove());
const native = availableBackends().some(({ name }) => name === 'native');

describe('speculation', () => {
  it.skipIf(!native)('changes no answer of copse-tiny', async () => {
    const prompts = promptsFor(loadTokenizer(tinyCheckpoint), 16);
    const requests = requestsFor(prompts, 20);
    const results = [];
    for (const mode of draftModes)
      results.push(await answersOf(mode, { folder: folders.of(tinyCheckpoint) }, requests));
    expect(differing(results)).toEqual([]);
    const perStep = Object.fromEntries(results.map(({ mode, tokensPerStep }) => [mode, tokensPerStep]));
    for (const mode of fixedModes) expect(perStep[mode]).toBeGreaterThan(perStep.off ?? 0);
  });

  it.each(hybridCheckpoints)('changes no answer of a hybrid without MTP weights', async (checkpoint) => {
    const backend = native ? 'native' : 'reference';
    const loops = [0, 1, 2, 3].map((i) => [
      ...randomIds(12, i, 300),
      ...randomIds(12, i, 300),
      ...randomIds(9, i, 300),
    ]);
    const prompts = [...loops, randomIds(40, 9, 300), randomIds(70, 10, 300)];
    const requests = requestsFor(prompts, 40, fewTokens);
    const results = [];
    for (const mode of draftModes)
      results.push(
        await answersOf(
          mode,
          { folder: folders.of(checkpoint), backend, contextTokens: 1024, draftHistory: 2048 },
          requests,
        ),
      );
    expect(differing(results)).toEqual([]);
    for (const { mode, speculation } of results)
      if (mode !== 'off' && mode !== 'auto')
        expect(speculation.bySource.suffix?.accepted, mode).toBeGreaterThan(5);
  });

  it.skipIf(!native)('drafts as well behind a restored snapshot as cold', async () => {
    const prompts = promptsFor(loadTokenizer(tinyCheckpoint), 8).slice(0, 4);
    const acceptance = async (warm: boolean): Promise<number> => {
      const engine = await openEngine({
        folder: folders.of(tinyCheckpoint),
        cacheBytes: 2 ** 28,
        contextTokens: 4096,
        speculation: 'chain:3',
      });
      let [drafted, accepted] = [0, 0];
      for (const ids of prompts) {
        const request = requestOf(ids, { boundaries: [ids.length - 7], maxTokens: 60, topLogprobs: null });
        if (warm) await run(engine, { ...request, maxTokens: 1 });
        const { end, start } = await run(engine, request);
        expect(start?.cachedTokens).toBe(warm ? ids.length - 7 : 0);
        drafted += end?.stats.draftedTokens ?? 0;
        accepted += end?.stats.acceptedTokens ?? 0;
      }
      await engine.close();
      return accepted / drafted;
    };
    const [cold, warm] = [await acceptance(false), await acceptance(true)];
    expect(Math.abs(cold - warm)).toBeLessThan(0.02);
  });

  it.skipIf(!native)('changes no answer when all sources make one tree', async () => {
    const requests = requestsFor(promptsFor(loadTokenizer(tinyCheckpoint), 8), 40);
    const options = { folder: folders.of(tinyCheckpoint), contextTokens: 2048, draftHistory: 4096 };
    const plain = await answersOf('off', options, requests);
    const restore = await makeRowsFree(options);
    const merged = await answersOf('auto', options, requests);
    restore();
    expect(differing([plain, merged])).toEqual([]);
    const { bySource } = merged.speculation;
    for (const source of ['mtp', 'suffix', 'history', 'both'])
      expect(bySource[source]?.drafted, source).toBeGreaterThan(0);
    expect(merged.tokensPerStep).toBeGreaterThan(1.5 * plain.tokensPerStep);
  });

  it.skipIf(!native)('drafts what the same tenant was answered before, and no other', async () => {
    const prompt = promptsFor(loadTokenizer(tinyCheckpoint), 4)[0] ?? [];
    const options = { folder: folders.of(tinyCheckpoint), contextTokens: 2048, draftHistory: 2048 };
    const restore = await makeRowsFree(options);
    const engine = await openEngine({ ...options, cacheBytes: 2 ** 27 });
    restore();
    const fromHistory = async (tenant: string): Promise<number> => {
      const { end } = await run(engine, requestOf(prompt, { maxTokens: 60, topLogprobs: null, tenant }));
      return end?.stats.speculation.bySource.history?.drafted ?? 0;
    };
    const [first, other, again] = [await fromHistory('a'), await fromHistory('b'), await fromHistory('a')];
    await engine.close();
    expect([first, other]).toEqual([0, 0]);
    expect(again).toBeGreaterThan(0);
  });

  it.skipIf(!native)('reports drafted and accepted tokens by source and depth', async () => {
    const engine = await openEngine({
      folder: folders.of(tinyCheckpoint),
      cacheBytes: 2 ** 27,
      contextTokens: 2048,
      speculation: 'tree:4x2x8',
    });
    const prompts = promptsFor(loadTokenizer(tinyCheckpoint), 4).slice(0, 2);
    const ends: (GenerationStats | undefined)[] = [];
    for (const ids of prompts) ends.push((await run(engine, requestOf(ids, { maxTokens: 40 }))).end?.stats);
    const { speculation, draftedTokens, acceptedTokens } = await engine.stats();
    const sum = (of: (stats: GenerationStats) => number): number =>
      ends.reduce((all, stats) => all + (stats === undefined ? 0 : of(stats)), 0);
    expect(sum((stats) => stats.speculation.bySource.mtp?.accepted ?? 0)).toBe(acceptedTokens);
    expect(sum((stats) => stats.speculation.drafts)).toBe(speculation.drafts);
    expect(sum((stats) => stats.steps)).toBe(sum((stats) => stats.generatedTokens - stats.acceptedTokens));
    const { mtp } = speculation.bySource;
    expect([mtp?.drafted, mtp?.accepted]).toEqual([draftedTokens, acceptedTokens]);
    expect(speculation.byDepth.reduce((sum, { drafted }) => sum + drafted, 0)).toBe(draftedTokens);
    expect(speculation.byDepth.length).toBeLessThanOrEqual(4);
    await engine.close();
  });

  it.each([
    ['tree:8x2x0', /0 nodes, at least 2/],
    ['tree:8x2x10000', /10000 nodes, expected 1 to 65/],
    ['chain:0', /0 steps, expected 1 to 31/],
    ['tree:40x2x16', /40 steps, expected 1 to 31/],
    ['tree:2x9000x16', /9000 top-k, expected 1 to 64/],
    ['sometimes', /is not a mode/],
  ])('refuses %s', async (speculation, message) => {
    await expect(
      openEngine({ folder: folders.of(hybridCheckpoints[0] ?? ''), backend: 'reference', speculation }),
    ).rejects.toThrow(message);
  });
});
