import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type HostileBody, hostileBodies } from './support/hostile-bodies.ts';
import { type StubServer, serveStub, userSays } from './support/serve-stub.ts';

interface ErrorBody {
  readonly error: { readonly message: string };
}

let server: StubServer;

beforeAll(async () => {
  server = await serveStub(() => ({ text: 'fine' }), { contextTokens: 4096 });
});
afterAll(() => server.close());

const send = ({ path, text }: HostileBody) => server.post(path, text().replace('MODEL', 'stub'));

/** What the grammars of an engine refuse, the stub does not look at. */
const read = hostileBodies.filter(({ refusal }) => refusal !== null && refusal.source !== '.');

describe('what a request may hold', () => {
  it.each(read.map((body) => [body.name, body] as const))('is refused by name: %s', async (_name, body) => {
    const response = await send(body);
    expect([400, 404, 413]).toContain(response.status);
    const text = await response.text();
    expect(text.length).toBeLessThan(1200);
    expect(JSON.parse(text).error.message).toMatch(body.refusal as RegExp);
    expect(server.engine.requests).toHaveLength(0);
    for (const line of server.log) expect(JSON.stringify(line).length).toBeLessThan(2500);
  });

  it('names the field that is too large, in either API of OpenAI', async () => {
    const ids = Object.fromEntries(Array.from({ length: 1025 }, (_, id) => [id, 1]));
    for (const [path, body] of [
      ['/v1/chat/completions', { model: 'stub', messages: userSays('x'), logit_bias: ids }],
      ['/v1/responses', { model: 'stub', input: 'x', logit_bias: ids }],
    ] as const) {
      const response = await server.post(path, body);
      expect(response.status).toBe(400);
      expect((JSON.parse(await response.text()) as ErrorBody).error).toMatchObject({
        param: 'logit_bias',
        message: 'logit_bias has 1025 entries, the limit is 1024',
      });
    }
  });

  it('takes what is at the limit', async () => {
    const logit_bias = Object.fromEntries(Array.from({ length: 1024 }, (_, id) => [id, 1]));
    const response = await server.chat({ logit_bias, stop: Array(16).fill('x'.repeat(1024)) });
    expect(response.status).toBe(200);
  });

  it('bounds the body by the context, unless it is told otherwise', async () => {
    const long = 'x'.repeat(9 * 2 ** 20);
    const response = await server.chat({ metadata: { long } });
    expect(response.status).toBe(413);
    expect((JSON.parse(await response.text()) as ErrorBody).error.message).toContain(
      `${4096 * 16 + 8 * 2 ** 20} bytes`,
    );
    const roomy = await serveStub(() => ({ text: 'fine' }), { bodyLimitBytes: 32 * 2 ** 20 });
    try {
      expect((await roomy.chat({ metadata: { long } })).status).toBe(200);
    } finally {
      await roomy.close();
    }
  });

  it('logs the names of ignored fields, and not all of a thousand', async () => {
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`f${i}${'x'.repeat(300)}`, 1]));
    expect((await server.chat(many)).status).toBe(200);
    const line = server.log.find(({ msg }) => msg === 'unknown fields are ignored');
    const fields = line?.fields as string[];
    expect(fields).toHaveLength(33);
    expect(fields[0]).toBe(`f0${'x'.repeat(198)}…`);
    expect(fields.at(-1)).toBe('968 more');
  });
});
