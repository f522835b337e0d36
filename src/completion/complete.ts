/**
 * Where text meets the engine: messages become token ids with their message boundaries, token ids become reasoning, content
 * and tool calls. Control tokens come from the template alone, unless `trustMessages` restores what the reference does.
 */
import { type ChatTemplate, OutputReader, type ReaderEvent, withParsedArguments } from '../chat/index.ts';
import type { Engine, GenerateRequest, GenerationEvent, TokenLogprob } from '../engine/index.ts';
import { StreamDecoder, type Tokenizer } from '../tokenizer/index.ts';
import { present, UserError } from '../util/index.ts';
import { StopStrings } from './stop-strings.ts';
import type { ChatRequest, Delta, GenerationOptions, TextLogprob, TextRequest, Usage } from './types.ts';

export interface CompletionParts {
  readonly engine: Engine;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  /** Ids that end an answer. */
  readonly stopIds: readonly number[];
  /** Whether the model thinks when a request does not say; null = as the template does by itself. */
  readonly enableThinking: boolean | null;
  readonly trustMessages: boolean;
}

interface Prompt {
  readonly ids: Int32Array;
  readonly boundaries: readonly number[];
  readonly opensThinking: boolean;
}

type EngineEnd = Extract<GenerationEvent, { type: 'end' }>;

export class Completion {
  readonly engine: Engine;
  readonly tokenizer: Tokenizer;
  readonly #parts: CompletionParts;

  constructor(parts: CompletionParts) {
    this.engine = parts.engine;
    this.tokenizer = parts.tokenizer;
    this.#parts = parts;
  }

  /** Streams an answer to a conversation. Throws UserError before the first delta for what can not be run. */
  async *chat(request: ChatRequest, signal?: AbortSignal): AsyncGenerator<Delta> {
    const prompt = this.renderPrompt(request);
    const reader = new OutputReader({
      opensThinking: prompt.opensThinking,
      toolCalls: request.toolChoice === 'auto' && request.tools !== null ? 'parse' : 'text',
      tools: request.tools,
    });
    yield* this.#generate({ prompt, options: request, reader, signal });
  }

  /** Streams a continuation of raw text or ids; all of it is content. */
  async *text(request: TextRequest, signal?: AbortSignal): AsyncGenerator<Delta> {
    const { prompt } = request;
    const ids =
      typeof prompt === 'string'
        ? this.tokenizer.encode(prompt, { special: this.#parts.trustMessages ? 'parse' : 'plain' })
        : prompt;
    const bad = ids.find((id) => !this.tokenizer.hasId(id));
    if (bad !== undefined)
      throw new UserError('invalid_request', `prompt contains the token ${bad}, which does not exist`, {
        param: 'prompt',
      });
    yield* this.#generate({
      prompt: { ids, boundaries: [], opensThinking: false },
      options: request,
      reader: null,
      signal,
    });
  }

  /** Token ids and message boundaries of a conversation. */
  renderPrompt(
    request: Pick<
      ChatRequest,
      'messages' | 'tools' | 'toolChoice' | 'enableThinking' | 'preserveThinking' | 'templateKwargs'
    >,
  ): Prompt {
    const { template, tokenizer, trustMessages } = this.#parts;
    const rendered = template.render({
      messages: withParsedArguments(request.messages),
      tools: request.toolChoice === 'none' ? null : request.tools,
      addGenerationPrompt: true,
      enableThinking: request.enableThinking ?? this.#parts.enableThinking ?? undefined,
      preserveThinking: request.preserveThinking ?? undefined,
      extra: request.templateKwargs,
    });
    const segments = trustMessages
      ? rendered.segments.map(({ text }) => ({ text, trusted: true }))
      : rendered.segments;
    const marks = rendered.boundaries.map(({ segment }) => segment);
    const { ids, counts } = tokenizer.encodeSegmentsAt(segments, marks);
    const boundaries = counts.filter((at, i) => at > 0 && at > (counts[i - 1] ?? 0));
    return { ids, boundaries, opensThinking: rendered.opensThinking };
  }

