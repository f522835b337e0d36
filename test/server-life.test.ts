/** Keys, queues, failures, clients that leave at every stage, and how the server stops. */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { eventsOf, type StubServer, serveStub, userSays } from './support/serve-stub.ts';
import { type StubScript, until } from './support/stub-engine.ts';

const servers: StubServer[] = [];
const serve = async (script: StubScript, options: Parameters<typeof serveStub>[1] = {}) => {
  const server = await serveStub(script, options);
  servers.push(server);
  return server;
};
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

const quick: StubScript = () => ({ text: 'fine' });
const slow: StubScript = () => ({ text: 'word '.repeat(400), gapMs: 5 });
const statusOf = async (answer: Promise<Response>): Promise<number> => (await answer).status;

/** A raw request, for clients that misbehave. */
async function rawRequest(server: StubServer, body: unknown, sent = 1): Promise<Socket> {
  const text = JSON.stringify(body);
  const head = `POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n`;
  const socket = connect(Number(new URL(server.url).port), '127.0.0.1');
  socket.on('error', () => undefined);
  await new Promise((resolve) => socket.once('connect', resolve));
  socket.write(head + text.slice(0, Math.ceil(text.length * sent)));
  return socket;
}
const slowBody = (stream: boolean) => ({ model: 'stub', messages: userSays('x'), stream });

describe('an API key', () => {
  const key = (text: string) => ({ headers: { authorization: text } });

  it('is needed for everything but the health page', async () => {
    const { chat, url } = await serve(quick, { apiKey: 'secret' });
    expect(await statusOf(chat({}, key('Bearer secret')))).toBe(200);
    expect(await statusOf(chat({}, key('bearer secret')))).toBe(200);
    for (const given of [
      'Bearer wrong',
      'Bearer secre',
      'Bearer secrets',
      'Basic secret',
      'secret',
      'Bearer ',
    ]) {
      const response = await chat({}, key(given));
      expect(response.status, given).toBe(401);
      expect(await response.json()).toMatchObject({
        error: { type: 'authentication_error', code: 'invalid_api_key', param: null },
      });
    }
    expect(await statusOf(chat())).toBe(401);
    expect(await statusOf(fetch(`${url}/v1/models`))).toBe(401);
    expect(await statusOf(fetch(`${url}/metrics`))).toBe(401);
    expect(await statusOf(fetch(`${url}/nowhere`))).toBe(401);
    expect(await statusOf(fetch(`${url}/health?deep=1`))).toBe(200);
  });

  it('that is empty is refused at the start', async () => {
    await expect(serveStub(quick, { apiKey: '' })).rejects.toMatchObject({ code: 'bad_option' });
  });
});

describe('a port', () => {
  it('in use is named, and the first server goes on', async () => {
    const first = await serve(quick);
    const port = Number(new URL(first.url).port);
    await expect(serveStub(quick, { port })).rejects.toMatchObject({
      code: 'bad_option',
      message: `port ${port} on 127.0.0.1 is in use`,
    });
    expect(await statusOf(first.chat())).toBe(200);
  });

  it('or an address that cannot be is refused', async () => {
    await expect(serveStub(quick, { port: 70_000 })).rejects.toThrow('port 70000 on 127.0.0.1 is not a port');
    await expect(serveStub(quick, { host: '192.0.2.1' })).rejects.toMatchObject({ code: 'bad_option' });
  });
});

describe('the queue', () => {
  it('that is full answers 429 and when to come again', async () => {
    const { chat, engine } = await serve(slow, { maxSequences: 1, maxWaiting: 1 });
    const abort = new AbortController();
    const held = [1, 2].map(() => chat({}, { signal: abort.signal }).catch(() => null));
    await until(() => engine.running === 1 && engine.waiting === 1, 'two requests');
    const response = await chat({ stream: true });
    expect(response.status).toBe(429);
    expect(response.headers.get('retry-after')).toBe('1');
    expect(await response.json()).toMatchObject({
      error: { type: 'rate_limit_error', code: 'too_many_requests' },
    });
    abort.abort();
    await Promise.all(held);
    await until(() => engine.running === 0, 'an empty engine');
  });
});

