/** Bad requests: each gets a clear error in OpenAI's shape, reaches no engine, and the server still answers. */
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type StubServer, serveStub, userSays } from './support/serve-stub.ts';

let server: StubServer;
beforeAll(async () => {
  server = await serveStub(() => ({ text: 'fine' }), { contextTokens: 400, bodyLimitBytes: 2 * 2 ** 20 });
});
afterAll(() => server.close());

interface Refusal {
  readonly status: number;
  readonly message: RegExp;
  readonly param?: string | null;
  readonly code?: string;
}

async function expectRefusal(response: Response, { status, message, param, code }: Refusal): Promise<void> {
  const body = (await response.json()) as { error: Record<string, unknown> };
  expect(response.headers.get('content-type')).toContain('application/json');
  expect(Object.keys(body)).toEqual(['error']);
  expect(Object.keys(body.error).sort()).toEqual(['code', 'message', 'param', 'type']);
  expect(body.error.message).toMatch(message);
  expect(response.status).toBe(status);
  if (param !== undefined) expect(body.error.param).toBe(param);
  if (code !== undefined) expect(body.error.code).toBe(code);
}

async function expectAlive(): Promise<void> {
  const before = server.engine.requests.length;
  const answer = await server.chat();
  expect(answer.status).toBe(200);
  expect(await answer.text()).toContain('fine');
  expect(server.engine.requests.length).toBe(before + 1);
}

const deep = (levels: number): string => `${'{"a":'.repeat(levels)}1${'}'.repeat(levels)}`;

const wrongFields: [name: string, body: Record<string, unknown>, param: string, message: RegExp][] = [
  [
    'a model that is not served',
    { model: 'gpt-9' },
    'model',
    /'gpt-9' does not exist, this server has 'stub'/,
  ],
  ['a model that is a number', { model: 4 }, 'model', /model is the number 4, expected a text/],
  ['no model', { model: undefined }, 'model', /missing/],
  ['no messages', { messages: undefined }, 'messages', /missing/],
  ['empty messages', { messages: [] }, 'messages', /empty list/],
  ['messages as text', { messages: 'hi' }, 'messages', /the text "hi", expected a list/],
  ['a message that is none', { messages: [3] }, 'messages[0]', /the number 3/],
  ['a message without a role', { messages: [{ content: 'x' }] }, 'messages[0].role', /nothing/],
  [
    'content of a wrong type',
    { messages: [{ role: 'user', content: 5 }] },
    'messages[0].content',
    /number 5/,
  ],
  [
    'a part without a type',
    { messages: [{ role: 'user', content: [{ text: 'x' }] }] },
    'messages[0].content[0].type',
    /nothing, supported is text/,
  ],
  [
    'a part without text',
    { messages: [{ role: 'user', content: [{ type: 'text' }] }] },
    'messages[0].content[0].text',
    /nothing/,
  ],
  [
    'reasoning as a list',
    { messages: [{ role: 'assistant', reasoning_content: [] }] },
    'messages[0].reasoning_content',
    /a list/,
  ],
  [
    'calls as text',
    { messages: [{ role: 'assistant', tool_calls: 'f' }] },
    'messages[0].tool_calls',
    /expected a list/,
  ],
  [
    'a call without a function',
    { messages: [{ role: 'assistant', tool_calls: [{}] }] },
    'messages[0].tool_calls[0]',
    /function call/,
  ],
  ['temperature as text', { temperature: 'hot' }, 'temperature', /the text "hot", expected a number/],
  ['temperature out of range', { temperature: -1 }, 'temperature', /-1, expected a number from 0/],
  ['top_p out of range', { top_p: 1.5 }, 'top_p', /1.5/],
  ['top_k as a fraction', { top_k: 1.5 }, 'top_k', /whole number/],
  ['a penalty out of range', { presence_penalty: 3 }, 'presence_penalty', /from -2 to 2/],
  ['a bias on a word', { logit_bias: { word: 1 } }, 'logit_bias', /'word', expected a token id/],
  ['a bias that is true', { logit_bias: { '1': true } }, 'logit_bias.1', /expected a number/],
  ['a bias out of range', { logit_bias: { '1': 101 } }, 'logit_bias', /-100 to 100/],
  ['a seed that is a fraction', { seed: 1.5 }, 'seed', /whole number/],
  ['max_tokens of zero', { max_tokens: 0 }, 'max_tokens', /whole number from 1/],
  ['max_tokens as text', { max_tokens: '5' }, 'max_tokens', /the text "5"/],
  ['nine answers', { n: 9 }, 'n', /9, the limit is 8/],
  ['no answer', { n: 0 }, 'n', /from 1/],
  ['stream as text', { stream: 'yes' }, 'stream', /true or false/],
  ['stream options as a list', { stream_options: [] }, 'stream_options', /an object/],
  [
    'include_usage as a number',
    { stream_options: { include_usage: 1 } },
    'stream_options.include_usage',
    /number 1/,
  ],
  ['17 stop strings', { stop: Array(17).fill('x') }, 'stop', /17 entries, the limit is 16/],
  ['an empty stop string', { stop: [''] }, 'stop[0]', /not empty/],
  ['top_logprobs without logprobs', { top_logprobs: 3 }, 'top_logprobs', /needs logprobs/],
  ['21 top_logprobs', { logprobs: true, top_logprobs: 21 }, 'top_logprobs', /limit is 20/],
  ['tools as an object', { tools: {} }, 'tools', /expected a list/],
  ['a tool without a name', { tools: [{ type: 'function', function: {} }] }, 'tools[0]', /name/],
  ['template variables as text', { chat_template_kwargs: 'x' }, 'chat_template_kwargs', /an object/],
  [
    'thinking as text',
    { chat_template_kwargs: { enable_thinking: 'no' } },
    'chat_template_kwargs.enable_thinking',
    /true or false/,
  ],
  ['parallel_tool_calls as a number', { parallel_tool_calls: 1 }, 'parallel_tool_calls', /true or false/],
  ['an unknown role', { messages: [...userSays('x'), { role: 'wizard' }] }, 'messages[1].role', /wizard/],
  [
    'an effort that does not exist',
    { reasoning_effort: 'extreme' },
    'reasoning_effort',
    /"extreme", expected one of none/,
  ],
  [
    'a bias on a token that does not exist',
    { logit_bias: { '900000': 1 } },
    'logit_bias',
    /token 900000, which does not exist/,
  ],
  [
    'parameters of a tool as text',
    { tools: [{ type: 'function', function: { name: 'f', parameters: 'x' } }] },
    'tools[0].function.parameters',
    /the text "x", expected an object/,
  ],
  ['a least length', { min_tokens: 5 }, 'min_tokens', /not supported/],
];

