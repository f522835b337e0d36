/**
 * Where text meets the engine: messages become token ids with their message boundaries, token ids become reasoning, content
 * and tool calls. Control tokens come from the template alone, unless `trustMessages` restores what the reference does.
 */
import {
  type ChatTemplate,
  type JsonObject,
  toolsForPrompt,
  withOneSystem,
  withParsedArguments,
  withStableLines,
} from '../chat/index.ts';
import type { AnswerConstraint, Engine, GenerateRequest, TokenLogprob } from '../engine/index.ts';
import type { Constraint } from '../grammar/index.ts';
import type { Tokenizer } from '../tokenizer/index.ts';
import { present, UserError } from '../util/index.ts';
import { AnswerText } from './answer-text.ts';
import { callableTools, formatForms, formsOf } from './constraint.ts';
import { KeptReasoning } from './kept-reasoning.ts';
import { RecentPrompts } from './recent-prompts.ts';
import type { ChatRequest, Delta, GenerationOptions, TextLogprob, TextRequest } from './types.ts';

export interface CompletionParts {
  readonly engine: Engine;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  /** Ids that end an answer. */
  readonly stopIds: readonly number[];
  /** Whether the model thinks when a request does not say; null = as the template does by itself. */
  readonly enableThinking: boolean | null;
  readonly trustMessages: boolean;
  /** Whether past thinking stays in the prompt when a request does not say; null = as the template does. */
  readonly preserveThinking?: boolean | null;
  /** Template variables below those of the request. */
  readonly templateKwargs?: JsonObject;
  /** Leave lines of system messages that change with every request as they are (`chat/volatile-lines.ts`). */
  readonly keepVolatileLines?: boolean;
}

interface Prompt {
  readonly ids: Int32Array;
  readonly boundaries: readonly number[];
  readonly opensThinking: boolean;
  /** Lines of system messages that were made stable. */
  readonly stableLines: number;
}

export class Completion {
  readonly engine: Engine;
  readonly tokenizer: Tokenizer;
  readonly #parts: CompletionParts;
  readonly #reasoning = new KeptReasoning();
  readonly #recent: RecentPrompts;

  constructor(parts: CompletionParts) {
    this.engine = parts.engine;
    this.tokenizer = parts.tokenizer;
    this.#parts = parts;
    this.#recent = new RecentPrompts((ids) => parts.tokenizer.decode(ids));
  }