describe('a failure in the engine', () => {
  const failing =
    (failAfter: number): StubScript =>
    (prompt) =>
      prompt.includes('fail') ? { text: 'one two three four', failAfter } : { text: 'fine', gapMs: 10 };

  it.each([
    ['before the first event', -1],
    ['in prefill', 0],
    ['between tokens', 2],
  ])('%s is a 500 that tells nothing of the inside, and others go on', async (_name, failAfter) => {
    const { chat, log } = await serve(failing(failAfter));
    const other = chat();
    const response = await chat({ messages: userSays('fail') });
    const text = await response.text();
    expect(response.status).toBe(500);
    expect(JSON.parse(text).error).toMatchObject({ type: 'server_error', code: 'internal_error' });
    expect(text).not.toContain('the script fails');
    expect(log.filter((line) => line.msg === 'a request failed')).toHaveLength(1);
    expect(await (await other).text()).toContain('fine');
  });

  it('between tokens of a stream is an event in it', async () => {
    const { chat, url } = await serve(failing(2));
    const response = await chat({ messages: userSays('fail'), stream: true });
    const { json, data } = eventsOf(await response.text());
    expect(json.at(-1).error).toMatchObject({ type: 'server_error' });
    expect(data.at(-1)).toBe('[DONE]');
    expect(await (await fetch(`${url}/metrics`)).text()).toMatch(/finished_reason="error"[^}]*\} 1/);
    expect(await statusOf(chat())).toBe(200);
  });
});

describe('a client that leaves', () => {
  const cases: [stage: string, script: StubScript, stream: boolean][] = [false, true].flatMap((stream) => [
    [`in prefill, stream ${stream}`, () => ({ text: 'x', prefillMs: 60_000 }), stream],
    [`between tokens, stream ${stream}`, slow, stream],
  ]);

  it.each(cases)('%s cancels its generation', async (_stage, script, stream) => {
    let first = true;
    const { chat, engine, ...rest } = await serve((prompt, index) => {
      const answer = first ? script(prompt, index) : quick(prompt, index);
      first = false;
      return answer;
    });
    const socket = await rawRequest({ chat, engine, ...rest }, slowBody(stream));
    await until(() => engine.running === 1, 'a running request');
    await sleep(20);
    socket.destroy();
    await until(() => engine.ended.cancelled === 1 && engine.running === 0, 'the cancellation');
    expect(await statusOf(chat())).toBe(200);
    expect(rest.log.filter((line) => line.msg === 'cancelled')).toHaveLength(1);
    expect(await (await fetch(`${rest.url}/metrics`)).text()).toMatch(
      /^copse:requests_cancelled_total\S* 1$/m,
    );
    expect(rest.log.some((line) => line.msg === 'a request failed')).toBe(false);
  });

  it.each([false, true])('while it waits, stream %s, gives its place up', async (stream) => {
    const server = await serve(slow, { maxSequences: 1 });
    const running = await rawRequest(server, slowBody(true));
    await until(() => server.engine.running === 1, 'a running request');
    const waiting = await rawRequest(server, slowBody(stream));
    await until(() => server.engine.waiting === 1, 'a waiting request');
    waiting.destroy();
    await until(() => server.engine.waiting === 0, 'the cancellation');
    expect(server.engine.ended.cancelled).toBe(1);
    running.destroy();
    await until(() => server.engine.running === 0, 'the end');
    expect(server.log.some((line) => line.msg === 'a request failed')).toBe(false);
  });

  it('in the middle of its request, or right behind it, harms nobody', async () => {
    const server = await serve(quick);
    for (const sent of [0, 0.5, 1]) (await rawRequest(server, slowBody(true), sent)).destroy();
    await sleep(20);
    expect(await statusOf(server.chat())).toBe(200);
    expect(server.log.some((line) => line.msg === 'a request failed')).toBe(false);
    await until(() => server.engine.running === 0, 'an idle engine');
  });
});

