/** Streams that live, several answers to one prompt, and pages of other origins. */
import { afterEach, describe, expect, it } from 'vitest';
import { eventsOf, type StubServer, serveStub } from './support/serve-stub.ts';
import { until } from './support/stub-engine.ts';

let server: StubServer;
afterEach(() => server.close());

describe('a stream', () => {
  it('has its headers and role at once, also while it waits in the queue', async () => {
    server = await serveStub(() => ({ text: 'x', prefillMs: 60_000 }), { maxSequences: 1 });
    const abort = new AbortController();
    const first = await server.chat({ stream: true }, { signal: abort.signal });
    await until(() => server.engine.running === 1, 'a running request');
    const second = await server.chat({ stream: true }, { signal: abort.signal });
    expect(server.engine.waiting).toBe(1);
    for (const response of [first, second]) {
      expect(response.status).toBe(200);
      const { value } = (await response.body?.getReader().read()) ?? {};
      expect(new TextDecoder().decode(value)).toContain('"role":"assistant"');
    }
    abort.abort();
    await until(() => server.engine.running === 0, 'an idle engine');
  });

  it('says something in quiet times, before the first token and in gaps', async () => {
    server = await serveStub(() => ({ text: 'one two', prefillMs: 150, gapMs: 150 }), { pingMs: 20 });
    const text = await (await server.chat({ stream: true })).text();
    const { comments, json } = eventsOf(text);
    expect(comments.filter((line) => line === ': still here').length).toBeGreaterThan(3);
    expect(text.indexOf(': still here')).toBeLessThan(text.indexOf('"one'));
    expect(json.map((chunk) => chunk.choices[0].delta.content ?? '').join('')).toBe('one two');
  });

  it('that is refused has a status, not an event', async () => {
    server = await serveStub(() => ({ text: 'x' }), { contextTokens: 20 });
    const messages = [{ role: 'user', content: 'word '.repeat(50) }];
    expect((await server.chat({ stream: true, messages })).status).toBe(400);
  });
});

describe('several answers', () => {
  const texts = ['zero', 'one', 'two'];

  it('come whole, over one prompt', async () => {
    server = await serveStub((_, index) => ({ text: texts[index] ?? '' }));
    const body = (await (await server.chat({ n: 3, seed: 7, temperature: 1 })).json()) as {
      choices: { index: number; message: { content: string }; finish_reason: string }[];
      usage: Record<string, number>;
    };
    expect(body.choices.map(({ index, message }) => [index, message.content])).toEqual([
      [0, 'zero'],
      [1, 'one'],
      [2, 'two'],
    ]);
    const { requests } = server.engine;
    expect(new Set(requests.map(({ sampling }) => sampling.seed)).size).toBe(3);
    expect(body.usage.prompt_tokens).toBe(requests[0]?.ids.length);
    expect(server.log.filter((line) => line.msg === 'answered')).toHaveLength(1);
  });

  it('come as a stream, each with its index and its end', async () => {
    server = await serveStub((_, index) => ({ text: texts[index] ?? '', gapMs: 2 }));
    const { json, data } = eventsOf(
      await (await server.chat({ n: 3, stream: true, stream_options: { include_usage: true } })).text(),
    );
    for (const [index, text] of texts.entries()) {
      const mine = json.filter((chunk) => chunk.choices[0]?.index === index).map((chunk) => chunk.choices[0]);
      expect(mine[0].delta).toEqual({ role: 'assistant', content: '' });
      expect(mine.map((choice) => choice.delta.content ?? '').join('')).toBe(text);
      expect(mine.filter((choice) => choice.finish_reason !== null)).toHaveLength(1);
      expect(mine.at(-1).finish_reason).toBe('stop');
    }
    expect(json.at(-1).usage.completion_tokens).toBeGreaterThan(2);
    expect(data.at(-1)).toBe('[DONE]');
  });

  it('end together when the client leaves or one of them fails', async () => {
    server = await serveStub((_, index) => ({
      text: 'word '.repeat(400),
      gapMs: 5,
      ...(index === 1 ? { failAfter: 2 } : {}),
    }));
    expect((await server.chat({ n: 2 })).status).toBe(500);
    await until(() => server.engine.running === 0, 'an idle engine');
    const abort = new AbortController();
    const asked = server.chat({ n: 2 }, { signal: abort.signal }).catch(() => null);
    await until(() => server.engine.running === 2, 'two choices');
    abort.abort();
    await asked;
    await until(() => server.engine.running === 0, 'an idle engine');
  });
});

describe('a page of another origin', () => {
  const origin = 'http://localhost:3000';
  const preflight = (): Promise<Response> =>
    fetch(`${server.url}/v1/chat/completions`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization, x-a',
      },
    });

  it.each([[[origin]], [['*']]])(
    'may ask where %j is allowed, streams too, without a key for the question',
    async (corsOrigins) => {
      server = await serveStub(() => ({ text: 'x' }), { corsOrigins, apiKey: 'secret' });
      const asked = await preflight();
      expect(asked.status).toBe(204);
      expect(asked.headers.get('access-control-allow-headers')).toBe('authorization, x-a');
      const headers = { origin, authorization: 'Bearer secret' };
      for (const stream of [false, true]) {
        const response = await server.chat({ stream }, { headers });
        expect(response.headers.get('access-control-allow-origin')).toBe(corsOrigins[0]);
        await response.text();
      }
      const refused = await server.chat({}, { headers: { origin } });
      expect(refused.status).toBe(401);
      expect(refused.headers.get('access-control-allow-origin')).toBe(corsOrigins[0]);
    },
  );

  it('may not otherwise', async () => {
    server = await serveStub(() => ({ text: 'x' }), { corsOrigins: ['http://other'] });
    expect((await preflight()).headers.get('access-control-allow-origin')).toBeNull();
    expect(
      (await server.chat({}, { headers: { origin } })).headers.get('access-control-allow-origin'),
    ).toBeNull();
  });
});

it('lists its models with and without a slash at the end', async () => {
  server = await serveStub(() => ({ text: 'x' }));
  for (const path of ['/v1/models', '/v1/models/'])
    expect(await (await fetch(server.url + path)).json()).toMatchObject({
      object: 'list',
      data: [{ id: 'stub' }],
    });
  expect(await (await fetch(`${server.url}/v1/models/stub`)).json()).toMatchObject({ id: 'stub' });
});