  /** Streams an answer to a conversation. Throws UserError at once for what can not be run. */
  chat(request: ChatRequest, signal?: AbortSignal): AsyncGenerator<Delta> {
    const forms = formsOf(request);
    const prompt = this.renderPrompt(request);
    const text = new AnswerText({
      tokenizer: this.tokenizer,
      stop: request.stop,
      reader: this.#parts.template.openReader({
        opensThinking: prompt.opensThinking,
        toolCalls: request.toolChoice.mode === 'none' ? 'text' : 'parse',
        tools: callableTools(request),
        exactCalls: forms.some(({ kind }) => kind === 'calls'),
      }),
      oneCall: request.parallelToolCalls === false,
    });
    const options = request.toolChoice.mode === 'none' ? this.#withoutCalls(request) : request;
    const run = this.#request(prompt, { ...options, forms }, 'messages');
    return this.#keepReasoning(this.#generate({ run, text, signal, prompt }), run.tenant);
  }

  /** Streams a continuation of raw text or ids; all of it is content. Throws UserError as `chat` does. */
  text(request: TextRequest, signal?: AbortSignal): AsyncGenerator<Delta> {
    const { prompt } = request;
    const ids =
      typeof prompt === 'string'
        ? this.tokenizer.encode(prompt, { special: this.#parts.trustMessages ? 'parse' : 'plain' })
        : prompt;
    const bad = ids.find((id) => !this.tokenizer.hasId(id));
    if (bad !== undefined) throw promptError(`contains the token ${bad}, which does not exist`);
    if (ids.length === 0) throw promptError('has 0 tokens, at least 1 is needed');
    const { tokenizer } = this;
    const text = new AnswerText({ tokenizer, stop: request.stop, reader: null, oneCall: false });
    const raw = { ids, boundaries: [], opensThinking: false, stableLines: 0 };
    const forms = formatForms(request.format);
    const run = this.#request(raw, { ...request, forms }, 'prompt');
    return this.#generate({ run, text, signal, prompt: raw });
  }

  /** Token ids and message boundaries of a conversation. */
  renderPrompt(
    request: Pick<
      ChatRequest,
      'messages' | 'tools' | 'enableThinking' | 'preserveThinking' | 'templateKwargs' | 'tenant'
    >,
  ): Prompt {
    const { template, tokenizer, trustMessages, keepVolatileLines } = this.#parts;
    const known = this.#reasoning.restore(request.tenant ?? '', request.messages);
    const stable = keepVolatileLines === true ? { messages: known, changed: 0 } : withStableLines(known);
    const rendered = template.render({
      messages: withOneSystem(withParsedArguments(stable.messages)),
      tools: toolsForPrompt(request.tools),
      anyHistory: true,
      addGenerationPrompt: true,
      enableThinking: request.enableThinking ?? this.#parts.enableThinking ?? undefined,
      preserveThinking: request.preserveThinking ?? this.#parts.preserveThinking ?? undefined,
      extra: { ...this.#parts.templateKwargs, ...request.templateKwargs },
    });
    const segments = trustMessages
      ? rendered.segments.map(({ text }) => ({ text, trusted: true }))
      : rendered.segments;
    const marks = rendered.boundaries.map(({ segment }) => segment);
    const { ids, counts } = tokenizer.encodeSegmentsAt(segments, marks);
    const boundaries = counts.filter((at, i) => at > 0 && at > (counts[i - 1] ?? 0));
    return { ids, boundaries, opensThinking: rendered.opensThinking, stableLines: stable.changed };
  }

  /** The tools stay in the prompt, so that its pages are found again; the token that begins a call is ruled out. */
  #withoutCalls(options: GenerationOptions): GenerationOptions {
    const id = this.tokenizer.tokenId('<tool_call>');
    if (id === null) return options;
    const logitBias = new Map(options.sampling.logitBias).set(id, -100);
    return { ...options, sampling: { ...options.sampling, logitBias } };
  }

  async *#generate(job: {
    run: GenerateRequest;
    text: AnswerText;
    signal: AbortSignal | undefined;
    prompt: Prompt;
  }): AsyncGenerator<Delta> {
    const { run, text, signal, prompt } = job;
    const generated: number[] = [];
    const { broke, answered } = this.#recent.add(run.ids, run.tenant);
    let completionTokens = 0;
    let reasoningTokens = 0;
    let cachedTokens = 0;
    const ended = new AbortController();
    const either = signal === undefined ? ended.signal : AbortSignal.any([signal, ended.signal]);
    for await (const event of this.engine.generate(run, either)) {
      if (event.type === 'start') {
        cachedTokens = event.cachedTokens;
        const { promptTokens, matchedTokens, reuseLimit } = event;
        const { stableLines } = prompt;
        yield { type: 'start', promptTokens, cachedTokens, matchedTokens, reuseLimit, broke, stableLines };
      } else if (event.type === 'tokens') {
        for (const [i, id] of event.ids.entries()) {
          if (text.ended) break;
          completionTokens++;
          if (text.isThinking) reasoningTokens++;
          generated.push(id);
          const logprob = event.logprobs?.[i];
          if (logprob !== undefined) yield { type: 'logprobs', tokens: [this.#textLogprob(logprob)] };
          yield* text.push(id);
        }
        if (text.ended) ended.abort();
      } else {
        answered(generated);
        const { deltas, calledTools } = text.finish(event.reason === 'stop' ? 'ended' : 'cut');
        yield* deltas;
        const usage = { promptTokens: run.ids.length, cachedTokens, completionTokens, reasoningTokens };
        const reason = text.ended ? 'stop' : event.reason;
        const told = reason === 'stop' && calledTools ? 'tool_calls' : reason;
        yield { type: 'finish', reason: told, stopText: text.stopText, usage, stats: event.stats };
      }
    }
  }

  /** Remembers what was thought before the calls of an answer, for clients that send them back without it. */
  async *#keepReasoning(deltas: AsyncIterable<Delta>, tenant: string): AsyncGenerator<Delta> {
    let reasoning = '';
    const calls: string[] = [];
    for await (const delta of deltas) {
      if (delta.type === 'reasoning') reasoning += delta.text;
      if (delta.type === 'tool-start') calls.push(delta.id);
      if (delta.type === 'finish') this.#reasoning.keep(tenant, calls, reasoning);
      yield delta;
    }
  }

  #request(
    prompt: Prompt,
    options: GenerationOptions & { readonly forms: readonly Constraint[] },
    param: string,
  ): GenerateRequest {
    for (const id of options.sampling.logitBias.keys())
      if (!this.tokenizer.hasId(id))
        throw new UserError('invalid_request', `logit_bias names the token ${id}, which does not exist`, {
          param: 'logit_bias',
        });
    const { contextTokens } = this.engine.info;
    const room = contextTokens - prompt.ids.length;
    if (room < 1)
      throw new UserError(
        'context_length_exceeded',
        `this model's maximum context length is ${contextTokens} tokens, the prompt has ${prompt.ids.length} tokens and leaves no room for an answer`,
        { param },
      );
    return {
      ids: prompt.ids,
      maxTokens: Math.min(options.maxTokens ?? room, room),
      sampling: options.sampling,
      stopIds: this.#parts.stopIds,
      boundaries: prompt.boundaries,
      topLogprobs: options.topLogprobs,
      tenant: options.tenant ?? '',
      constraint: this.#constraint(options.forms, prompt),
    };
  }

  /** With thinking on the form begins where the answer does: behind the closing tag, and what the template has there. */
  #constraint(forms: readonly Constraint[], { opensThinking }: Prompt): AnswerConstraint | null {
    if (forms.length === 0) return null;
    if (!opensThinking) return { forms, behindThinking: null };
    const lead = [...this.tokenizer.encode(this.#parts.template.afterThinking, { special: 'plain' })];
    return { forms, behindThinking: { lead } };
  }

  #textLogprob({ id, logprob, top }: TokenLogprob): TextLogprob {
    const text = (token: number): { token: string; bytes: number[] } => ({
      token: this.tokenizer.decode([token]),
      bytes: [...this.tokenizer.idToBytes(token)],
    });
    return { ...text(id), logprob, top: top.map((other) => ({ ...text(other.id), logprob: other.logprob })) };
  }
}