  async *#generate(job: {
    prompt: Prompt;
    options: GenerationOptions;
    reader: OutputReader | null;
    signal: AbortSignal | undefined;
  }): AsyncGenerator<Delta> {
    const { prompt, options, reader, signal } = job;
    const decoder = new StreamDecoder(this.tokenizer);
    const stops = new StopStrings(options.stop);
    let completionTokens = 0;
    let cachedTokens = 0;
    const read = (text: string): Delta[] => {
      if (text === '') return [];
      return reader === null ? [{ type: 'content', text }] : reader.push(text).filter(isDelta);
    };
    const stopped = new AbortController();
    const either = signal === undefined ? stopped.signal : AbortSignal.any([signal, stopped.signal]);
    let reachedStop = false;
    for await (const event of this.engine.generate(this.#request(prompt, options), either)) {
      if (event.type === 'start') {
        cachedTokens = event.cachedTokens;
        const { promptTokens, matchedTokens, reuseLimit } = event;
        yield { type: 'start', promptTokens, cachedTokens, matchedTokens, reuseLimit };
      } else if (event.type === 'tokens') {
        if (reachedStop) continue;
        for (const [i, id] of event.ids.entries()) {
          completionTokens++;
          const logprob = event.logprobs?.[i];
          if (logprob !== undefined) yield { type: 'logprobs', tokens: [this.#textLogprob(logprob)] };
          const { text, stopped: now } = stops.push(decoder.push(id));
          yield* read(text);
          if (!now) continue;
          reachedStop = true;
          stopped.abort();
          break;
        }
      } else {
        const rest = reachedStop ? '' : stops.flush() + decoder.flush();
        yield* read(rest);
        const finished = reader?.finish();
        yield* (finished?.events ?? []).filter(isDelta);
        const usage = { promptTokens: prompt.ids.length, cachedTokens, completionTokens };
        yield finishDelta(event, { usage, reachedStop, calledTools: finished?.calledTools ?? false });
      }
    }
  }

  #request(prompt: Prompt, options: GenerationOptions): GenerateRequest {
    const { contextTokens } = this.engine.info;
    const room = contextTokens - prompt.ids.length;
    if (room < 1)
      throw new UserError(
        'context_length_exceeded',
        `this model's maximum context length is ${contextTokens} tokens, the prompt has ${prompt.ids.length} and leaves no room for an answer`,
        { param: 'messages' },
      );
    return {
      ids: prompt.ids,
      maxTokens: Math.min(options.maxTokens ?? room, room),
      sampling: options.sampling,
      stopIds: this.#parts.stopIds,
      boundaries: prompt.boundaries,
      topLogprobs: options.topLogprobs,
    };
  }

  #textLogprob({ id, logprob, top }: TokenLogprob): TextLogprob {
    const text = (token: number): { token: string; bytes: number[] } => ({
      token: this.tokenizer.decode([token]),
      bytes: [...this.tokenizer.idToBytes(token)],
    });
    return { ...text(id), logprob, top: top.map((other) => ({ ...text(other.id), logprob: other.logprob })) };
  }
}

/** The end of a call shows in what follows it. */
function isDelta(event: ReaderEvent): event is Exclude<ReaderEvent, { type: 'tool-end' }> {
  return event.type !== 'tool-end';
}

function finishDelta(
  { reason, stats }: EngineEnd,
  { usage, reachedStop, calledTools }: { usage: Usage; reachedStop: boolean; calledTools: boolean },
): Delta {
  const ended = reachedStop ? 'stop' : reason;
  return { type: 'finish', reason: ended === 'stop' && calledTools ? 'tool_calls' : ended, usage, stats };
}

/** A whole answer from its deltas, for callers that do not stream. */
export interface Answer {
  readonly reasoning: string;
  readonly content: string;
  readonly toolCalls: readonly { readonly id: string; readonly name: string; readonly arguments: string }[];
  readonly logprobs: readonly TextLogprob[];
  readonly start: Extract<Delta, { type: 'start' }>;
  readonly finish: Extract<Delta, { type: 'finish' }>;
}

export async function collectAnswer(deltas: AsyncIterable<Delta>): Promise<Answer> {
  const text = { reasoning: '', content: '' };
  const calls: { id: string; name: string; arguments: string }[] = [];
  const logprobs: TextLogprob[] = [];
  let start: Answer['start'] | null = null;
  let finish: Answer['finish'] | null = null;
  for await (const delta of deltas) {
    if (delta.type === 'start') start = delta;
    else if (delta.type === 'finish') finish = delta;
    else if (delta.type === 'logprobs') logprobs.push(...delta.tokens);
    else if (delta.type === 'tool-start')
      calls[delta.index] = { id: delta.id, name: delta.name, arguments: '' };
    else if (delta.type === 'tool-args') present(calls[delta.index], 'call').arguments += delta.fragment;
    else text[delta.type] += delta.text;
  }
  return {
    ...text,
    toolCalls: calls,
    logprobs,
    start: present(start, 'start'),
    finish: present(finish, 'finish'),
  };
}