describe('a chat request', () => {
  it.each(wrongFields)('with %s is refused', async (_name, body, param, message) => {
    const before = server.engine.requests.length;
    const response = await server.chat(body);
    await expectRefusal(response, { status: body.model === 'gpt-9' ? 404 : 400, message, param });
    expect(server.engine.requests.length).toBe(before);
    await expectAlive();
  });

  it('that fills the context is refused with the numbers, streamed or not', async () => {
    for (const stream of [false, true]) {
      const response = await server.chat({ messages: userSays('word '.repeat(500)), stream });
      await expectRefusal(response, {
        status: 400,
        message: /maximum context length is 400 tokens, the prompt has \d+ tokens/,
        param: 'messages',
        code: 'context_length_exceeded',
      });
    }
    await expectAlive();
  });
});

describe('a raw completion', () => {
  it.each<[string, Record<string, unknown>, string, RegExp]>([
    ['no prompt', {}, 'prompt', /nothing/],
    ['an empty prompt', { prompt: '' }, 'prompt', /0 tokens/],
    ['an empty list', { prompt: [] }, 'prompt', /0 tokens/],
    ['two prompts', { prompt: ['a', 'b'] }, 'prompt', /2 entries, only 1/],
    ['a token beyond 32 bits', { prompt: [2 ** 32 + 5] }, 'prompt[0]', /4294967301/],
    ['a negative token', { prompt: [5, -1] }, 'prompt[1]', /-1/],
    ['a token that does not exist', { prompt: [8192] }, 'prompt', /token 8192/],
    ['echo', { prompt: 'x', echo: true }, 'echo', /not supported/],
    ['too many tokens', { prompt: 'word '.repeat(500) }, 'prompt', /maximum context length is 400/],
  ])('with %s is refused', async (_name, body, param, message) => {
    await expectRefusal(await server.post('/v1/completions', { model: 'stub', ...body }), {
      status: 400,
      message,
      param,
    });
    await expectAlive();
  });
});