function promptError(problem: string): UserError {
  return new UserError('invalid_request', `prompt ${problem}`, { param: 'prompt' });
}

export interface AnswerCall {
  readonly id: string;
  readonly name: string;
  /** JSON text of an object where the call is complete, else the beginning of one. */
  readonly arguments: string;
  readonly complete: boolean;
}

/** A whole answer from its deltas, for callers that do not stream. */
export interface Answer {
  readonly reasoning: string;
  readonly content: string;
  readonly toolCalls: readonly AnswerCall[];
  readonly logprobs: readonly TextLogprob[];
  /** null when the request was cancelled while it waited. */
  readonly start: Extract<Delta, { type: 'start' }> | null;
  readonly finish: Extract<Delta, { type: 'finish' }>;
}

export async function collectAnswer(deltas: AsyncIterable<Delta>): Promise<Answer> {
  const text = { reasoning: '', content: '' };
  const calls: { id: string; name: string; arguments: string; complete: boolean }[] = [];
  const logprobs: TextLogprob[] = [];
  let start: Answer['start'] = null;
  let finish: Answer['finish'] | null = null;
  for await (const delta of deltas) {
    if (delta.type === 'start') start = delta;
    else if (delta.type === 'finish') finish = delta;
    else if (delta.type === 'logprobs') logprobs.push(...delta.tokens);
    else if (delta.type === 'tool-start')
      calls[delta.index] = { id: delta.id, name: delta.name, arguments: '', complete: false };
    else if (delta.type === 'tool-args') present(calls[delta.index], 'call').arguments += delta.fragment;
    else if (delta.type === 'tool-end') present(calls[delta.index], 'call').complete = delta.complete;
    else text[delta.type] += delta.text;
  }
  return {
    ...text,
    toolCalls: calls,
    logprobs,
    start,
    finish: present(finish, 'finish'),
  };
}
