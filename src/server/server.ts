/** The HTTP server: who is asking, in which form, and what happens when something is wrong. */
import { createHash, randomUUID, timingSafeEqual } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { type Logger, pino } from 'pino';
import { type JsonValue, parseLossless } from '../chat/index.ts';
import { type Completion, collectAnswer, type Delta } from '../completion/index.ts';
import { UserError } from '../util/index.ts';
import { Metrics } from './metrics.ts';
import { type AnswerHead, chatBody, type Finish, streamChat, streamText, textBody } from './openai/chat.ts';
import { errorBody } from './openai/errors.ts';
import { type ReadRequest, readChatRequest, readTextRequest } from './openai/request.ts';

export interface ServerOptions {
  readonly completion: Completion;
  /** Name that the model is served under. */
  readonly modelName: string;
  readonly host?: string;
  /** 0 = any free port. */
  readonly port: number;
  readonly apiKey?: string | null;
  readonly bodyLimitBytes?: number;
  /** Time that running requests get to finish when the server stops. */
  readonly graceMs?: number;
  readonly log?: Logger;
}

export interface Server {
  readonly url: string;
  /** Stops accepting, lets running requests finish for the grace time, then cancels them. Idempotent. */
  close(): Promise<void>;
}

interface Kind<T> {
  readonly object: 'chat' | 'text';
  readonly idPrefix: string;
  read(body: JsonValue): ReadRequest<T>;
  generate(request: T, signal: AbortSignal): AsyncIterable<Delta>;
}

export async function startServer(options: ServerOptions): Promise<Server> {
  const host = options.host ?? '127.0.0.1';
  const app = new App(options);
  try {
    const url = await app.http.listen({ host, port: options.port });
    return { url, close: () => app.close() };
  } catch (error) {
    await app.http.close();
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE')
      throw new UserError('bad_option', `port ${options.port} on ${host} is in use`, {
        hint: 'Stop the other server or choose another --port.',
      });
    if ((error as NodeJS.ErrnoException).code === 'EACCES')
      throw new UserError('bad_option', `port ${options.port} on ${host} is not allowed`);
    throw error;
  }
}

