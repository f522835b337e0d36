/** One response, from its request to its last event: the deltas become items, and the body tells of all of it. */
import { randomUUID } from 'node:crypto';
import type { JsonObject } from '../../chat/index.ts';
import type { Delta } from '../../completion/index.ts';
import {
  type AnswerHead,
  type Call,
  event,
  eventStream,
  type FinishDelta,
  type ReadContext,
  type StreamWriter,
} from '../api.ts';
import { speculationBody, sumOfUsage, type UsageOptions } from '../openai/usage.ts';
import { type ItemEvent, Output } from './output.ts';
import type { ResponsesRequest } from './request.ts';
import type { ResponseState } from './state.ts';
import { fitted } from './truncate.ts';

type Status = 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'cancelled';

export class ResponseRun {
  readonly #read: ResponsesRequest;
  readonly #context: ReadContext;
  readonly #state: ResponseState;
  readonly #output: Output;
  readonly #abort = new AbortController();
  #finish: FinishDelta | null = null;
  #sequence = 0;
  /** Takes this out of what runs. */
  #leave: () => void = () => undefined;

  constructor(read: ResponsesRequest, context: ReadContext, state: ResponseState) {
    this.#read = read;
    this.#context = context;
    this.#state = state;
    const { tools, sealsReasoning, request } = read;
    this.#output = new Output({
      byName: tools.byName,
      sealsReasoning,
      hasLogprobs: request.topLogprobs !== null,
    });
  }

  call(): Call {
    const { model, stream, unknown, notes } = this.#read;
    return {
      model,
      stream,
      choices: 1,
      generate: (_choice, signal) => this.#generate(signal),
      whole: (head) => this.body(head),
      writer: (head) => this.#writer(head),
      keep: (head) => this.#keep(head),
      unknown,
      notes,
    };
  }

  get stores(): boolean {
    return this.#read.stores;
  }

  /** Stops what runs; the response is 'cancelled' from then on. */
  cancel(): void {
    this.#abort.abort();
  }

  /** As it is now. */
  body(head: AnswerHead, error: JsonObject | null = null): JsonObject {
    const status = this.#status(error);
    const finish = this.#finish;
    return {
      id: head.id,
      object: 'response',
      created_at: head.created,
      status,
      completed_at: status === 'completed' ? Math.floor(Date.now() / 1000) : null,
      error,
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      model: head.model,
      ...this.#read.echo,
      output: this.#output.items,
      usage: finish === null ? null : usageBody(finish, this.#context),
    };
  }

  #status(error: JsonObject | null): Status {
    if (error !== null) return 'failed';
    if (this.#abort.signal.aborted) return 'cancelled';
    if (this.#finish === null) return 'in_progress';
    return this.#finish.reason === 'length' ? 'incomplete' : 'completed';
  }

  #generate(signal: AbortSignal): AsyncIterable<Delta> {
    const { completion } = this.#context;
    const { request, truncates } = this.#read;
    const either = AbortSignal.any([signal, this.#abort.signal]);
    const told = truncates ? fitted(request, completion) : request;
    return this.#watch(completion.chat(told, either), signal);
  }

  /** Takes part in what passes by. A response that its client cancelled ends like any other. */
  async *#watch(deltas: AsyncIterable<Delta>, signal: AbortSignal): AsyncGenerator<Delta> {
    try {
      for await (const delta of deltas) {
        const isCancel = delta.type === 'finish' && this.#abort.signal.aborted && !signal.aborted;
        const passed: Delta = isCancel ? { ...delta, reason: 'stop' } : delta;
        if (passed.type === 'finish') this.#finish = passed;
        if (!this.#read.stream) this.#output.add(passed);
        yield passed;
      }
    } finally {
      this.#leave();
    }
  }

  #keep(head: AnswerHead): void {
    if (!this.#read.stores) return;
    const input = this.#read.items.map((item) =>
      typeof item.id === 'string' ? item : { ...item, id: `item_${randomUUID().replaceAll('-', '')}` },
    );
    const body = this.body(head);
    const { caller, log } = this.#context;
    const kept = this.#state.store.add(caller, { id: head.id, body, input, output: this.#output.items });
    if (!kept) log({}, 'the response is larger than the store and is not kept');
  }

  #writer(head: AnswerHead): StreamWriter {
    const send = (item: ItemEvent): string =>
      event({ ...item, sequence_number: this.#sequence++ }, item.type);
    const tell = (type: string): string => send({ type, response: this.body(head) });
    this.#leave = this.#state.enter(this.#context.caller, head, this);
    return {
      contentType: eventStream,
      open: () => tell('response.created') + tell('response.in_progress'),
      delta: (delta) => this.#output.add(delta).map(send).join(''),
      end: () => {
        const isWhole = this.#status(null) === 'completed';
        return tell(isWhole ? 'response.completed' : 'response.incomplete');
      },
      fail: (body) => {
        this.#leave();
        return this.#failure(head, body).map(send).join('');
      },
      ping: () => ': still here\n\n',
    };
  }

  /** Clients look for the one or the other. */
  #failure(head: AnswerHead, body: unknown): ItemEvent[] {
    const { error } = body as { readonly error: JsonObject };
    const { message = '', code = null, param = null } = error;
    const told = { code: code ?? 'server_error', message };
    return [
      { type: 'error', code, message, param, error },
      { type: 'response.failed', response: this.body(head, told) },
    ];
  }
}

function usageBody(finish: FinishDelta, { usageDetails }: UsageOptions): JsonObject {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = sumOfUsage([finish]);
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
    ...(usageDetails ? { speculation: speculationBody(finish.stats) as unknown as JsonObject } : {}),
  };
}
