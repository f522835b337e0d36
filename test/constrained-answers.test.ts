/** Drafts, neighbours, the cache and the thread change no constrained answer, and every complete one has its form. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, describe, expect, it } from 'vitest';
import {
  type AnswerConstraint,
  type GenerateRequest,
  openEngine,
  openEngineWorker,
} from '../src/engine/index.ts';
import { defaultSampling } from '../src/sampling/index.ts';
import { loadTokenizer } from '../src/tokenizer/index.ts';
import { availableBackends } from './support/backends.ts';
import { answersOf, differing, draftModes, makeRowsFree, requestsFor } from './support/draft-modes.ts';
import { answerOf, packedFolders, requestOf, run, tinyCheckpoint } from './support/engines.ts';
import { promptsFor } from './support/prompts.ts';

const folders = packedFolders();
afterAll(() => folders.remove());
const native = availableBackends().some(({ name }) => name === 'native');
const tokenizer = loadTokenizer(tinyCheckpoint);
const stopId = tokenizer.tokenId('<|im_end|>') ?? -1;

const schema = {
  type: 'object',
  properties: {
    command: { enum: ['list the files', 'read a file', 'change a file'] },
    path: { type: 'string', pattern: '^[a-z]{1,12}(/[a-z]{1,12}){0,2}$' },
    lines: { type: 'array', items: { type: 'integer', minimum: 0, maximum: 400 }, minItems: 1, maxItems: 3 },
    force: { type: 'boolean' },
  },
  required: ['command', 'path', 'lines', 'force'],
  additionalProperties: false,
};
const isValid = new Ajv2020().compile(schema);

const json: AnswerConstraint['forms'][number] = { kind: 'json', schema: JSON.stringify(schema) };
const calls: AnswerConstraint['forms'][number] = {
  kind: 'calls',
  tools: [{ name: 'edit', parameters: JSON.stringify(schema), strict: true }],
  required: true,
  parallel: false,
};
const lead = [...tokenizer.encode('\n\n', { special: 'plain' })];
const constraints: readonly (AnswerConstraint | null)[] = [
  { forms: [json], behindThinking: null },
  null,
  { forms: [calls], behindThinking: null },
  { forms: [{ kind: 'regex', pattern: '[a-z]{2,9}( [a-z]{2,9}){1,4}\\.' }], behindThinking: null },
  { forms: [{ kind: 'choice', options: ['all of them', 'all but one', 'none'] }], behindThinking: null },
  { forms: [json], behindThinking: { lead } },
  { forms: [calls, json], behindThinking: null },
];

/** Constrained and free ones in turn, greedy and sampled. */
function mixed(prompts: readonly number[][], maxTokens: number): GenerateRequest[] {
  return requestsFor(prompts, maxTokens).map((request, i) => {
    const constraint = constraints[i % constraints.length] ?? null;
    return constraint === null ? request : { ...request, constraint, stopIds: [stopId] };
  });
}

const options = () => ({ folder: folders.of(tinyCheckpoint), contextTokens: 2048 });

