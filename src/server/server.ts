/**
 * A model behind its APIs over HTTP: who is admitted, which route is whose, how the server starts and stops.
 * One request's failure touches no other.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Logger, pino } from 'pino';
import type { JsonValue } from '../chat/index.ts';
import type { Completion } from '../completion/index.ts';
import { UserError } from '../util/index.ts';
import { allowOrigin, checkKey, keyOf } from './access.ts';
import { Answerer } from './answer.ts';
import type { Api, ErrorReply, ReadContext } from './api.ts';
import { createHttp, type Http, listen, stop } from './http.ts';
import { bodyLimits, shortLog } from './limits.ts';
import { Metrics } from './metrics.ts';
import { describeError } from './openai/errors.ts';
import { openai } from './openai/index.ts';
import { openResponses } from './responses/index.ts';

export interface ServerOptions {
  readonly completion: Completion;
  /** Name that the model is served under. */
  readonly modelName: string;
  /** Further names that clients may use; '*' = any. */
  readonly aliases?: readonly string[];
  readonly host?: string;
  /** 0 = any free port. */
  readonly port: number;
  readonly apiKey?: string | null;
  /** Largest request body; default: what the context could hold, and schemas. */
  readonly bodyLimitBytes?: number | null;
  /** Time that running requests get to finish when the server stops. */
  readonly graceMs?: number;
  /** Adds what drafts did to `usage`, as `usage.speculation`. */
  readonly usageDetails?: boolean;
  /** Refuse images and the like in messages, instead of telling the model that they were left out. */
  readonly strictContent?: boolean;
  /** Origins of web pages that may ask; '*' = any. */
  readonly corsOrigins?: readonly string[];
  /** Quiet time in a stream after which the client is told that it lives, ms. */
  readonly pingMs?: number;
  readonly log?: Logger;
}

export interface Server {
  readonly url: string;
  /** Stops accepting, lets running requests finish for the grace time, then cancels them. Idempotent. */
  close(): Promise<void>;
}

/** The first that owns a path tells its errors. Some keep things, so every server has its own. */
const openApis = (): readonly Api[] => [openResponses(), openai];

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
  readonly #context: Omit<ReadContext, 'caller'>;
  readonly #answerer: Answerer;
  readonly #apis = openApis();
  readonly #started = Math.floor(Date.now() / 1000);
  #closing: Promise<void> | null = null;

  constructor(options: ServerOptions) {
    this.#options = options;
    this.#log = shortLog(options.log ?? pino({ enabled: false }));
    this.#metrics = new Metrics(options.completion.engine, options.modelName);
    this.server = createHttp({
      limits: bodyLimits(options.completion.engine.info.contextTokens, options.bodyLimitBytes),
      sendError: (request, reply, error) => this.#sendError(request, reply, error),
    });
    this.#context = {
      completion: options.completion,
      modelName: options.modelName,
      checkModel: (model) => this.#checkModel(model),
      usageDetails: options.usageDetails ?? false,
      strictContent: options.strictContent ?? false,
      log: (fields, message) => this.#log.info(fields, message),
    };
    this.#answerer = new Answerer({
      context: this.#context,
      log: this.#log,
      metrics: this.#metrics,
      pingMs: options.pingMs ?? 15_000,
      describe: (api, error, id) => this.#describe(api, error, id),
    });
    this.#routes();
  }

  close(): Promise<void> {
    this.#closing ??= stop(this.server, {
      graceMs: this.#options.graceMs ?? 10_000,
      cancel: () => this.#answerer.cancelAll(),
    });
    return this.#closing;
  }

  #routes(): void {
    const { completion } = this.#options;
    const { http } = this.server;
    http.addHook('onRequest', async (request, reply) => this.#admit(request, reply));
    http.options('/*', async (_request, reply) => reply.code(204).send());
    http.get('/health', async () => {
      await engineAnswers(completion);
      return { status: 'ok' };
    });
    http.get('/metrics', async (_request, reply) => {
      reply.type(this.#metrics.registry.contentType);
      return this.#metrics.text();
    });
    http.get('/v1/models', async () => this.#models());
    http.get<{ Params: { '*': string } }>('/v1/models/*', async ({ params }) => {
      if (params['*'] === '') return this.#models();
      this.#checkModel(params['*']);
      return this.#model();
    });
    http.get<{ Querystring: Record<string, unknown> }>('/v1/cache/explain', async ({ query }) =>
      this.#answerer.explained.body(query),
    );
    http.post('/v1/embeddings', async () => {
      throw new UserError(
        'invalid_request',
        `'${this.#options.modelName}' makes no embeddings, it answers chats`,
        {
          param: 'model',
        },
      );
    });
    for (const api of this.#apis) {
      for (const endpoint of api.endpoints)
        http.post<{ Body: JsonValue }>(endpoint.path, (request, reply) =>
          this.#answerer.answer(api, endpoint, request.body, reply),
        );
      for (const { method, path, handle } of api.routes ?? [])
        http.route<{
          Body: JsonValue | undefined;
          Params: Record<string, string>;
          Querystring: Record<string, unknown>;
        }>({
          method,
          url: path,
          handler: async ({ body, params, query, headers }) =>
            handle({ body: body ?? null, params, query }, { ...this.#context, caller: keyOf(headers) }),
        });
    }
  }

  #model() {
    const { modelName, completion } = this.#options;
    return {
      id: modelName,
      object: 'model',
      created: this.#started,
      owned_by: 'copse',
      max_model_len: completion.engine.info.contextTokens,
    };
  }

  #models() {
    return { object: 'list', data: [this.#model()] };
  }

  /** Before the body is read: whatever it is, it changes nothing for who may not ask and what does not exist. */
  #admit(request: FastifyRequest, reply: FastifyReply): void {
    if (this.#closing !== null) {
      reply.header('Connection', 'close');
      throw new UserError('overloaded', 'the server is stopping');
    }
    allowOrigin(request, reply, this.#options.corsOrigins ?? []);
    if (request.method === 'OPTIONS') return;
    if (request.routeOptions.url !== '/health')
      checkKey(this.#options.apiKey ?? null, keyOf(request.headers));
    if (request.is404)
      throw new UserError('not_found', `${request.method} ${request.url.slice(0, 200)} does not exist`);
  }

  #sendError(request: FastifyRequest, reply: FastifyReply, error: unknown): FastifyReply {
    const api = this.#apis.find((one) => one.owns(request.url)) ?? openai;
    const { status, body } = this.#describe(api, error, null);
    if (status === 429 || status === 503 || status === 529) reply.header('Retry-After', '1');
    return reply.code(status).type('application/json; charset=utf-8').send(body);
  }

  /** Logs it too: what a person can mend in a line, a bug with its stack. */
  #describe(api: Api, error: unknown, id: string | null): ErrorReply {
    const reply = api.errorBody(error);
    if (reply.status >= 500 && !(error instanceof UserError)) {
      this.#log.error({ id, err: error }, 'a request failed');
      this.#metrics.failed();
    } else this.#log.info({ id, ...describeError(error) }, 'refused');
    return reply;
  }

  #checkModel(model: string): void {
    const { modelName, aliases = [] } = this.#options;
    if (model !== modelName && !aliases.includes(model) && !aliases.includes('*'))
      throw new UserError(
        'model_not_found',
        `the model '${model.slice(0, 200)}' does not exist, this server has '${modelName}'`,
        { param: 'model' },
      );
  }
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
