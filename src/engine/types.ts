/**
 * The engine's seam: token ids in, token ids out. The same interface runs in process and behind a worker thread.
 * Whole prompts go in; the engine finds what it has in its cache.
 */
import type { CacheStats } from '../cache/index.ts';
import type { Constraint } from '../grammar/index.ts';
import type { SamplingParams } from '../sampling/index.ts';
import type { SpeculationFigures } from './draft/figures.ts';

export interface GenerateRequest {
  readonly ids: Int32Array;
  readonly maxTokens: number;
  readonly sampling: SamplingParams;
  /** Token ids that end the answer; they are not emitted as tokens but reported in `end.stopId`. */
  readonly stopIds: readonly number[];
  /**
   * Token counts at which a message of the prompt ends (good snapshot points), ascending, each <= ids.length:
   * the end of the system-and-tools block, the end of each message, the last one before the generation prompt.
   */
  readonly boundaries: readonly number[];
  /** Number of alternatives reported per token; null = no log-probabilities. */
  readonly topLogprobs: number | null;
  /** Whose request it is: drafts may come from finished sequences of the same tenant. */
  readonly tenant: string;
  /** null = any tokens. */
  readonly constraint: AnswerConstraint | null;
}

/** The form that an answer must have. Plain data: it crosses the thread border. */
export interface AnswerConstraint {
  /** The answer has one of them; at least one. */
  readonly forms: readonly Constraint[];
  /**
   * Where the form begins: null = with the first token, else behind the closing tag of the thinking that the prompt opened
   * and these tokens. Until then the answer may not end.
   */
  readonly behindThinking: { readonly lead: readonly number[] } | null;
}

/** Why the reuse was not longer. */
export type ReuseLimit =
  /** Everything but the last token was reused. */
  | 'whole-prompt'
  /** The prompt differs from everything cached after `matchedLen`. */
  | 'tokens-differ'
  /** Tokens matched further, but no snapshot was there. */
  | 'no-snapshot'
  /** Nothing cached matches. */
  | 'cold';

export interface TokenLogprob {
  readonly id: number;
  readonly logprob: number;
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

export type GenerationEvent =
  | {
      readonly type: 'start';
      readonly promptTokens: number;
      readonly cachedTokens: number;
      /** Tokens that matched in the tree, restorable or not: cachedTokens <= matchedTokens. */
      readonly matchedTokens: number;
      readonly reuseLimit: ReuseLimit;
      /** Milliseconds between generate() and the first slice of prefill. */
      readonly queueMs: number;
    }
  | {
      readonly type: 'tokens';
      readonly ids: readonly number[];
      readonly logprobs: readonly TokenLogprob[] | null;
    }
  | {
      readonly type: 'end';
      readonly reason: 'stop' | 'length' | 'cancelled';
      readonly stopId: number | null;
      readonly stats: GenerationStats;
    };

export interface GenerationStats {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  /** Steps that chose tokens: the last one of prefill and those of decoding. */
  readonly steps: number;
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly speculation: SpeculationFigures;
  readonly prefillMs: number;
  readonly decodeMs: number;
}

export interface EngineStats {
  readonly running: number;
  readonly waiting: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly generatedTokens: number;
  readonly steps: number;
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  readonly speculation: SpeculationFigures;
  readonly requests: {
    readonly stop: number;
    readonly length: number;
    /** By whoever asked; also where the layer above had all it wanted, as behind a stop text. */
    readonly cancelled: number;
    readonly error: number;
  };
  readonly cache: CacheStats;
}

export interface EngineInfo {
  readonly vocabSize: number;
  /** Longest prompt plus answer, tokens. */
  readonly contextTokens: number;
  readonly maxSequences: number;
  /** Requests that may wait for a place. */
  readonly maxWaiting: number;
  readonly backend: string;
  readonly backendDetail: string;
  readonly weightBytes: number;
  readonly hasMtp: boolean;
  /** What drafts come from, in words. */
  readonly speculation: string;
}

export interface Engine {
  readonly info: EngineInfo;
  /**
   * Starts a sequence. Throws UserError before the first event when the request can not run
   * (`context_length_exceeded`, `invalid_request`; a constraint that can not be compiled is one). Breaking out of the iteration, or aborting the
   * signal, cancels at the next step boundary, in prefill too; with a signal the last event is `end` 'cancelled'.
   */
  generate(request: GenerateRequest, signal?: AbortSignal): AsyncIterable<GenerationEvent>;
  stats(): Promise<EngineStats>;
  /** Cancels what runs, frees memory. Idempotent. */
  close(): Promise<void>;
}
