/**
 * The OpenAI API over HTTP: routes, and the life of one request: read, generate, send, log.
 * A client that is gone cancels its generation, at whatever stage it is; one request's failure touches no other.
 */
import { randomUUID } from 'node:crypto';
import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Logger, pino } from 'pino';
import type { JsonValue } from '../chat/index.ts';
import { type Completion, collectAnswer, type Delta } from '../completion/index.ts';
import { UserError } from '../util/index.ts';
import { checkKey } from './access.ts';
import { createHttp, type Http, listen, stop } from './http.ts';
import { Metrics } from './metrics.ts';
import { type AnswerHead, chatBody, type Finish, streamChat, streamText, textBody } from './openai/chat.ts';
import { errorBody } from './openai/errors.ts';
import { type ReadRequest, readChatRequest, readTextRequest } from './openai/request.ts';
import { speculationBody } from './openai/usage.ts';

export interface ServerOptions {
  readonly completion: Completion;
  /** Name that the model is served under. */
  readonly modelName: string;
  /** Further names that clients may use. */
  readonly aliases?: readonly string[];
  readonly host?: string;
  /** 0 = any free port. */
  readonly port: number;
  readonly apiKey?: string | null;
  readonly bodyLimitBytes?: number;
  /** Time that running requests get to finish when the server stops. */
  readonly graceMs?: number;
  /** Adds what drafts did to `usage`, as `usage.speculation`. */
  readonly usageDetails?: boolean;
  /** Refuse images and the like in messages, instead of telling the model that they were left out. */
  readonly strictContent?: boolean;
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
  if (options.apiKey === '')
    throw new UserError('bad_option', 'the API key is an empty text', {
      hint: 'Leave it out to admit everybody.',
    });
  const app = new App(options);
  const url = await listen(app.server.http, { host: options.host ?? '127.0.0.1', port: options.port });
  return { url, close: () => app.close() };
}

