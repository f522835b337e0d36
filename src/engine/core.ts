/**
 * When it happens: admission, the step loop, cancellation, statistics. One engine owns one model, its pools and
 * its cache; the loop runs while there is something to do and yields to other events between steps.
 */
import type { Backend, Buffer } from '../backends/index.ts';
import { type PrefixCache, snapshotPositions } from '../cache/index.ts';
import type { Model, Pools } from '../models/index.ts';
import { Sampler } from '../sampling/index.ts';
import { assert, present, UserError } from '../util/index.ts';
import { assemble, type Work } from './batch.ts';
import { checkRequest } from './check-request.ts';
import { DraftFigures, type SpeculationFigures } from './draft/figures.ts';
import type { FillWork } from './draft/mtp-layer.ts';
import type { Speculator } from './draft/speculator.ts';
import { emptyTree } from './draft-tree.ts';
import type { GuideSource } from './guide/source.ts';
import type { EngineOptions } from './options.ts';
import { planStep } from './scheduler.ts';
import { Sequence } from './sequence.ts';
import { LogitRows, type Walk, walkTree } from './step.ts';
import type { Engine, EngineInfo, EngineStats, GenerateRequest, GenerationEvent } from './types.ts';

export interface EngineParts {
  readonly backend: Backend;
  readonly model: Model;
  readonly pools: Pools;
  readonly cache: PrefixCache;
  readonly options: EngineOptions;
  readonly info: EngineInfo;
  readonly usableVocab: number;
  /** null = no drafts. */
  readonly speculator: Speculator | null;
  /** Holds answers to their constraints. */
  readonly guides: GuideSource;
  /** Tokens between snapshots at ordinary message boundaries. */
  readonly spacing: number;
}

