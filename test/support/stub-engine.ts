/** The scripted engine with a script in code, and what tests want to see of it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { loadTemplate } from '../../src/chat/index.ts';
import { Completion, stopIdsOf } from '../../src/completion/index.ts';
import {
  type EngineStats,
  type GenerateRequest,
  type GenerationEvent,
  type ScriptedAnswer,
  ScriptedEngine,
} from '../../src/engine/index.ts';
import { loadTokenizer } from '../../src/tokenizer/index.ts';

const modelFolder = new URL('../../models/copse-tiny', import.meta.url).pathname;
export const tokenizer = loadTokenizer(modelFolder);

export interface StubAnswer extends ScriptedAnswer {
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
  draftedTokens: draft.drafted,
  acceptedTokens: draft.accepted,
  speculation: {
    drafts: 1,
    bySource: { suffix: draft },
    byDepth: [draft],
    predictedMs: 2,
    measuredMs: 2.5,
  },
};

export class StubEngine extends ScriptedEngine {
  readonly requests: GenerateRequest[] = [];

  constructor(script: StubScript, options: StubOptions = {}) {
    super({
      tokenizer,
      endId: tokenizer.tokenId('<|im_end|>') ?? -1,
      answer: ({ ids }, index) => {
        const { drafts = false, ...answer } = script(tokenizer.decode(ids), index);
        return drafts ? { ...answer, stats: oneDraft } : answer;
      },
      contextTokens: options.contextTokens ?? 2048,
      maxSequences: options.maxSequences ?? 4,
      maxWaiting: options.maxWaiting ?? 16,
    });
  }

  override generate(request: GenerateRequest, signal?: AbortSignal): AsyncGenerator<GenerationEvent> {
    this.requests.push(request);
    return super.generate(request, signal);
  }

  /** With figures of drafts and a cache, so that tests can tell them apart. */
  override async stats(): Promise<EngineStats> {
    return {
      ...(await super.stats()),
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
