/** Runs the same requests under several ways of speculating and says which answers differ. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { EngineOptions, GenerateRequest, SpeculationFigures } from '../../src/engine/index.ts';
import { openEngine } from '../../src/engine/index.ts';
import { defaultSampling } from '../../src/sampling/index.ts';
import { requestOf, run } from './engines.ts';

/** What these draft depends on the model alone; `auto` also goes by what steps cost on the machine. */
export const fixedModes = ['chain:3', 'tree:8x2x16', 'full:4x2x16'] as const;
export const draftModes = ['off', ...fixedModes, 'auto'] as const;

/** Makes `auto` take the machine for one where rows and draft steps cost next to nothing; returns what undoes it. */
export async function makeRowsFree(
  options: Partial<EngineOptions> & { folder: string },
): Promise<() => void> {
  await (await openEngine({ cacheBytes: 2 ** 27, ...options, speculation: 'auto' })).close();
  const path = join(options.folder, 'cost.json');
  const measured = readFileSync(path, 'utf8');
  const { stepMs, draftMs, fillMs, ...table } = JSON.parse(measured);
  const free = {
    ...table,
    stepMs: stepMs.map((line: number[]) => line.map((_, i) => 10 + 0.01 * i)),
    draftMs: draftMs.map(() => 0.01),
    fillMs: fillMs.map(() => 0),
  };
  writeFileSync(path, JSON.stringify(free));
  return () => writeFileSync(path, measured);
}

/** What keeps a model of random weights among few tokens, so that its text repeats and drafts have something to go by. */
export const fewTokens: ReadonlyMap<number, number> = new Map([5, 60, 111, 222].map((id) => [id, 30]));

/** Greedy and seeded in turn, with penalties here and there. */
export function requestsFor(
  prompts: readonly number[][],
  maxTokens: number,
  favoured: ReadonlyMap<number, number> = new Map(),
): GenerateRequest[] {
  return prompts.map((ids, i) => {
    const sampling =
      i % 2 === 0 ? defaultSampling : { ...defaultSampling, temperature: 0.8, topK: 40, topP: 0.95, seed: i };
    const penalties =
      i % 8 === 3
        ? { repetitionPenalty: 1.1, presencePenalty: 0.4, logitBias: new Map([[198, 1.5], ...favoured]) }
        : { logitBias: favoured };
    const boundaries = [Math.floor(ids.length / 2), ids.length - 2].filter(
      (at, j, all) => at > 0 && at > (all[j - 1] ?? 0),
    );
    return requestOf(ids, {
      maxTokens,
      boundaries,
      sampling: { ...sampling, ...penalties },
      topLogprobs: i % 5 === 0 ? 3 : null,
    });
  });
}

export interface ModeResult {
  readonly mode: string;
  /** Answers by request: cold and alone, warm and alone, warm among four. */
  readonly answers: readonly (readonly string[])[];
  readonly tokensPerStep: number;
  readonly speculation: SpeculationFigures;
}

export async function answersOf(
  mode: string,
  options: Partial<EngineOptions> & { folder: string },
  requests: readonly GenerateRequest[],
): Promise<ModeResult> {
  const engine = await openEngine({
    cacheBytes: 2 ** 28,
    contextTokens: 4096,
    ...options,
    speculation: mode,
  });
  const answer = async (request: GenerateRequest): Promise<string> => {
    const { ids, logprobs, end } = await run(engine, request);
    return JSON.stringify([ids, logprobs, end?.reason, end?.stopId]);
  };
  const cold: string[] = [];
  for (const request of requests) cold.push(await answer(request));
  const { generatedTokens, steps } = await engine.stats();
  const warm: string[] = [];
  for (const request of requests) warm.push(await answer(request));
  const together: string[] = [];
  for (let i = 0; i < requests.length; i += 4)
    together.push(...(await Promise.all(requests.slice(i, i + 4).map(answer))));
  const { speculation } = await engine.stats();
  await engine.close();
  return {
    mode,
    answers: requests.map((_, i) => [cold[i] ?? '', warm[i] ?? '', together[i] ?? '']),
    tokensPerStep: generatedTokens / steps,
    speculation,
  };
}

/** Indices of requests whose answers are not all the same, over all modes and conditions. */
export function differing(results: readonly ModeResult[]): number[] {
  const first = results[0]?.answers ?? [];
  return first.flatMap((reference, i) =>
    results.every(({ answers }) => answers[i]?.every((text) => text === reference[0])) ? [] : [i],
  );
}
