/** The official `openai` client against the server: chat, streaming, tools in a loop, errors, abort. */
import OpenAI from 'openai';
import type { RunnableToolFunctionWithParse } from 'openai/lib/RunnableFunction';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type StubServer, serveStub } from './support/serve-stub.ts';
import { type StubScript, until } from './support/stub-engine.ts';

const user = { role: 'user', content: 'what is 2 + 3?' } as const;
const add: OpenAI.ChatCompletionFunctionTool = {
  type: 'function',
  function: {
    name: 'add',
    description: 'adds two numbers',
    parameters: {
      type: 'object',
      properties: { a: { type: 'number' }, b: { type: 'number' } },
      required: ['a', 'b'],
    },
  },
};

/** Asks for the tool until the prompt holds its result, then tells it. */
const agent: StubScript = (prompt) => {
  const result = /<tool_response>\n(.*)\n<\/tool_response>/.exec(prompt)?.[1];
  return result === undefined
    ? {
        text: 'Adding.\n\n<tool_call>\n<function=add>\n<parameter=a>\n2\n</parameter>\n<parameter=b>\n3\n</parameter>\n</function>\n</tool_call>',
      }
    : { text: `It is ${result}.` };
};

let server: StubServer;
let client: OpenAI;
async function open(script: StubScript, options: Parameters<typeof serveStub>[1] = {}): Promise<void> {
  server = await serveStub(script, { apiKey: 'key', ...options });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'key', maxRetries: 0 });
}
beforeEach(() => open(agent));
afterEach(() => server.close());

describe('the openai client', () => {
  it('lists and retrieves the model', async () => {
    const { data } = await client.models.list();
    expect(data.map(({ id }) => id)).toEqual(['stub']);
    expect((await client.models.retrieve('stub')).id).toBe('stub');
  });

  it('gets an answer, whole and streamed, the same', async () => {
    await server.close();
    await open(() => ({ text: 'Hello there, 👋 friend.' }));
    const whole = await client.chat.completions.create({ model: 'stub', messages: [user] });
    expect(whole.choices[0]?.message.content).toBe('Hello there, 👋 friend.');
    const stream = client.chat.completions.stream({
      model: 'stub',
      messages: [user],
      stream_options: { include_usage: true },
    });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]?.message.content).toBe('Hello there, 👋 friend.');
    expect(final.choices[0]?.finish_reason).toBe('stop');
    expect(final.usage?.completion_tokens).toBe(whole.usage?.completion_tokens);
    expect(final.usage?.prompt_tokens_details?.cached_tokens).toBeGreaterThan(0);
  });

  it('gets log-probabilities of every token, streamed', async () => {
    await server.close();
    await open(() => ({ text: 'Hello there' }));
    const stream = client.chat.completions.stream({
      model: 'stub',
      messages: [user],
      logprobs: true,
      top_logprobs: 1,
    });
    const final = await stream.finalChatCompletion();
    const tokens = final.choices[0]?.logprobs?.content ?? [];
    expect(tokens.map(({ token }) => token).join('')).toBe('Hello there');
  });

  it('assembles a streamed tool call', async () => {
    const stream = client.chat.completions.stream({ model: 'stub', messages: [user], tools: [add] });
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]?.finish_reason).toBe('tool_calls');
    const [call] = final.choices[0]?.message.tool_calls ?? [];
    expect(call).toMatchObject({ type: 'function', function: { name: 'add' } });
    expect(call?.type === 'function' && JSON.parse(call.function.arguments)).toEqual({ a: 2, b: 3 });
  });

  it.each([false, true])('runs a loop with a real tool, stream %s', async (stream) => {
    const made: unknown[] = [];
    const runnable: RunnableToolFunctionWithParse<{ a: number; b: number }> = {
      type: 'function',
      function: {
        ...{ name: 'add', description: 'adds two numbers', parameters: { ...add.function.parameters } },
        parse: (text) => JSON.parse(text),
        function: (args) => {
          made.push(args);
          return String(args.a + args.b);
        },
      },
    };
    const runner = stream
      ? client.chat.completions.runTools({ model: 'stub', messages: [user], tools: [runnable], stream: true })
      : client.chat.completions.runTools({ model: 'stub', messages: [user], tools: [runnable] });
    expect(await runner.finalContent()).toBe('It is 5.');
    expect(made).toEqual([{ a: 2, b: 3 }]);
    expect(server.engine.requests).toHaveLength(2);
  });

  it('cancels the generation when a stream is aborted', async () => {
    await server.close();
    await open(() => ({ text: 'word '.repeat(300), gapMs: 5 }));
    const stream = await client.chat.completions.create({ model: 'stub', messages: [user], stream: true });
    let chunks = 0;
    for await (const _ of stream) if (++chunks === 5) break;
    await until(() => server.engine.ended.cancelled === 1, 'the cancellation');
    const abort = new AbortController();
    const whole = client.chat.completions.create(
      { model: 'stub', messages: [user] },
      { signal: abort.signal },
    );
    await until(() => server.engine.running === 1, 'the second request');
    abort.abort();
    await expect(whole).rejects.toThrow(OpenAI.APIUserAbortError);
    await until(() => server.engine.ended.cancelled === 2, 'the second cancellation');
  });

  it('recognizes our errors by their class, code and field', async () => {
    const create = (more: Record<string, unknown>) =>
      client.chat.completions.create({ model: 'stub', messages: [user], ...more });
    await expect(create({ model: 'other' })).rejects.toThrow(OpenAI.NotFoundError);
    await expect(create({ temperature: 500 })).rejects.toMatchObject({ status: 400, param: 'temperature' });
    await expect(
      create({ messages: [{ role: 'user', content: 'word '.repeat(5000) }] }),
    ).rejects.toMatchObject({ code: 'context_length_exceeded' });
    const stranger = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'no', maxRetries: 0 });
    await expect(stranger.models.list()).rejects.toThrow(OpenAI.AuthenticationError);
    expect(server.engine.requests).toHaveLength(0);
  });

  it('sees a failure in the middle of a stream as an error', async () => {
    await server.close();
    await open((_prompt, index) => ({ text: 'one two three', ...(index === 0 ? { failAfter: 1 } : {}) }));
    const read = async (): Promise<string> => {
      const stream = await client.chat.completions.create({ model: 'stub', messages: [user], stream: true });
      let text = '';
      for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
      return text;
    };
    await expect(read()).rejects.toThrow(OpenAI.APIError);
    expect(await read()).toBe('one two three');
  });

  it('waits and comes again when the queue is full', async () => {
    await server.close();
    await open(() => ({ text: 'word '.repeat(30), gapMs: 5 }), { maxSequences: 1, maxWaiting: 0 });
    const patient = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'key', maxRetries: 2 });
    const first = client.chat.completions.create({ model: 'stub', messages: [user] });
    await until(() => server.engine.running === 1, 'the first request');
    const second = await patient.chat.completions.create({ model: 'stub', messages: [user] });
    expect(second.choices[0]?.finish_reason).toBe('stop');
    await first;
    expect(server.log.filter((line) => line.status === 429)).toHaveLength(1);
  });

  it('continues raw text', async () => {
    await server.close();
    await open(() => ({ text: ' world' }));
    const whole = await client.completions.create({ model: 'stub', prompt: 'hello' });
    expect(whole.choices[0]?.text).toBe(' world');
    let text = '';
    const stream = await client.completions.create({ model: 'stub', prompt: 'hello', stream: true });
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? '';
    expect(text).toBe(' world');
  });
});
