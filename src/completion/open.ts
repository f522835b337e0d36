/** A model, ready to answer: engine folder, tokenizer, template, engine. The entry for library users. */
import { openEngineFolder } from '../build/index.ts';
import { type JsonObject, loadTemplate } from '../chat/index.ts';
import { type EngineOptions, openEngine, openEngineWorker } from '../engine/index.ts';
import { loadTokenizer, type Tokenizer } from '../tokenizer/index.ts';
import { Completion } from './complete.ts';

export interface ModelOptions {
  /** Engine folder. */
  readonly folder: string;
  readonly engine?: Partial<Omit<EngineOptions, 'folder' | 'usableVocab' | 'stopIds'>>;
  /** Run the engine in a worker thread. Default true. */
  readonly worker?: boolean;
  readonly enableThinking?: boolean | null;
  readonly trustMessages?: boolean;
  /** Whether past thinking stays in the prompt; null = as the template does. */
  readonly preserveThinking?: boolean | null;
  /** Template variables below those of a request. */
  readonly templateKwargs?: JsonObject;
  /** Leave lines of system messages that change with every request as they are. */
  readonly keepVolatileLines?: boolean;
}

/** Tokens that end a turn or a text, whatever the configs say. */
const endTokens = ['<|im_end|>', '<|endoftext|>'];

export function stopIdsOf(tokenizer: Tokenizer, declared: readonly number[]): number[] {
  const named = endTokens.map((text) => tokenizer.tokenId(text)).filter((id) => id !== null);
  return [...new Set([...declared, ...named])];
}

export async function openModel(options: ModelOptions): Promise<Completion> {
  const { manifest } = openEngineFolder(options.folder);
  const tokenizer = loadTokenizer(options.folder);
  const template = loadTemplate(options.folder);
  const open = options.worker === false ? openEngine : openEngineWorker;
  const stopIds = stopIdsOf(tokenizer, manifest.eosTokenIds);
  const { folder } = options;
  const engine = await open({ ...options.engine, folder, usableVocab: tokenizer.vocabSize, stopIds });
  return new Completion({
    engine,
    tokenizer,
    template,
    stopIds,
    enableThinking: options.enableThinking ?? null,
    trustMessages: options.trustMessages ?? false,
    preserveThinking: options.preserveThinking ?? null,
    templateKwargs: options.templateKwargs ?? {},
    keepVolatileLines: options.keepVolatileLines ?? false,
  });
}
