/** `/v1/chat/completions` and `/v1/completions`: deltas to OpenAI's objects, whole or streamed. */
import type { ServerResponse } from 'node:http';
import type { Answer, Delta, TextLogprob } from '../../completion/index.ts';
import { EventStream } from '../sse.ts';
import { type UsageOptions, usageBody, usageComment } from './usage.ts';

/** Identity of one answer. */
export interface AnswerHead {
  readonly id: string;
  readonly created: number;
  readonly model: string;
}

export interface StreamOptions extends UsageOptions {
  readonly head: AnswerHead;
  readonly includeUsage: boolean;
  /** Opens the stream; called at the first delta, so that errors before it keep their status. */
  readonly open: () => ServerResponse;
}

/** JSON has no -Infinity; OpenAI's least log-probability stands for it. */
const finite = (logprob: number): number => Math.max(logprob, -9999);

const chatLogprob = ({ token, bytes, logprob, top }: TextLogprob) => ({
  token,
  logprob: finite(logprob),
  bytes,
  top_logprobs: top.map((other) => ({ ...other, logprob: finite(other.logprob) })),
});

export function chatBody({ id, created, model }: AnswerHead, answer: Answer, options: UsageOptions) {
  const calls = answer.toolCalls.map((call) => ({
    id: call.id,
    type: 'function',
    function: { name: call.name, arguments: call.arguments },
  }));
  const message = {
    role: 'assistant',
    content: answer.content === '' && calls.length > 0 ? null : answer.content,
    ...(answer.reasoning === '' ? {} : { reasoning_content: answer.reasoning }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
  const logprobs = answer.logprobs.length === 0 ? null : { content: answer.logprobs.map(chatLogprob) };
  const choice = { index: 0, message, logprobs, finish_reason: answer.finish.reason };
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    choices: [choice],
    usage: usageBody(answer.finish, options),
  };
}

export function textBody({ id, created, model }: AnswerHead, answer: Answer, options: UsageOptions) {
  const logprobs = answer.logprobs.length === 0 ? null : textLogprobs(answer.logprobs);
  const choice = {
    index: 0,
    text: answer.content,
    logprobs,
    finish_reason: answer.finish.reason,
  };
  return {
    id,
    object: 'text_completion',
    created,
    model,
    choices: [choice],
    usage: usageBody(answer.finish, options),
  };
}

function textLogprobs(tokens: readonly TextLogprob[]) {
  return {
    tokens: tokens.map(({ token }) => token),
    token_logprobs: tokens.map(({ logprob }) => finite(logprob)),
    top_logprobs: tokens.map(({ top }) =>
      Object.fromEntries(top.map(({ token, logprob }) => [token, finite(logprob)])),
    ),
  };
}

/** The delta of a chat chunk, or null where a delta has none. */
function chatDelta(delta: Delta): Record<string, unknown> | null {
  switch (delta.type) {
    case 'reasoning':
      return { reasoning_content: delta.text };
    case 'content':
      return { content: delta.text };
    case 'tool-start':
      return {
        tool_calls: [
          {
            index: delta.index,
            id: delta.id,
            type: 'function',
            function: { name: delta.name, arguments: '' },
          },
        ],
      };
    case 'tool-args':
      return { tool_calls: [{ index: delta.index, function: { arguments: delta.fragment } }] };
    default:
      return null;
  }
}

/** Streams deltas as chat chunks: the role first, then what the model writes, the reason of the end, `[DONE]`. */
export async function streamChat(deltas: AsyncIterable<Delta>, options: StreamOptions): Promise<Finish> {
  const { head, includeUsage } = options;
  const base = { id: head.id, object: 'chat.completion.chunk', created: head.created, model: head.model };
  const usage = includeUsage ? { usage: null } : {};
  const chunk = (
    delta: Record<string, unknown>,
    finish: string | null = null,
    logprobs: unknown = undefined,
  ) => ({
    ...base,
    choices: [{ index: 0, delta, ...(logprobs === undefined ? {} : { logprobs }), finish_reason: finish }],
    ...usage,
  });
  return stream(deltas, options, {
    start: () => chunk({ role: 'assistant', content: '' }),
    delta: (delta) => {
      if (delta.type === 'logprobs') return chunk({}, null, { content: delta.tokens.map(chatLogprob) });
      const json = chatDelta(delta);
      return json === null ? null : chunk(json);
    },
    finish: (reason) => chunk({}, reason),
    usage: (body) => ({ ...base, choices: [], usage: body }),
  });
}

/** The same for raw completions. */
export async function streamText(deltas: AsyncIterable<Delta>, options: StreamOptions): Promise<Finish> {
  const { head, includeUsage } = options;
  const base = { id: head.id, object: 'text_completion', created: head.created, model: head.model };
  const usage = includeUsage ? { usage: null } : {};
  const chunk = (text: string, finish: string | null = null, logprobs: unknown = null) => ({
    ...base,
    choices: [{ index: 0, text, logprobs, finish_reason: finish }],
    ...usage,
  });
  return stream(deltas, options, {
    start: () => null,
    delta: (delta) =>
      delta.type === 'content'
        ? chunk(delta.text)
        : delta.type === 'logprobs'
          ? chunk('', null, textLogprobs(delta.tokens))
          : null,
    finish: (reason) => chunk('', reason),
    usage: (body) => ({ ...base, choices: [], usage: body }),
  });
}

/** How an answer began and ended. A cancelled one is left open: whoever cancelled it knows what to say. */
export type Finish = Pick<Answer, 'start' | 'finish'>;

interface Shape {
  start(): unknown;
  delta(delta: Delta): unknown;
  finish(reason: string): unknown;
  usage(body: unknown): unknown;
}

async function stream(deltas: AsyncIterable<Delta>, options: StreamOptions, shape: Shape): Promise<Finish> {
  let events: EventStream | null = null;
  let start: Finish['start'] = null;
  for await (const delta of deltas) {
    if (delta.type === 'finish' && delta.reason === 'cancelled') return { start, finish: delta };
    if (events === null) {
      events = new EventStream(options.open());
      const first = shape.start();
      if (first !== null) await events.send(first);
    }
    if (delta.type === 'start') start = delta;
    else if (delta.type !== 'finish') {
      const json = shape.delta(delta);
      if (json !== null) await events.send(json);
    } else {
      await events.send(shape.finish(delta.reason));
      if (options.includeUsage) await events.send(shape.usage(usageBody(delta, options)));
      await events.comment(`usage ${JSON.stringify(usageComment(delta))}`);
      await events.done();
      return { start, finish: delta };
    }
  }
  throw new Error('an answer ended without its finish');
}
