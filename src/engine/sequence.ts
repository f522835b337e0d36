/**
 * One request on its way through the engine.
 *
 *   tokens: | cached | computed ............ | known, not computed | room for the answer |
 *           0     cachedLen             computedLen             knownLen            maxLen
 *
 * Prefill and decode differ in the length of the known part only: while the answer is generated it is one token.
 */
import type { Lease } from '../cache/index.ts';
import type { Sampler } from '../sampling/index.ts';
import { assert } from '../util/index.ts';
import type { SpeculationFigures } from './draft/figures.ts';
import { EventQueue } from './event-queue.ts';
import type { Guide } from './guide/guide.ts';
import type { GenerateRequest, GenerationStats } from './types.ts';

export type SequenceState = 'waiting' | 'running' | 'ended';

export class Sequence {
  readonly request: GenerateRequest;
  readonly queue = new EventQueue();
  readonly sampler: Sampler;
  /** What may follow the known tokens; null = anything. */
  readonly guide: Guide | null;
  readonly stopIds: ReadonlySet<number>;
  readonly promptLen: number;
  readonly maxLen: number;
  /** Token ids by position; valid up to knownLen. */
  readonly tokens: Int32Array;
  readonly submittedMs = performance.now();
  state: SequenceState = 'waiting';
  cancelled = false;
  lease: Lease | null = null;
  slot = -1;
  cachedLen = 0;
  computedLen = 0;
  knownLen: number;
  /** Positions inside the prompt where a snapshot is due, ascending. */
  snapshotsDue: readonly number[] = [];
  startedMs = 0;
  firstTokenMs = 0;
  steps = 0;
  draftedTokens = 0;
  acceptedTokens = 0;

  constructor(
    request: GenerateRequest,
    { sampler, guide }: { readonly sampler: Sampler; readonly guide: Guide | null },
    contextTokens: number,
  ) {
    this.request = request;
    this.sampler = sampler;
    this.guide = guide;
    this.stopIds = new Set(request.stopIds);
    this.promptLen = request.ids.length;
    this.knownLen = this.promptLen;
    this.maxLen = Math.min(contextTokens, this.promptLen + request.maxTokens);
    this.tokens = new Int32Array(this.maxLen + 1);
    this.tokens.set(request.ids);
  }

  get isPrefill(): boolean {
    return this.computedLen < this.promptLen;
  }

  get generatedLen(): number {
    return this.knownLen - this.promptLen;
  }

  /** Appends an answer token. */
  addToken(id: number): void {
    assert(this.knownLen < this.maxLen, `sequence of ${this.maxLen} tokens is full`);
    this.tokens[this.knownLen++] = id;
  }

  /** Moves computedLen; the chain of lengths is asserted here alone. */
  setComputed(len: number): void {
    this.computedLen = len;
    assert(
      this.cachedLen <= this.computedLen && this.computedLen <= this.knownLen && this.knownLen <= this.maxLen,
      `lengths ${this.cachedLen} <= ${this.computedLen} <= ${this.knownLen} <= ${this.maxLen}`,
    );
  }

  stats(speculation: SpeculationFigures): GenerationStats {
    const now = performance.now();
    const firstToken = this.firstTokenMs === 0 ? now : this.firstTokenMs;
    const started = this.startedMs === 0 ? now : this.startedMs;
    return {
      promptTokens: this.promptLen,
      cachedTokens: this.cachedLen,
      generatedTokens: this.generatedLen,
      steps: this.steps,
      draftedTokens: this.draftedTokens,
      acceptedTokens: this.acceptedTokens,
      speculation,
      prefillMs: firstToken - started,
      decodeMs: now - firstToken,
    };
  }
}
