/**
 * An engine without a model, which writes what a script says: the twin of the real one for tests of everything above it.
 * It keeps the contract of the seam: admission first come first served, stop ids, maxTokens, cancellation while waiting,
 * in prefill and between tokens. What it says of reuse is what the prompt shares with the one before it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Tokenizer } from '../tokenizer/index.ts';
import { UserError } from '../util/index.ts';
import type {
  Engine,
  EngineInfo,
  EngineStats,
  GenerateRequest,
  GenerationEvent,
  GenerationStats,
} from './types.ts';

export interface ScriptedAnswer {
  /** What the model writes; control tokens in it count. The answer ends by itself behind it. */
  readonly text: string;
  readonly prefillMs?: number;
  /** Between events. */
  readonly gapMs?: number;
  readonly tokensPerEvent?: number;
  /** Throws after this many tokens; -1 = before the first event. */
  readonly failAfter?: number;
  /** What the end tells besides its counts. */
  readonly stats?: Partial<GenerationStats>;
}

export interface ScriptedOptions {
  readonly tokenizer: Tokenizer;
  /** Ends an answer that the script has ended. */
  readonly endId: number;
  /** Chooses the answer; `index` counts the requests from 0. What it throws, the request throws. */
  readonly answer: (request: GenerateRequest, index: number) => ScriptedAnswer;
  readonly contextTokens: number;
  readonly maxSequences: number;
  readonly maxWaiting: number;
}

type EndReason = 'stop' | 'length' | 'cancelled';

const noDrafts = { drafts: 0, bySource: {}, byDepth: [], predictedMs: 0, measuredMs: 0 };
const emptyCache = {
  budgetBytes: 0,
  usedBytes: 0,
  pages: 0,
  snapshots: 0,
  evictedPages: 0,
  evictedSnapshots: 0,
};

export class ScriptedEngine implements Engine {
  readonly info: EngineInfo;
  readonly ended = { stop: 0, length: 0, cancelled: 0, error: 0 };
  readonly #options: ScriptedOptions;
  readonly #waiting: (() => void)[] = [];
  readonly #totals = { promptTokens: 0, cachedTokens: 0, generatedTokens: 0, steps: 0 };
  #count = 0;
  #running = 0;
  #last = new Int32Array(0);
  #closed = false;

  constructor(options: ScriptedOptions) {
    this.#options = options;
    const { tokenizer, contextTokens, maxSequences, maxWaiting } = options;
    this.info = {
      vocabSize: tokenizer.vocabSize,
      contextTokens,
      maxSequences,
      maxWaiting,
      backend: 'script',
      backendDetail: 'no model',
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
    const { maxSequences, maxWaiting } = this.info;
    if (this.#closed) throw new Error('the engine is closed');
    if (this.#running >= maxSequences && this.#waiting.length >= maxWaiting)
      throw new UserError('too_many_requests', `${maxWaiting} requests are waiting`);
    const answer = this.#options.answer(request, this.#count++);
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
    answer: ScriptedAnswer,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<GenerationEvent> {
    const { failAfter = Number.POSITIVE_INFINITY, tokensPerEvent = 1 } = answer;
    if (failAfter < 0) throw this.#failure();
    const cachedTokens = this.#reuse(request);
    yield {
      type: 'start',
      promptTokens: request.ids.length,
      cachedTokens,
      matchedTokens: cachedTokens,
      reuseLimit: cachedTokens === 0 ? 'cold' : 'tokens-differ',
      queueMs: 0,
    };
    const pause = (ms = 0): Promise<unknown> => sleep(ms, undefined, { signal }).catch(() => undefined);
    await pause(answer.prefillMs);
    const { tokenizer, endId } = this.#options;
    const all = [...tokenizer.encode(answer.text, { special: 'parse' }), endId];
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
    yield this.#end(request, reason, { cachedTokens, generatedTokens: sent, ...answer.stats });
  }

  #failure(): Error {
    this.ended.error++;
    return new Error('the script fails here');
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
    reason: EndReason,
    counts: Pick<GenerationStats, 'cachedTokens' | 'generatedTokens'> & Partial<GenerationStats>,
  ): GenerationEvent {
    this.ended[reason]++;
    const stats = {
      promptTokens: request.ids.length,
      steps: counts.generatedTokens,
      draftedTokens: 0,
      acceptedTokens: 0,
      speculation: noDrafts,
      prefillMs: 0,
      decodeMs: 0,
      ...counts,
    };
    return { type: 'end', reason, stopId: reason === 'stop' ? this.#options.endId : null, stats };
  }

  async stats(): Promise<EngineStats> {
    if (this.#closed) throw new Error('the engine is closed');
    return {
      running: this.#running,
      waiting: this.#waiting.length,
      ...this.#totals,
      draftedTokens: 0,
      acceptedTokens: 0,
      speculation: noDrafts,
      requests: { ...this.ended },
      cache: emptyCache,
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