it('does not buffer for a client that does not read', async () => {
  // 12 MB of events, were they all written.
  const text = 'word '.repeat(60_000);
  const server = await serve(() => ({ text, tokensPerEvent: 64 }), { contextTokens: 2 ** 20 });
  const socket = await rawRequest(server, slowBody(true));
  socket.pause();
  await until(() => server.engine.running === 1, 'a running request');
  // The scripted engine is pulled, so it stands still when the stream does: the buffers of the sockets are full.
  let [before, tokens] = [-1, 0];
  while (before !== tokens) {
    await sleep(100);
    before = tokens;
    tokens = (await server.engine.stats()).generatedTokens;
  }
  expect(tokens).toBeGreaterThan(0);
  expect(server.engine.ended.stop).toBe(0);
  expect(await statusOf(server.chat({ max_tokens: 1 }))).toBe(200);
  socket.destroy();
  await until(() => server.engine.ended.cancelled === 1, 'the cancellation');
});

describe('a server that stops', () => {
  it('lets running answers finish, and is gone then', async () => {
    const { chat, close, url } = await serve(() => ({ text: 'one two three', gapMs: 10 }), { graceMs: 5000 });
    const [whole, streamed] = await Promise.all([
      chat(),
      chat({ stream: true }).then(async (response) => {
        const closed = close();
        const text = await response.text();
        await closed;
        return text;
      }),
    ]);
    expect(await whole.text()).toContain('one two three');
    expect(eventsOf(streamed).data.at(-1)).toBe('[DONE]');
    await expect(fetch(`${url}/health`)).rejects.toThrow();
  });

  it('is gone within the grace time plus a moment, whatever clients do', async () => {
    const server = await serve(slow, { graceMs: 50 });
    const idle = connect(Number(new URL(server.url).port), '127.0.0.1');
    idle.on('error', () => undefined);
    const stalled = await rawRequest(server, slowBody(true));
    stalled.pause();
    const streamed = await server.chat({ stream: true });
    const whole = server.chat();
    await until(() => server.engine.running === 3, 'three requests');
    const started = performance.now();
    await server.close();
    expect(performance.now() - started).toBeLessThan(2500);
    const { json } = eventsOf(await streamed.text());
    expect(json.at(-1).error).toMatchObject({
      code: 'overloaded',
      message: expect.stringContaining('stopped'),
    });
    expect(json.some((chunk) => chunk.choices?.[0]?.finish_reason)).toBe(false);
    expect((await whole).status).toBe(503);
    expect(server.engine.ended.cancelled).toBe(3);
    idle.destroy();
    stalled.destroy();
  });

  it('refuses new requests on open connections in the usual shape', async () => {
    const server = await serve(() => ({ text: 'one two three four', gapMs: 40 }), { graceMs: 5000 });
    const socket = await rawRequest(server, slowBody(false));
    await until(() => server.engine.running === 1, 'a running request');
    const closed = server.close();
    let text = '';
    socket.on('data', (bytes) => {
      text += bytes;
    });
    // Behind the running one, on the same connection.
    socket.write('GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n');
    await closed;
    await until(() => text.includes('stopping') || socket.destroyed, 'the refusal');
    expect(text).toContain('one two three four');
    expect(text).toMatch(/HTTP\/1\.1 503[\s\S]*"the server is stopping"/);
  });

  it('does not wait for connections that carry nothing', async () => {
    const server = await serve(quick, { graceMs: 10_000 });
    const idle = connect(Number(new URL(server.url).port), '127.0.0.1');
    idle.on('error', () => undefined);
    await server.chat();
    const started = performance.now();
    await server.close();
    expect(performance.now() - started).toBeLessThan(1000);
    await until(() => idle.destroyed, 'the end of the idle connection');
  });

  it('may be told so twice', async () => {
    const { close } = await serve(quick);
    await Promise.all([close(), close()]);
    await close();
  });
});