describe.skipIf(!native)('a constrained answer', () => {
  it('is the same however it is drafted, cold and warm, alone and beside free ones', async () => {
    const requests = mixed(promptsFor(tokenizer, 16), 60);
    const results = [];
    for (const mode of draftModes) results.push(await answersOf(mode, options(), requests));
    expect(differing(results)).toEqual([]);
    for (const { mode, speculation } of results)
      if (mode !== 'off' && mode !== 'auto')
        expect(speculation.bySource.grammar?.accepted, mode).toBeGreaterThan(20);
  });

  it('is the same when all sources make one tree, in which forced text is right', async () => {
    const requests = mixed(promptsFor(tokenizer, 14), 80);
    const plain = await answersOf('off', options(), requests);
    const restore = await makeRowsFree(options());
    const merged = await answersOf('auto', options(), requests);
    restore();
    expect(differing([plain, merged])).toEqual([]);
    const { grammar, mtp } = merged.speculation.bySource;
    expect(mtp?.accepted).toBeGreaterThan(0);
    expect(grammar?.accepted).toBeGreaterThan(20);
    expect(merged.tokensPerStep).toBeGreaterThan(1.5 * plain.tokensPerStep);
  });

  it('is the same in a worker thread', async () => {
    const requests = mixed(promptsFor(tokenizer, 7), 60);
    const [inside, worker] = [await openEngine(options()), await openEngineWorker(options())];
    for (const request of requests)
      expect(answerOf(await run(worker, request))).toEqual(answerOf(await run(inside, request)));
    await Promise.all([inside.close(), worker.close()]);
  });

  it('has its form when it is complete, whatever is sampled', async () => {
    const engine = await openEngine(options());
    const prompts = promptsFor(tokenizer, 10);
    const ask = (constraint: AnswerConstraint, seed: number) =>
      run(engine, {
        ...requestOf(prompts[seed % prompts.length] ?? [], { maxTokens: 400, topLogprobs: null }),
        sampling: { ...defaultSampling, temperature: 2, seed },
        stopIds: [stopId],
        constraint,
      });
    let complete = 0;
    for (let seed = 0; seed < 20; seed++) {
      const { ids, end } = await ask({ forms: [json], behindThinking: null }, seed);
      const text = tokenizer.decode(ids);
      if (end?.reason === 'stop') {
        complete++;
        expect(isValid(JSON.parse(text)), text).toBe(true);
      }
    }
    expect(complete).toBeGreaterThan(15);
    const chosen = await ask(
      { forms: [{ kind: 'choice', options: ['yes', 'no'] }], behindThinking: null },
      1,
    );
    expect(['yes', 'no']).toContain(tokenizer.decode(chosen.ids));
    await engine.close();
  });
});

describe.skipIf(!native)('a constraint', () => {
  it('that can not be compiled fails its request and no other, in a thread too', async () => {
    const bad: AnswerConstraint = {
      forms: [{ kind: 'json', schema: '{"type": "object", "minItems": "x"}' }],
      behindThinking: null,
    };
    const good: AnswerConstraint = { forms: [{ kind: 'choice', options: ['ok'] }], behindThinking: null };
    for (const open of [openEngine, openEngineWorker]) {
      const engine = await open(options());
      const request = (constraint: AnswerConstraint) =>
        run(engine, requestOf([1, 2, 3], { constraint, stopIds: [stopId] }));
      const [failed, passed] = await Promise.allSettled([request(bad), request(good)]);
      expect(failed).toMatchObject({ status: 'rejected', reason: { code: 'invalid_request' } });
      expect(passed.status === 'fulfilled' && tokenizer.decode(passed.value.ids)).toBe('ok');
      await engine.close();
    }
  });

  it('ends thinking before the form begins, and is cut by the limit like any answer', async () => {
    const engine = await openEngine(options());
    const close = tokenizer.tokenId('</think>') ?? -1;
    const constraint: AnswerConstraint = {
      forms: [{ kind: 'choice', options: ['done'] }],
      behindThinking: { lead },
    };
    const ask = (maxTokens: number, bias: [number, number][]) =>
      run(engine, {
        ...requestOf(tokenizer.encode('think of it', { special: 'plain' }), { constraint, maxTokens }),
        sampling: { ...defaultSampling, logitBias: new Map(bias) },
        stopIds: [stopId],
      });
    // The model wants to end at once; the form does not let it.
    const cut = await ask(9, [
      [stopId, 100],
      [close, -100],
    ]);
    expect([cut.end?.reason, cut.ids.length]).toEqual(['length', 9]);
    expect(cut.ids).not.toContain(close);
    const whole = await ask(40, [[close, 100]]);
    expect(tokenizer.decode(whole.ids)).toBe('</think>\n\ndone');
    expect(whole.end?.reason).toBe('stop');
    // Log-probabilities tell what the model thinks, also of what was ruled out.
    expect(whole.logprobs).toHaveLength(whole.ids.length);
    await engine.close();
  });
});
