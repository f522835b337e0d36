/** `/v1/chat/completions` and `/v1/completions`: deltas to OpenAI's objects, whole or streamed. */
import type { Answer, Delta, TextLogprob } from '../../completion/index.ts';
import { type AnswerHead, comment, event, eventStream, type FinishDelta, type StreamWriter } from '../api.ts';
import type { ReadTools } from './tools.ts';
import { type UsageOptions, usageBody, usageComment } from './usage.ts';

/** JSON has no -Infinity; OpenAI's least log-probability stands for it. */
const finite = (logprob: number): number => Math.max(logprob, -9999);

const chatLogprob = ({ token, bytes, logprob, top }: TextLogprob) => ({
  token,
  logprob: finite(logprob),
  bytes,
  top_logprobs: top.map((other) => ({ ...other, logprob: finite(other.logprob) })),
});

/** How calls are told: see `ReadTools`. */
export type CallShape = Pick<ReadTools, 'legacy' | 'named'>;

/** A tool that the request names is no choice of the model: OpenAI says 'stop' then. */
function finishReason(reason: FinishDelta['reason'], { legacy, named }: CallShape): string {
  if (reason !== 'tool_calls') return reason;
  return named ? 'stop' : legacy ? 'function_call' : reason;
}

export function chatBody(
  { id, created, model }: AnswerHead,
  answers: readonly Answer[],
  options: UsageOptions & CallShape,
) {
  return {
    id,
    object: 'chat.completion',
    created,
    model,
    choices: answers.map((answer, index) => chatChoice(answer, index, options)),
    usage: usageBody(
      answers.map(({ finish }) => finish),
      options,
    ),
  };
}

function chatChoice(answer: Answer, index: number, shape: CallShape) {
  const calls = answer.toolCalls.map((call) => ({
    id: call.id,
    type: 'function',
    function: { name: call.name, arguments: call.arguments },
  }));
  const message = {
    role: 'assistant',
    content: answer.content === '' && calls.length > 0 ? null : answer.content,
    ...(answer.reasoning === '' ? {} : { reasoning_content: answer.reasoning }),
    ...(calls.length === 0
      ? {}
      : shape.legacy
        ? { function_call: calls[0]?.function }
        : { tool_calls: calls }),
  };
  const logprobs = answer.logprobs.length === 0 ? null : { content: answer.logprobs.map(chatLogprob) };
  return { index, message, logprobs, finish_reason: finishReason(answer.finish.reason, shape) };
}

export function textBody(
  { id, created, model }: AnswerHead,
  answers: readonly Answer[],
  options: UsageOptions,
) {
  return {
    id,
    object: 'text_completion',
    created,
    model,
    choices: answers.map((answer, index) => ({
      index,
      text: answer.content,
      logprobs: answer.logprobs.length === 0 ? null : textLogprobs(answer.logprobs),
      finish_reason: answer.finish.reason,
    })),
    usage: usageBody(
      answers.map(({ finish }) => finish),
      options,
    ),
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
function chatDelta(delta: Delta, { legacy }: CallShape): Record<string, unknown> | null {
  if (legacy && delta.type === 'tool-start') return { function_call: { name: delta.name, arguments: '' } };
  if (legacy && delta.type === 'tool-args') return { function_call: { arguments: delta.fragment } };
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

export interface WriterOptions extends UsageOptions {
  readonly includeUsage: boolean;
  readonly choices: number;
}

/** The role first, then what the model writes, the reason of each end, usage if asked for, `[DONE]`. */
export function chatWriter(head: AnswerHead, options: WriterOptions & CallShape): StreamWriter {
  const { chunk, ...rest } = streamOf(head, 'chat.completion.chunk', options);
  const roles = Array.from({ length: options.choices }, (_, index) =>
    chunk({ index, delta: { role: 'assistant', content: '' }, finish_reason: null }),
  );
  return {
    ...rest,
    open: () => roles.join(''),
    delta: (delta, index) => {
      if (delta.type === 'finish')
        return chunk({ index, delta: {}, finish_reason: finishReason(delta.reason, options) });
      if (delta.type === 'logprobs') {
        const logprobs = { content: delta.tokens.map(chatLogprob) };
        return chunk({ index, delta: {}, logprobs, finish_reason: null });
      }
      const json = chatDelta(delta, options);
      return json === null ? '' : chunk({ index, delta: json, finish_reason: null });
    },
  };
}

/** The same for raw completions. */
export function textWriter(head: AnswerHead, options: WriterOptions): StreamWriter {
  const { chunk, ...rest } = streamOf(head, 'text_completion', options);
  const text = (index: number, words: string, more: Record<string, unknown> = {}): string =>
    chunk({ index, text: words, logprobs: null, finish_reason: null, ...more });
  return {
    ...rest,
    open: () => '',
    delta: (delta, index) => {
      if (delta.type === 'content') return text(index, delta.text);
      if (delta.type === 'logprobs') return text(index, '', { logprobs: textLogprobs(delta.tokens) });
      return delta.type === 'finish' ? text(index, '', { finish_reason: delta.reason }) : '';
    },
  };
}

/** What both kinds of stream share. */
function streamOf({ id, created, model }: AnswerHead, object: string, options: WriterOptions) {
  const base = { id, object, created, model };
  const usage = options.includeUsage ? { usage: null } : {};
  const done = event('[DONE]');
  return {
    contentType: eventStream,
    chunk: (choice: unknown): string => event({ ...base, choices: [choice], ...usage }),
    end: (finishes: readonly FinishDelta[]): string =>
      [
        options.includeUsage ? event({ ...base, choices: [], usage: usageBody(finishes, options) }) : '',
        comment(`usage ${JSON.stringify(usageComment(finishes))}`),
        done,
      ].join(''),
    fail: (body: unknown): string => event(body) + done,
    ping: (): string => comment('still here'),
  };
}