export class EngineCore implements Engine {
  readonly info: EngineInfo;
  readonly #parts: EngineParts;
  readonly #greedyBuffer: Buffer;
  readonly #waiting: Sequence[] = [];
  readonly #running: Sequence[] = [];
  readonly #freeSlots: number[];
  readonly #totals = {
    promptTokens: 0,
    cachedTokens: 0,
    generatedTokens: 0,
    steps: 0,
    drafted: 0,
    accepted: 0,
  };
  readonly #ended = { stop: 0, length: 0, cancelled: 0, error: 0 };
  #loop: Promise<void> | null = null;
  #closed = false;

  constructor(parts: EngineParts) {
    this.#parts = parts;
    this.info = parts.info;
    this.#greedyBuffer = parts.backend.alloc(parts.model.maxRows);
    this.#freeSlots = Array.from(
      { length: parts.options.maxSequences },
      (_, i) => parts.options.maxSequences - 1 - i,
    );
  }

  async *generate(request: GenerateRequest, signal?: AbortSignal): AsyncGenerator<GenerationEvent> {
    const sequence = this.#submit(request);
    const cancel = (): void => {
      sequence.cancelled = true;
    };
    if (signal?.aborted) cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      yield* sequence.queue.read();
    } finally {
      signal?.removeEventListener('abort', cancel);
      cancel();
    }
  }

  async stats(): Promise<EngineStats> {
    const { cache } = this.#parts;
    const { promptTokens, cachedTokens, generatedTokens, steps, drafted, accepted } = this.#totals;
    return {
      running: this.#running.length,
      waiting: this.#waiting.length,
      promptTokens,
      cachedTokens,
      generatedTokens,
      steps,
      draftedTokens: drafted,
      acceptedTokens: accepted,
      requests: { ...this.#ended },
      speculation: this.#figures(),
      cache: cache.stats(),
    };
  }

  async close(): Promise<void> {
    if (this.#closed) return this.#loop ?? undefined;
    this.#closed = true;
    for (const sequence of [...this.#waiting, ...this.#running]) sequence.cancelled = true;
    this.#loop ??= this.#run();
    await this.#loop;
    this.#parts.model.close();
    this.#parts.backend.close();
  }

  #submit(request: GenerateRequest): Sequence {
    if (this.#closed) throw new UserError('overloaded', 'the engine is closed');
    checkRequest(request, this.info, this.#parts.usableVocab);
    if (this.#waiting.length >= this.#parts.options.maxWaiting && this.#freeSlots.length === 0) {
      const { maxWaiting } = this.#parts.options;
      throw new UserError(
        'too_many_requests',
        `${maxWaiting} requests are waiting, the limit is ${maxWaiting}`,
      );
    }
    const { constraint } = request;
    const sampler = new Sampler(request.sampling, request.ids);
    const guide = constraint === null ? null : this.#parts.guides.open(constraint, request.stopIds);
    const sequence = new Sequence(request, { sampler, guide }, this.info.contextTokens);
    this.#waiting.push(sequence);
    this.#loop ??= this.#run();
    return sequence;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length + this.#running.length > 0) {
      // Lets messages in: a cancellation takes effect at the next step boundary.
      await new Promise((resolve) => setImmediate(resolve));
      this.#reapCancelled();
      this.#admit();
      if (this.#running.length === 0) continue;
      try {
        await this.#step();
      } catch (error) {
        for (const sequence of [...this.#running]) this.#fail(sequence, error);
      }
    }
    this.#loop = null;
  }

  #reapCancelled(): void {
    for (const sequence of this.#waiting.filter((waiting) => waiting.cancelled)) {
      this.#waiting.splice(this.#waiting.indexOf(sequence), 1);
      this.#end(sequence, { reason: 'cancelled', stopId: null });
    }
    for (const sequence of this.#running.filter((running) => running.cancelled))
      this.#finish(sequence, { reason: 'cancelled', stopId: null });
  }

  /** First come, first served: a request that does not fit yet keeps those behind it waiting. */
  #admit(): void {
    while (this.#waiting.length > 0 && this.#freeSlots.length > 0) {
      const sequence = present(this.#waiting[0], 'waiting sequence');
      try {
        if (!this.#start(sequence)) return;
        this.#waiting.shift();
      } catch (error) {
        this.#waiting.shift();
        this.#fail(sequence, error);
      }
    }
  }

  #start(sequence: Sequence): boolean {
    const { cache, backend, pools, options } = this.#parts;
    if (!this.#hasRoomFor(sequence)) return false;
    const lease = cache.acquire(sequence.request.ids);
    if (lease === null) {
      if (this.#running.length > 0) return false;
      throw new UserError(
        'overloaded',
        `the cache of ${options.cacheBytes} bytes has no room for this prompt`,
      );
    }
    sequence.lease = lease;
    sequence.slot = present(this.#freeSlots.pop(), 'free slot');
    sequence.state = 'running';
    this.#running.push(sequence);
    const { cachedLen, matchedLen, snapshot, limit } = lease.reuse;
    for (const { src, dst } of lease.copies) backend.copyPage(pools.kv, dst, src);
    lease.copiesDone();
    if (snapshot === null) backend.resetState(pools.state, sequence.slot);
    else backend.restoreState(pools.state, sequence.slot, cachedLen, snapshot);
    sequence.cachedLen = cachedLen;
    sequence.setComputed(cachedLen);
    this.#parts.speculator?.start(sequence);
    const { promptLen, request } = sequence;
    const { spacing } = this.#parts;
    const shape = { boundaries: request.boundaries, cachedLen, matchedLen, promptLen, spacing };
    sequence.snapshotsDue = snapshotPositions(shape);
    sequence.startedMs = performance.now();
    this.#totals.promptTokens += sequence.promptLen;
    this.#totals.cachedTokens += cachedLen;
    assert(cachedLen < promptLen, 'at least one prompt token is computed');
    sequence.queue.push({
      type: 'start',
      promptTokens: sequence.promptLen,
      cachedTokens: cachedLen,
      matchedTokens: matchedLen,
      reuseLimit: limit,
      queueMs: sequence.startedMs - sequence.submittedMs,
    });
    return true;
  }

  /** Room is reserved for the longest each sequence may get, so that a running one never lacks a page. */
  #hasRoomFor(sequence: Sequence): boolean {
    const { cache, options } = this.#parts;
    const pages = (len: number): number => Math.ceil(len / options.pageTokens) + 1;
    const reserved = this.#running.reduce((sum, running) => sum + pages(running.maxLen), 0);
    return this.#running.length === 0 || reserved + pages(sequence.maxLen) <= cache.maxPages;
  }

  async #step(): Promise<void> {
    const { model, options, speculator } = this.#parts;
    const budget = { prefillTokens: options.prefillTokens, maxRows: model.maxRows };
    const works = planStep(this.#running, (sequence) => speculator?.treeOf(sequence) ?? emptyTree, budget);
    for (const { sequence, chainLen, tree } of works) {
      const tokens = sequence.computedLen + chainLen + tree.ids.length;
      const hasPages = present(sequence.lease, 'lease').ensure(Math.min(tokens, sequence.maxLen));
      assert(hasPages, `no page for ${tokens} tokens though room was reserved`);
    }
    this.#giveBackMemory();
    const started = performance.now();
    const { hidden, outcomes } = await this.#forward(works);
    this.#noteTime(works, performance.now() - started);
    await speculator?.fill(outcomes.map(fillWork), hidden);
    for (const outcome of outcomes) this.#settle(outcome, hidden);
    await speculator?.draft(this.#running.filter((sequence) => !sequence.isPrefill));
  }

  /** One forward, and each sequence's walk; a sequence that fails here takes no other with it. */
  async #forward(works: readonly Work[]): Promise<{ hidden: Buffer; outcomes: Outcome[] }> {
    const { backend, model, pools, speculator, usableVocab } = this.#parts;
    const { batch, logitRows, logitStart } = assemble(works);
    const { logits, hidden } = model.forward(batch, logitRows, pools);
    const shape = { rows: logitRows.length, width: model.vocabSize, usable: usableVocab };
    const rows = new LogitRows(backend, logits, shape, this.#greedyBuffer);
    this.#totals.steps++;
    const outcomes: Outcome[] = [];
    for (const [i, work] of works.entries()) {
      const { firstRow } = present(batch.segments[i], 'segment');
      try {
        const walk = work.choosesToken
          ? await walkTree(work, rows, present(logitStart[i], 'logit row'))
          : null;
        const path = walk?.path ?? [];
        this.#commit(work, path);
        speculator?.observe(work.sequence, work.tree, path);
        outcomes.push({ work, walk, firstRow });
      } catch (error) {
        this.#fail(work.sequence, error);
      }
    }
    return { hidden, outcomes };
  }

  /** What follows from a walk: the hidden row for a snapshot, the snapshot, the tokens, perhaps the end. */
  #settle({ work, walk, firstRow }: Outcome, hidden: Buffer): void {
    const { backend, model, pools } = this.#parts;
    const { sequence } = work;
    if (model.hasMtp) {
      const last = firstRow + work.chainLen + (walk?.path.at(-1) ?? -1);
      backend.keepHidden(pools.state, sequence.slot, hidden, last);
    }
    this.#snapshotIfDue(sequence);
    if (walk !== null) this.#emit(work, walk);
  }

  /** Of one sequence, or of all since the start. */
  #figures(sequence?: Sequence): SpeculationFigures {
    return this.#parts.speculator?.figures(sequence) ?? new DraftFigures().read();
  }

  /** Pure decode steps are what the cost model predicts. */
  #noteTime(works: readonly Work[], ms: number): void {
    if (works.some(({ chainLen }) => chainLen > 1)) return;
    const rows = works.reduce((sum, { tree }) => sum + 1 + tree.ids.length, 0);
    const context = works.reduce((sum, { sequence }) => sum + sequence.computedLen, 0) / works.length;
    const sequences = works.map(({ sequence }) => sequence);
    this.#parts.speculator?.observeStep({ rows, context, sequences }, ms);
  }

  #commit({ sequence, chainLen, tree, choosesToken }: Work, path: number[]): void {
    const { backend, pools } = this.#parts;
    const lease = present(sequence.lease, 'lease');
    const ctxLen = sequence.computedLen + chainLen;
    if (path.length > 0) {
      const commit = { slot: sequence.slot, ctxLen, nodes: Int32Array.from(path), pages: lease.pages };
      backend.commitKv(pools.kv, commit, { from: 0, to: pools.kv.layers });
      backend.commitState(pools.state, commit);
    }
    const to = ctxLen + path.length;
    lease.append(sequence.tokens.subarray(sequence.computedLen, to));
    sequence.setComputed(to);
    if (choosesToken) sequence.steps++;
    sequence.draftedTokens += tree.ids.length;
    sequence.acceptedTokens += path.length;
    this.#totals.drafted += tree.ids.length;
    this.#totals.accepted += path.length;
  }

  #snapshotIfDue(sequence: Sequence): void {
    if (sequence.snapshotsDue.includes(sequence.computedLen)) this.#publish(sequence);
  }

  /** Makes what is computed reusable by others, from this token count on. */
  #publish(sequence: Sequence): void {
    const { backend, pools } = this.#parts;
    const lease = present(sequence.lease, 'lease');
    const snapshot = lease.reserveSnapshot();
    if (snapshot !== null) backend.saveState(pools.state, sequence.slot, sequence.computedLen, snapshot);
    lease.publish(sequence.computedLen, snapshot);
  }

  #emit({ sequence }: Work, { ids, logprobs, end }: Walk): void {
    if (sequence.firstTokenMs === 0) sequence.firstTokenMs = performance.now();
    this.#totals.generatedTokens += ids.length;
    if (ids.length > 0) sequence.queue.push({ type: 'tokens', ids, logprobs });
    if (end !== null) this.#finish(sequence, end);
  }

  #finish(sequence: Sequence, end: { reason: 'stop' | 'length' | 'cancelled'; stopId: number | null }): void {
    if (sequence.computedLen > sequence.cachedLen) this.#publish(sequence);
    this.#parts.speculator?.end(sequence);
    this.#leave(sequence);
    this.#end(sequence, end);
  }

  #end(sequence: Sequence, end: { reason: 'stop' | 'length' | 'cancelled'; stopId: number | null }): void {
    sequence.state = 'ended';
    this.#ended[end.reason]++;
    sequence.queue.push({ type: 'end', ...end, stats: sequence.stats(this.#figures(sequence)) });
    sequence.queue.close();
  }

  /** The sequence's own failure: nothing of it is kept, the others go on. */
  #fail(sequence: Sequence, error: unknown): void {
    if (sequence.state === 'ended') return;
    this.#leave(sequence);
    sequence.state = 'ended';
    this.#ended.error++;
    sequence.queue.close(error);
  }

  #leave(sequence: Sequence): void {
    const index = this.#running.indexOf(sequence);
    if (index >= 0) this.#running.splice(index, 1);
    if (sequence.slot >= 0) this.#freeSlots.push(sequence.slot);
    sequence.slot = -1;
    sequence.lease?.release();
    sequence.lease = null;
  }

  #giveBackMemory(): void {
    const { backend, pools, cache } = this.#parts;
    const { pages, snapshots } = cache.takeDiscards();
    if (pages.length > 0) backend.discardPages(pools.kv, pages);
    if (snapshots.length > 0) backend.discardSnapshots(pools.state, snapshots);
  }
}

interface Outcome {
  readonly work: Work;
  /** null when the chain ended inside the prompt. */
  readonly walk: Walk | null;
  /** The work's first row in the forward. */
  readonly firstRow: number;
}

/** The rows whose MTP slots can be filled: those with a token behind them that is known. */
function fillWork({ work, walk, firstRow }: Outcome): FillWork {
  const { sequence, chainLen } = work;
  const rows = Array.from({ length: chainLen }, (_, i) => firstRow + i);
  rows.push(...(walk?.path ?? []).map((node) => firstRow + chainLen + node));
  const isOpen = sequence.knownLen > sequence.computedLen;
  return { sequence, rows: isOpen ? rows : rows.slice(0, -1), drafts: walk !== null && walk.end === null };
}