class App {
  readonly server: Http;
  readonly #options: ServerOptions;
  readonly #log: Logger;
  readonly #metrics: Metrics;
  readonly #started = Math.floor(Date.now() / 1000);
  readonly #running = new Set<AbortController>();
  #closing: Promise<void> | null = null;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#log = options.log ?? pino({ enabled: false });
    this.#metrics = new Metrics(options.completion.engine, options.modelName);
    this.server = createHttp({
      bodyLimitBytes: options.bodyLimitBytes ?? 64 * 2 ** 20,
      sendError: (reply, error) => this.#sendError(reply, error),
    });
    this.#routes();
  }

  close(): Promise<void> {
    this.#closing ??= stop(this.server, {
      graceMs: this.#options.graceMs ?? 10_000,
      cancel: () => {
        for (const abort of this.#running) abort.abort();
      },
    });
    return this.#closing;
  }

  #routes(): void {
    const { completion, modelName } = this.#options;
    const { http } = this.server;
    const model = {
      id: modelName,
      object: 'model',
      created: this.#started,
      owned_by: 'copse',
      max_model_len: completion.engine.info.contextTokens,
    };
    http.addHook('onRequest', async (request, reply) => this.#admit(request, reply));
    http.get('/health', async () => {
      await engineAnswers(completion);
      return { status: 'ok' };
    });
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
      read: (body) => readChatRequest(body, { strictContent: this.#options.strictContent ?? false }),
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
    this.server.http.post<{ Body: JsonValue }>(path, (request, reply) =>
      this.#answer(request.body, reply, kind),
    );
  }

  #admit(request: FastifyRequest, reply: FastifyReply): void {
    if (this.#closing !== null) {
      reply.header('Connection', 'close');
      throw new UserError('overloaded', 'the server is stopping');
    }
    if (request.routeOptions.url !== '/health')
      checkKey(this.#options.apiKey ?? null, request.headers.authorization);
  }

  async #answer<T>(body: JsonValue, reply: FastifyReply, kind: Kind<T>): Promise<unknown> {
    const startedMs = performance.now();
    const { model, stream, includeUsage, request, unknown, notes } = kind.read(body);
    this.#checkModel(model);
    const usageDetails = this.#options.usageDetails ?? false;
    const head: AnswerHead = {
      id: `${kind.idPrefix}-${randomUUID().replaceAll('-', '')}`,
      created: Math.floor(Date.now() / 1000),
      model: this.#options.modelName,
    };
    if (unknown.length > 0) this.#log.info({ id: head.id, fields: unknown }, 'unknown fields are ignored');
    if (notes.length > 0) this.#log.info({ id: head.id, notes }, 'read with changes');
    const abort = new AbortController();
    this.#running.add(abort);
    // A client that is gone needs no answer: this also fires when the response is complete, then it does nothing.
    reply.raw.on('close', () => abort.abort());
    if (isGone(reply)) abort.abort();
    const timer = new FirstToken(kind.generate(request, abort.signal));
    try {
      const send = kind.object === 'chat' ? streamChat : streamText;
      const open = (): ServerResponse => {
        reply.hijack();
        return reply.raw;
      };
      const whole = stream ? null : await collectAnswer(timer.deltas());
      const finish = whole ?? (await send(timer.deltas(), { head, includeUsage, usageDetails, open }));
      this.#report(head, { startedMs, firstMs: timer.firstMs, finish });
      if (finish.finish.reason === 'cancelled' && !isGone(reply))
        throw new UserError('overloaded', 'the server stopped before the answer was complete');
      if (whole === null) return reply;
      return (kind.object === 'chat' ? chatBody : textBody)(head, whole, { usageDetails });
    } catch (error) {
      if (!reply.sent) throw error;
      this.#endBrokenStream(reply.raw, this.#describe(error, head.id).body);
      return reply;
    } finally {
      this.#running.delete(abort);
    }
  }

  /** The status is out already: the error goes into the stream, as an event. */
  #endBrokenStream(response: ServerResponse, body: unknown): void {
    if (!response.destroyed) response.end(`data: ${JSON.stringify(body)}\n\ndata: [DONE]\n\n`);
  }

  #sendError(reply: FastifyReply, error: unknown): FastifyReply {
    const { status, body } = this.#describe(error, null);
    if (status === 429 || status === 503) reply.header('Retry-After', '1');
    return reply.code(status).type('application/json; charset=utf-8').send(body);
  }

  /** Logs it too: what a person can mend in a line, a bug with its stack. */
  #describe(error: unknown, id: string | null): ReturnType<typeof errorBody> {
    const described = errorBody(error);
    const { status, body } = described;
    if (status >= 500 && !(error instanceof UserError)) {
      this.#log.error({ id, err: error }, 'a request failed');
      this.#metrics.failed();
    } else this.#log.info({ id, status, ...body.error }, 'refused');
    return described;
  }

  #checkModel(model: string): void {
    const { modelName, aliases = [] } = this.#options;
    if (model !== modelName && !aliases.includes(model))
      throw new UserError(
        'model_not_found',
        `the model '${model}' does not exist, this server has '${modelName}'`,
        { param: 'model' },
      );
  }

  #report(
    head: AnswerHead,
    { startedMs, firstMs, finish }: { startedMs: number; firstMs: number | null; finish: Finish },
  ): void {
    const now = performance.now();
    const { usage, stats, reason } = finish.finish;
    const decodeMs = firstMs === null ? 0 : now - firstMs;
    const later = usage.completionTokens - 1;
    this.#metrics.observe({
      ttftSeconds: firstMs === null ? null : (firstMs - startedMs) / 1000,
      secondsPerToken: later > 0 && firstMs !== null ? decodeMs / 1000 / later : null,
      seconds: (now - startedMs) / 1000,
      reason,
    });
    this.#log.info(
      {
        id: head.id,
        reused: usage.cachedTokens,
        computed: usage.promptTokens - usage.cachedTokens,
        generated: usage.completionTokens,
        reuseLimit: finish.start?.reuseLimit ?? null,
        ttftMs: firstMs === null ? null : round(firstMs - startedMs),
        tokensPerSecond: later > 0 && decodeMs > 0 ? round((1000 * later) / decodeMs) : null,
        tokensPerStep: stats.steps === 0 ? 0 : round(usage.completionTokens / stats.steps),
        ...(stats.speculation.drafts === 0 ? {} : { speculation: speculationBody(stats) }),
        reason,
      },
      reason === 'cancelled' ? 'cancelled' : 'answered',
    );
  }
}

const round = (value: number): number => Math.round(100 * value) / 100;

/** The client closed the connection before its answer was complete. */
function isGone({ raw }: FastifyReply): boolean {
  return raw.destroyed || raw.socket?.destroyed === true;
}

/** An engine in the middle of a step answers late, which is no failure; one that is gone refuses at once. */
const healthMs = 500;

async function engineAnswers({ engine }: Completion): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, healthMs);
  });
  try {
    await Promise.race([engine.stats(), patience]);
  } catch {
    throw new UserError('overloaded', 'the engine is not running');
  } finally {
    clearTimeout(timer);
  }
}

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
