/**
 * An engine that plays back scripted texts: what the layers above it are tested with. It keeps the contract of the seam:
 * admission first come first served, stop ids, maxTokens, cancellation while waiting, in prefill and between tokens.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { loadTemplate } from '../../src/chat/index.ts';
import { Completion, stopIdsOf } from '../../src/completion/index.ts';
import type {
  Engine,
  EngineInfo,
  EngineStats,
  GenerateRequest,
  GenerationEvent,
} from '../../src/engine/index.ts';
import { loadTokenizer } from '../../src/tokenizer/index.ts';
import { UserError } from '../../src/util/index.ts';

const modelFolder = new URL('../../models/copse-tiny', import.meta.url).pathname;
export const tokenizer = loadTokenizer(modelFolder);

export interface StubAnswer {
  /** What the model writes; control tokens in it count. The answer ends by itself behind it. */
  readonly text: string;
  readonly prefillMs?: number;
  /** Between events. */
  readonly gapMs?: number;
  readonly tokensPerEvent?: number;
  /** Throws after this many tokens; -1 = before the first event. */
  readonly failAfter?: number;
  /** The end tells of one draft. */
  readonly drafts?: boolean;
}

/** Chooses the answer from the prompt's text and its place among all requests. */
export type StubScript = (prompt: string, index: number) => StubAnswer;

export interface StubOptions {
  readonly contextTokens?: number;
  readonly maxSequences?: number;
  readonly maxWaiting?: number;
}

const draft = { drafted: 3, accepted: 1 };
const oneDraft = {
  drafts: 1,
  bySource: { suffix: draft },
  byDepth: [draft],
  predictedMs: 2,
  measuredMs: 2.5,
};

const endOfTurn = tokenizer.tokenId('<|im_end|>') ?? -1;

export class StubEngine implements Engine {
  readonly info: EngineInfo;
  readonly requests: GenerateRequest[] = [];
  readonly #script: StubScript;
  readonly #maxWaiting: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;
  #last = new Int32Array(0);
  #closed = false;
  readonly #totals = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0, steps: 0 };
  readonly ended = { stop: 0, length: 0, cancelled: 0, error: 0 };

  constructor(script: StubScript, options: StubOptions = {}) {
    this.#script = script;
    this.#maxWaiting = options.maxWaiting ?? 16;
    this.info = {
      vocabSize: tokenizer.vocabSize,
      contextTokens: options.contextTokens ?? 2048,
      maxSequences: options.maxSequences ?? 4,
      maxWaiting: this.#maxWaiting,
      backend: 'stub',
      backendDetail: 'scripted',
      weightBytes: 0,
      hasMtp: false,
      speculation: 'off',
    };
  }

