/**
 * The HTTP layer under the APIs: bodies as lossless JSON, listening and stopping.
 * Invariant: whatever a client sends, it gets an answer or a closed connection, and the next client is served.
 */
import type { Socket } from 'node:net';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { parseLossless } from '../chat/index.ts';
import { UserError } from '../util/index.ts';
import { type BodyLimits, checkCounts } from './limits.ts';
import { errorBody } from './openai/errors.ts';

export interface HttpOptions {
  readonly limits: BodyLimits;
  /** Answers a request that failed. */
  readonly sendError: (request: FastifyRequest, reply: FastifyReply, error: unknown) => FastifyReply;
}

export interface Http {
  readonly http: FastifyInstance;
  /** Requests whose answer is not complete. */
  readonly open: () => number;
}

export function createHttp({ limits, sendError }: HttpOptions): Http {
  const http = Fastify({
    bodyLimit: limits.bytes,
    forceCloseConnections: 'idle',
    keepAliveTimeout: 75_000,
    // For the request to arrive; answers take as long as they take.
    requestTimeout: 300_000,
    // Requests that come while the server stops are refused by our own hook, in our own shape.
    return503OnClosing: false,
    frameworkErrors: (error, request, reply) => {
      void sendError(request, reply as FastifyReply, error);
    },
    clientErrorHandler: refuseBytes,
  });
  http.removeAllContentTypeParsers();
  // Clients that forget the content type mean JSON too.
  http.addContentTypeParser('*', { parseAs: 'string' }, (_request, body, done) => {
    try {
      const value = parseLossless(String(body), { what: 'the request body', limits });
      checkCounts(value);
      done(null, value);
    } catch (error) {
      done(error as Error);
    }
  });
  http.setErrorHandler((error, request, reply) => sendError(request, reply, tooLarge(error, limits.bytes)));
  http.setNotFoundHandler((request, reply) =>
    sendError(
      request,
      reply,
      new UserError('not_found', `${request.method} ${request.url.slice(0, 200)} does not exist`),
    ),
  );
  let open = 0;
  http.server.on('request', (_request, response) => {
    open++;
    response.once('close', () => {
      open--;
    });
  });
  return { http, open: () => open };
}

function tooLarge(error: unknown, limit: number): unknown {
  if ((error as { code?: string }).code !== 'FST_ERR_CTP_BODY_TOO_LARGE') return error;
  return new UserError('request_too_large', `the request body is larger than the limit of ${limit} bytes`, {
    hint: 'It follows from the context; --body-limit sets another.',
  });
}

/** Bytes that are not HTTP: there is no request to reply to, only a socket. */
function refuseBytes(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const { body } = errorBody(new UserError('invalid_request', 'the request is not valid HTTP'));
  const text = JSON.stringify(body);
  const head = [
    'HTTP/1.1 400 Bad Request',
    'Content-Type: application/json',
    `Content-Length: ${Buffer.byteLength(text)}`,
    'Connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${text}`);
}

const listenErrors: Record<string, string> = {
  EADDRINUSE: 'is in use',
  EACCES: 'is not allowed',
  EADDRNOTAVAIL: 'cannot be listened on: this machine does not have the address',
  ENOTFOUND: 'cannot be listened on: the address is unknown',
  ERR_SOCKET_BAD_PORT: 'is not a port, expected 0 to 65535',
};

/** Returns the URL. Throws UserError('bad_option') naming host and port. */
export async function listen(http: FastifyInstance, at: { host: string; port: number }): Promise<string> {
  try {
    return await http.listen(at);
  } catch (error) {
    await http.close();
    const { code = '' } = error as NodeJS.ErrnoException;
    const problem = listenErrors[code];
    if (problem === undefined) throw error;
    const hint = code === 'EADDRINUSE' ? { hint: 'Stop the other server or choose another --port.' } : {};
    throw new UserError('bad_option', `port ${at.port} on ${at.host} ${problem}`, hint);
  }
}

/** Time for cancelled requests to say so to their clients. */
const goodbyeMs = 1000;
const sweepMs = 25;

/** Stops listening, waits `graceMs` for what runs, then calls `cancel`, then closes what is still open. */
export async function stop(
  { http, open }: Http,
  { graceMs, cancel }: { graceMs: number; cancel: () => void },
): Promise<void> {
  let quietSweeps = 0;
  // Clients keep connections for later use, some never used yet; once nothing is open, they keep nobody waiting.
  const sweep = setInterval(() => {
    quietSweeps = open() === 0 ? quietSweeps + 1 : 0;
    if (quietSweeps > 1) http.server.closeAllConnections();
    else http.server.closeIdleConnections();
  }, sweepMs);
  const timers = [
    setTimeout(cancel, graceMs),
    setTimeout(() => http.server.closeAllConnections(), graceMs + goodbyeMs),
  ];
  try {
    await http.close();
  } finally {
    clearInterval(sweep);
    for (const timer of timers) clearTimeout(timer);
  }
}
