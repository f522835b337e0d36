/** A server on a stub engine, what its log says, and the few ways tests talk to it. */
import { pino } from 'pino';
import { type Server, type ServerOptions, startServer } from '../../src/server/index.ts';
import { type StubEngine, type StubOptions, type StubScript, stubCompletion } from './stub-engine.ts';

export interface StubServer extends Server {
  readonly engine: StubEngine;
  /** One object per line of the log. */
  readonly log: Record<string, unknown>[];
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
  chat(body?: Record<string, unknown>, init?: RequestInit): Promise<Response>;
}

export const userSays = (content: string) => [{ role: 'user', content }];

export async function serveStub(
  script: StubScript,
  options: StubOptions &
    Partial<Omit<ServerOptions, 'completion'>> & {
      enableThinking?: boolean | null;
      keepVolatileLines?: boolean;
    } = {},
): Promise<StubServer> {
  const { completion, engine } = stubCompletion(script, options);
  const log: Record<string, unknown>[] = [];
  const server = await startServer({
    completion,
    modelName: 'stub',
    port: 0,
    graceMs: 200,
    log: pino({ base: null }, { write: (line: string) => log.push(JSON.parse(line)) }),
    ...options,
  });
  const post = (path: string, body: unknown, init: RequestInit = {}): Promise<Response> =>
    fetch(`${server.url}${path}`, {
      method: 'POST',
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...init,
      headers: { 'content-type': 'application/json', ...init.headers },
    });
  return {
    ...server,
    engine,
    log,
    post,
    chat: (body = {}, init = {}) =>
      post('/v1/chat/completions', { model: 'stub', messages: userSays('hello'), ...body }, init),
  };
}

/** The events of a stream: JSON documents and comments, in order. */
export function eventsOf(text: string) {
  const events = text.split('\n\n').filter((event) => event !== '');
  const data = events.flatMap((event) => (event.startsWith('data: ') ? [event.slice('data: '.length)] : []));
  return {
    data,
    // biome-ignore lint/suspicious/noExplicitAny: whatever the server said
    json: data.filter((item) => item !== '[DONE]').map((item) => JSON.parse(item) as any),
    comments: events.filter((event) => event.startsWith(':')),
  };
}