describe('a body', () => {
  const post = (body: string) => server.post('/v1/chat/completions', body);
  const garbage = 1024 * 1024;

  it.each<[string, string, RegExp]>([
    ['of 1 MB of brackets', '['.repeat(garbage), /nested more than 256 levels/],
    ['of 1 MB of noise', '\u0000x'.repeat(garbage / 2), /the request body is not valid JSON/],
    ['of 1 MB without an end', `{"model": "${'x'.repeat(garbage)}`, /the end of the string/],
    ['that is cut off', '{"model": "stub", "messages": [', /not valid JSON.*found the end/],
    ['that is a list', '[]', /body is a list, expected an object/],
    ['that is empty', '', /body|JSON/],
    [
      'with a tool schema of 1,000 levels',
      `{"model":"stub","messages":[],"tools":[${deep(1000)}]}`,
      /nested more than 256 levels/,
    ],
  ])('%s is refused', async (_name, body, message) => {
    await expectRefusal(await post(body), { status: 400, message });
    await expectAlive();
  });

  it('over the limit is refused with the limit', async () => {
    const response = await post(
      JSON.stringify({ model: 'stub', messages: userSays('x'.repeat(3 * 2 ** 20)) }),
    );
    await expectRefusal(response, {
      status: 413,
      message: /limit of 2097152 bytes/,
      code: 'request_too_large',
    });
    await expectAlive();
  });

  it('without a content type, or with another, is read as JSON', async () => {
    const body = Buffer.from(JSON.stringify({ model: 'stub', messages: userSays('x') }));
    for (const type of ['', 'text/plain', 'application/json; charset=utf-8']) {
      const init = {
        method: 'POST',
        body,
        headers: new Headers(type === '' ? [] : [['content-type', type]]),
      };
      expect((await fetch(`${server.url}/v1/chat/completions`, init)).status, type).toBe(200);
    }
  });

  it('that tries to reach prototypes changes nothing', async () => {
    const body =
      '{"model":"stub","messages":[{"role":"user","content":"x"}],"__proto__":{"stream":true},"constructor":1}';
    const response = await post(body);
    expect(response.headers.get('content-type')).toContain('application/json');
    expect(({} as Record<string, unknown>).stream).toBeUndefined();
    await expectAlive();
  });
});

describe('a path', () => {
  it.each<[string, string, number]>([
    ['GET', '/nowhere', 404],
    ['GET', '/v1/chat/completions', 404],
    ['POST', '/v1/embeddings', 400],
    ['PUT', '/v1/chat/completions', 404],
    ['GET', '/v1/models/other', 404],
    ['GET', '/%zz', 400],
  ])('%s %s is refused', async (method, path, status) => {
    const response = await fetch(`${server.url}${path}`, { method });
    await expectRefusal(response, { status, message: /./ });
    await expectAlive();
  });
});

it.each([['not JSON'], ['{"a":'], ['x'.repeat(2 ** 20)]])(
  'says of an unknown path that it does not exist, whatever the body',
  async (body) => {
    const response = await server.post('/v1/nowhere', body);
    await expectRefusal(response, { status: 404, message: /POST \/v1\/nowhere does not exist/ });
  },
);

it('refuses bytes that are not HTTP, in the same shape', async () => {
  const { port } = new URL(server.url);
  const answer = await new Promise<string>((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1', () => socket.write('\x16\x03\x01 hello\r\n\r\n'));
    let text = '';
    socket.on('data', (bytes) => {
      text += bytes;
    });
    socket.on('close', () => resolve(text));
    socket.on('error', reject);
  });
  expect(answer).toMatch(/^HTTP\/1\.1 400 /);
  expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '').error.message).toContain('not valid HTTP');
  await expectAlive();
});

it('logs refusals as such, with their status, not as failures', async () => {
  await server.chat({ temperature: 'hot' });
  expect(server.log.at(-1)).toMatchObject({ level: 30, msg: 'refused', status: 400, param: 'temperature' });
  expect(server.log.some((line) => line.msg === 'a request failed')).toBe(false);
});