class App {
  readonly http: FastifyInstance;
  readonly #options: ServerOptions;
  readonly #log: Logger;
  readonly #metrics: Metrics;
  readonly #started = Math.floor(Date.now() / 1000);
  readonly #running = new Set<AbortController>();
  #closing: Promise<void> | null = null;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#log = options.log ?? pino({ enabled: false });
    this.#metrics = new Metrics(options.completion.engine);
    this.http = Fastify({
      bodyLimit: options.bodyLimitBytes ?? 64 * 2 ** 20,
      forceCloseConnections: 'idle',
      keepAliveTimeout: 75_000,
    });
    this.#parseBodies();
    this.#routes();
  }

  close(): Promise<void> {
    this.#closing ??= this.#stop();
    return this.#closing;
  }

  async #stop(): Promise<void> {
    const timer = setTimeout(() => {
      for (const abort of this.#running) abort.abort();
    }, this.#options.graceMs ?? 10_000);
    await this.http.close();
    clearTimeout(timer);
  }

  #parseBodies(): void {
    this.http.removeAllContentTypeParsers();
    // Clients that forget the content type mean JSON too.
    this.http.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => {
      try {
        done(null, parseLossless(String(body)));
      } catch (error) {
        done(error instanceof Error ? error : new Error(String(error)));
      }
    });
  }

  #routes(): void {
    const { completion, modelName } = this.#options;
    const { http } = this;
    const model = {
      id: modelName,
      object: 'model',
      created: this.#started,
      owned_by: 'copse',
      max_model_len: completion.engine.info.contextTokens,
    };
    http.addHook('onRequest', async (request) => this.#authorize(request));
    http.setErrorHandler((error, _request, reply) => this.#sendError(reply, error));
    http.setNotFoundHandler((request) => {
      throw new UserError('not_found', `${request.method} ${request.url} does not exist`);
    });
    http.get('/health', async () => ({ status: 'ok' }));
    http.get('/metrics', async (_request, reply) => {
      reply.type(this.#metrics.registry.contentType);
      return this.#metrics.text();
    });
    http.get('/v1/models', async () => ({ object: 'list', data: [model] }));
    http.get<{ Params: { '*': string } }>('/v1/models/*', async ({ params }) => {
      this.#checkModel(params['*']);
      return model;
    });
    this.#post('/v1/chat/completions', {
      object: 'chat',
      idPrefix: 'chatcmpl',
      read: readChatRequest,
      generate: (request, signal) => completion.chat(request, signal),
    });
    this.#post('/v1/completions', {
      object: 'text',
      idPrefix: 'cmpl',
      read: readTextRequest,
      generate: (request, signal) => completion.text(request, signal),
    });
  }

  #post<T>(path: string, kind: Kind<T>): void {
    this.http.post<{ Body: JsonValue }>(path, (request, reply) => this.#answer(request.body, reply, kind));
  }

  async #answer<T>(body: JsonValue, reply: FastifyReply, kind: Kind<T>): Promise<unknown> {
    const startedMs = performance.now();
    const { model, stream, includeUsage, request, unknown } = kind.read(body);
    this.#checkModel(model);
    if (this.#closing !== null) throw new UserError('overloaded', 'the server is stopping');
    const head: AnswerHead = {
      id: `${kind.idPrefix}-${randomUUID().replaceAll('-', '')}`,
      created: Math.floor(Date.now() / 1000),
      model: this.#options.modelName,
    };
    if (unknown.length > 0) this.#log.info({ id: head.id, fields: unknown }, 'unknown fields are ignored');
    const abort = new AbortController();
    this.#running.add(abort);
    // A client that is gone needs no answer: this also fires when the response is complete, then it does nothing.
    reply.raw.on('close', () => abort.abort());
    const timer = new FirstToken(kind.generate(request, abort.signal));
    const report = (finish: Finish | null): void =>
      this.#report(head, { startedMs, firstMs: timer.firstMs, finish });
    try {
      if (!stream) {
        const answer = await collectAnswer(timer.deltas());
        report(answer);
        return kind.object === 'chat' ? chatBody(head, answer) : textBody(head, answer);
      }
      const open = (): ServerResponse => {
        reply.hijack();
        return reply.raw;
      };
      const send = kind.object === 'chat' ? streamChat : streamText;
      report(await send(timer.deltas(), { head, includeUsage, open }));
      return reply;
    } catch (error) {
      if (!reply.sent) throw error;
      this.#endBrokenStream(reply.raw, error);
      return reply;
    } finally {
      this.#running.delete(abort);
    }
  }

  /** The status is out already: the error goes into the stream, as an event. */
  #endBrokenStream(response: ServerResponse, error: unknown): void {
    const { body } = this.#describe(error);
    if (!response.destroyed) response.end(`data: ${JSON.stringify(body)}\n\ndata: [DONE]\n\n`);
  }

  #sendError(reply: FastifyReply, error: unknown): FastifyReply {
    const { status, body } = this.#describe(error);
    if (status === 429 || status === 503) reply.header('Retry-After', '1');
    return reply.code(status).send(body);
  }

  #describe(error: unknown): ReturnType<typeof errorBody> {
    const described = errorBody(error);
    if (described.status >= 500) this.#log.error({ err: error }, 'a request failed');
    return described;
  }

  #checkModel(model: string): void {
    const { modelName } = this.#options;
    if (model !== modelName)
      throw new UserError(
        'model_not_found',
        `the model '${model}' does not exist, this server has '${modelName}'`,
        { param: 'model' },
      );
  }

  #authorize(request: FastifyRequest): void {
    const { apiKey } = this.#options;
    if (!apiKey || request.url === '/health') return;
    const given = /^Bearer (.*)$/.exec(request.headers.authorization ?? '')?.[1] ?? '';
    const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
    if (!timingSafeEqual(digest(given), digest(apiKey)))
      throw new UserError('invalid_api_key', given === '' ? 'no API key was given' : 'the API key is wrong', {
        hint: 'Send it as `Authorization: Bearer KEY`.',
      });
  }

  #report(
    head: AnswerHead,
    { startedMs, firstMs, finish }: { startedMs: number; firstMs: number | null; finish: Finish | null },
  ): void {
    const now = performance.now();
    if (finish === null) return;
    const { usage, stats, reason } = finish.finish;
    const decodeMs = firstMs === null ? 0 : now - firstMs;
    const later = usage.completionTokens - 1;
    this.#metrics.observe({
      ttftSeconds: firstMs === null ? null : (firstMs - startedMs) / 1000,
      secondsPerToken: later > 0 ? decodeMs / 1000 / later : null,
      seconds: (now - startedMs) / 1000,
      reason,
    });
    this.#log.info(
      {
        id: head.id,
        reused: usage.cachedTokens,
        computed: usage.promptTokens - usage.cachedTokens,
        generated: usage.completionTokens,
        reuseLimit: finish.start.reuseLimit,
        ttftMs: firstMs === null ? null : round(firstMs - startedMs),
        tokensPerSecond: later > 0 ? round((1000 * later) / decodeMs) : null,
        tokensPerStep: stats.steps === 0 ? 0 : round(usage.completionTokens / stats.steps),
        reason,
      },
      'answered',
    );
  }
}

const round = (value: number): number => Math.round(100 * value) / 100;

/** Notes when the first thing the model wrote came by. */
class FirstToken {
  firstMs: number | null = null;
  readonly #deltas: AsyncIterable<Delta>;

  constructor(deltas: AsyncIterable<Delta>) {
    this.#deltas = deltas;
  }

  async *deltas(): AsyncGenerator<Delta> {
    for await (const delta of this.#deltas) {
      if (delta.type !== 'start' && delta.type !== 'finish') this.firstMs ??= performance.now();
      yield delta;
    }
  }
}