  get running(): number {
    return this.#running;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  async *generate(request: GenerateRequest, signal?: AbortSignal): AsyncGenerator<GenerationEvent> {
    if (this.#closed) throw new Error('the engine is closed');
    if (this.#running >= this.info.maxSequences && this.#waiting.length >= this.#maxWaiting)
      throw new UserError('too_many_requests', `${this.#maxWaiting} requests are waiting`);
    const answer = this.#script(tokenizer.decode(request.ids), this.requests.push(request) - 1);
    if (!(await this.#admitted(signal))) {
      yield this.#end(request, 'cancelled', { cachedTokens: 0, generatedTokens: 0 });
      return;
    }
    try {
      yield* this.#play(request, answer, signal);
    } finally {
      this.#running--;
      this.#waiting.shift()?.();
    }
  }

  /** Resolves to false when the request is cancelled while it waits. */
  async #admitted(signal: AbortSignal | undefined): Promise<boolean> {
    if (this.#running >= this.info.maxSequences) {
      await new Promise<void>((resolve) => {
        const leave = (): void => {
          this.#waiting.splice(this.#waiting.indexOf(resolve), 1);
          resolve();
        };
        this.#waiting.push(resolve);
        signal?.addEventListener('abort', leave, { once: true });
      });
      if (signal?.aborted) return false;
    }
    this.#running++;
    return true;
  }

  async *#play(
    request: GenerateRequest,
    answer: StubAnswer,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<GenerationEvent> {
    const { failAfter = Number.POSITIVE_INFINITY, tokensPerEvent = 1 } = answer;
    if (failAfter < 0) throw this.#failure();
    const cachedTokens = this.#reuse(request);
    const { length: promptTokens } = request.ids;
    const matchedTokens = cachedTokens;
    yield {
      type: 'start',
      promptTokens,
      cachedTokens,
      matchedTokens,
      reuseLimit: cachedTokens === 0 ? 'cold' : 'tokens-differ',
      queueMs: 0,
    };
    const pause = (ms = 0): Promise<unknown> => sleep(ms, undefined, { signal }).catch(() => undefined);
    await pause(answer.prefillMs);
    const all = [...tokenizer.encode(answer.text, { special: 'parse' }), endOfTurn];
    const stopAt = all.findIndex((id) => request.stopIds.includes(id));
    const ids = all.slice(0, Math.min(stopAt < 0 ? all.length : stopAt, request.maxTokens));
    let sent = 0;
    while (sent < ids.length && !signal?.aborted) {
      const some = ids.slice(sent, sent + tokensPerEvent);
      sent += some.length;
      if (sent > failAfter) throw this.#failure();
      this.#totals.generatedTokens += some.length;
      this.#totals.steps++;
      yield { type: 'tokens', ids: some, logprobs: logprobsOf(some, request.topLogprobs) };
      await pause(answer.gapMs);
    }
    const reason = signal?.aborted ? 'cancelled' : sent === stopAt ? 'stop' : 'length';
    const hasDraft = answer.drafts === true;
    yield this.#end(request, reason, { cachedTokens, generatedTokens: sent, hasDraft });
  }

  #failure(): Error {
    this.ended.error++;
    return new Error('scripted failure, with an inner secret');
  }

  #reuse({ ids }: GenerateRequest): number {
    let same = 0;
    while (same < ids.length - 1 && same < this.#last.length && ids[same] === this.#last[same]) same++;
    this.#last = ids.slice();
    this.#totals.promptTokens += ids.length;
    this.#totals.cachedTokens += same;
    return same;
  }

  #end(
    request: GenerateRequest,
    reason: 'stop' | 'length' | 'cancelled',
    { hasDraft = false, ...counts }: { cachedTokens: number; generatedTokens: number; hasDraft?: boolean },
  ): GenerationEvent {
    this.ended[reason]++;
    const stats = {
      promptTokens: request.ids.length,
      ...counts,
      steps: counts.generatedTokens,
      draftedTokens: hasDraft ? draft.drafted : 0,
      acceptedTokens: hasDraft ? draft.accepted : 0,
      speculation: hasDraft ? oneDraft : { ...oneDraft, drafts: 0, bySource: {}, byDepth: [] },
      prefillMs: 0,
      decodeMs: 0,
    };
    return { type: 'end', reason, stopId: reason === 'stop' ? endOfTurn : null, stats };
  }

  async stats(): Promise<EngineStats> {
    if (this.#closed) throw new Error('the engine is closed');
    return {
      running: this.#running,
      waiting: this.#waiting.length,
      ...this.#totals,
      draftedTokens: 12,
      acceptedTokens: 7,
      speculation: {
        drafts: 5,
        bySource: { suffix: { drafted: 8, accepted: 6 }, mtp: { drafted: 4, accepted: 1 } },
        byDepth: [
          { drafted: 9, accepted: 6 },
          { drafted: 3, accepted: 1 },
        ],
        predictedMs: 10,
        measuredMs: 11,
      },
      requests: { ...this.ended },
      cache: {
        budgetBytes: 1000,
        usedBytes: 250,
        pages: 3,
        snapshots: 2,
        evictedPages: 1,
        evictedSnapshots: 0,
      },
    };
  }

  async close(): Promise<void> {
    this.#closed = true;
  }
}

function logprobsOf(ids: readonly number[], topLogprobs: number | null) {
  if (topLogprobs === null) return null;
  // The second best token is impossible, as a bias or a mask may make it.
  const others = [{ id: 0, logprob: Number.NEGATIVE_INFINITY }];
  return ids.map((id) => ({
    id,
    logprob: -0.25,
    top: [{ id, logprob: -0.25 }, ...others].slice(0, topLogprobs),
  }));
}

/** A completion on a stub engine, with the bundled model's tokenizer and template. */
export function stubCompletion(
  script: StubScript,
  options: StubOptions & {
    trustMessages?: boolean;
    enableThinking?: boolean | null;
    keepVolatileLines?: boolean;
  } = {},
): { readonly engine: StubEngine; readonly completion: Completion } {
  const engine = new StubEngine(script, options);
  const completion = new Completion({
    engine,
    tokenizer,
    template: loadTemplate(modelFolder),
    stopIds: stopIdsOf(tokenizer, []),
    enableThinking: options.enableThinking ?? false,
    keepVolatileLines: options.keepVolatileLines ?? false,
    trustMessages: options.trustMessages ?? false,
  });
  return { engine, completion };
}

/** Resolves when `condition` holds; fails after two seconds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const deadline = Date.now() + 2000;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`never came: ${what}`);
    await sleep(2);
  }
}
