/** Requests and answers in text: what servers, the CLI and library users speak. */
import type { ChatMessage, JsonObject, JsonValue, ToolDef } from '../chat/index.ts';
import type { GenerationStats, ReuseLimit } from '../engine/index.ts';
import { defaultSampling, type SamplingParams } from '../sampling/index.ts';
import { UserError } from '../util/index.ts';
import type { PromptBreak } from './recent-prompts.ts';

export interface GenerationOptions {
  /** Tokens of the answer; null = what the context leaves, which also bounds larger numbers. */
  readonly maxTokens: number | null;
  readonly sampling: SamplingParams;
  readonly stop: readonly string[];
  /** Alternatives reported per token; null = no log-probabilities. */
  readonly topLogprobs: number | null;
  /** Whose request it is: drafts may come from finished answers to the same tenant, where the engine keeps them. */
  readonly tenant?: string;
}

/** Whether and what the model may call. */
export interface ToolChoice {
  /** 'none': the model is told of the tools and may not call them. 'required': the answer is a call. */
  readonly mode: 'auto' | 'none' | 'required';
  /** The only tools that may be called, by name; all stay in the prompt. null = every tool of the request. */
  readonly names: readonly string[] | null;
}

/** What the content of an answer must be. `param`: the field of the request that says so, for errors. */
export type AnswerFormat = { readonly param?: string } & (
  | { readonly type: 'json_object' }
  | { readonly type: 'json_schema'; readonly schema: JsonValue }
  /** The whole content matches. */
  | { readonly type: 'regex'; readonly pattern: string }
  /** The content is one of them. */
  | { readonly type: 'choice'; readonly options: readonly string[] }
);

export interface ChatRequest extends GenerationOptions {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly ToolDef[] | null;
  readonly toolChoice: ToolChoice;
  /** null = any text. */
  readonly format: AnswerFormat | null;
  /** false: the answer ends with its first tool call. */
  readonly parallelToolCalls?: boolean;
  /** null = the completion's default. */
  readonly enableThinking: boolean | null;
  readonly preserveThinking: boolean | null;
  /** Further template variables. */
  readonly templateKwargs: JsonObject;
}

const chatDefaults: Omit<Required<ChatRequest>, 'messages'> = {
  tools: null,
  toolChoice: { mode: 'auto', names: null },
  format: null,
  parallelToolCalls: true,
  enableThinking: null,
  preserveThinking: null,
  templateKwargs: {},
  maxTokens: null,
  sampling: defaultSampling,
  stop: [],
  topLogprobs: null,
  tenant: '',
};

/** A request from what differs from the defaults: greedy, as long as the context allows. Unknown names are refused. */
export function chatRequest(given: Pick<ChatRequest, 'messages'> & Partial<ChatRequest>): ChatRequest {
  for (const name of Object.keys(given))
    if (name !== 'messages' && !(name in chatDefaults))
      throw new UserError('bad_option', `unknown chat option '${name}'`);
  const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return { ...chatDefaults, messages: given.messages, ...defined };
}

export interface TextRequest extends GenerationOptions {
  readonly prompt: string | Int32Array;
  /** null = any text. */
  readonly format: AnswerFormat | null;
}

export interface TextLogprob {
  readonly token: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
  readonly top: readonly {
    readonly token: string;
    readonly bytes: readonly number[];
    readonly logprob: number;
  }[];
}

export interface Usage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Of these, those of thinking, with the tag that ends it. */
  readonly reasoningTokens: number;
}

export type Delta =
  | {
      readonly type: 'start';
      readonly promptTokens: number;
      readonly cachedTokens: number;
      readonly matchedTokens: number;
      readonly reuseLimit: ReuseLimit;
      /** Where the prompt parts from the most similar one before it; null where it only continues it. */
      readonly broke: PromptBreak | null;
      /** Lines of system messages that were made stable. */
      readonly stableLines: number;
    }
  | { readonly type: 'reasoning' | 'content'; readonly text: string }
  | { readonly type: 'tool-start'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-args'; readonly index: number; readonly fragment: string }
  | { readonly type: 'tool-end'; readonly index: number; readonly complete: boolean }
  | { readonly type: 'logprobs'; readonly tokens: readonly TextLogprob[] }
  | {
      readonly type: 'finish';
      readonly reason: 'stop' | 'length' | 'tool_calls' | 'cancelled';
      /** The stop text that ended the answer, if one did. */
      readonly stopText: string | null;
      readonly usage: Usage;
      readonly stats: GenerationStats;
    };
