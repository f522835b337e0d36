/**
 * A scripted OpenAI endpoint for tests: a function looks at each request and chooses the answer, with delays, failures,
 * odd chunking and dropped connections. It keeps every request byte for byte.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface OracleRequest {
  /** Position among all requests, from 0. */
  readonly index: number;
  readonly body: string;
  readonly json: Record<string, unknown>;
  readonly rawHeaders: readonly string[];
  readonly path: string;
}

export interface OracleAnswer {
  /** Each becomes one event with one choice. */
  readonly deltas?: readonly Record<string, unknown>[];
  readonly finishReason?: string;
  /** Written instead of events made from `deltas`. */
  readonly raw?: string;
  readonly status?: number;
  readonly contentType?: string;
  /** Before the first byte. */
  readonly delayMs?: number;
  /** Between writes. */
  readonly gapMs?: number;
  /** Cuts the whole stream into pieces of this many bytes, also inside characters and JSON. */
  readonly pieceBytes?: number;
  /** Destroys the connection: before any byte, or after what the script sends. */
  readonly drop?: 'before' | 'after';
  /** Sends everything and then neither ends nor closes. */
  readonly hang?: boolean;
}

export interface OracleServer {
  readonly url: string;
  readonly requests: readonly OracleRequest[];
  /** Connections that carried requests so far. */
  readonly connections: number;
  close(): Promise<void>;
}

export interface OracleOptions {
  /** Text of `GET /metrics`; without it the path is unknown. */
  readonly metrics?: () => string;
}

export type OracleScript = (request: OracleRequest) => OracleAnswer;

export async function startOracle(script: OracleScript, options: OracleOptions = {}): Promise<OracleServer> {
  const requests: OracleRequest[] = [];
  const sockets = new Set<Socket>();
  const used = new Set<Socket>();
  const server = createServer((incoming, response) => {
    void serve(incoming, response).catch(() => response.destroy());
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });

  async function serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    if (incoming.method === 'GET') {
      const text =
        incoming.url === '/metrics' ? options.metrics?.() : incoming.url === '/health' ? 'ok' : undefined;
      response.writeHead(text === undefined ? 404 : 200).end(text ?? 'not found');
      return;
    }
    used.add(incoming.socket);
    const body = await readAll(incoming);
    const json = JSON.parse(body) as Record<string, unknown>;
    const request = {
      index: requests.length,
      body,
      json,
      rawHeaders: incoming.rawHeaders,
      path: incoming.url ?? '',
    };
    requests.push(request);
    await send(script(request), response);
  }

  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    requests,
    get connections() {
      return used.size;
    },
    close: () =>
      new Promise((resolve) => {
        for (const socket of sockets) socket.destroy();
        server.close(() => resolve());
      }),
  };
}

async function readAll(incoming: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of incoming) parts.push(part as Buffer);
  return Buffer.concat(parts).toString('utf8');
}

async function send(answer: OracleAnswer, response: ServerResponse): Promise<void> {
  if (answer.delayMs !== undefined) await sleep(answer.delayMs);
  if (answer.drop === 'before') {
    response.destroy();
    return;
  }
  response.writeHead(answer.status ?? 200, { 'content-type': answer.contentType ?? 'text/event-stream' });
  response.flushHeaders();
  for (const piece of pieces(answer)) {
    if (response.destroyed) return;
    response.write(piece);
    if (answer.gapMs !== undefined) await sleep(answer.gapMs);
    // A turn of the event loop lets the client read the pieces one by one.
    else if (answer.pieceBytes !== undefined) await new Promise((resolve) => setImmediate(resolve));
  }
  if (answer.hang) return;
  if (answer.drop === 'after') {
    await sleep(20);
    response.destroy();
  } else response.end();
}

function pieces(answer: OracleAnswer): Uint8Array[] {
  const texts = answer.raw === undefined ? eventsOf(answer) : [answer.raw];
  const { pieceBytes } = answer;
  if (pieceBytes === undefined) return texts.map((text) => Buffer.from(text));
  const whole = Buffer.from(texts.join(''));
  const count = Math.ceil(whole.length / pieceBytes);
  return Array.from({ length: count }, (_, i) => whole.subarray(i * pieceBytes, (i + 1) * pieceBytes));
}

function eventsOf({ deltas = [], finishReason = 'stop' }: OracleAnswer): string[] {
  const choices = [
    ...deltas.map((delta) => ({ index: 0, delta, finish_reason: null as string | null })),
    { index: 0, delta: {}, finish_reason: finishReason as string | null },
  ];
  const chunks = choices.map((choice) => ({
    id: 'oracle',
    object: 'chat.completion.chunk',
    choices: [choice],
  }));
  return [...chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`), 'data: [DONE]\n\n'];
}

/** Tool calls as a server streams them: the name first, then the arguments in fragments. */
export function callDeltas(
  calls: readonly { readonly name: string; readonly arguments: string }[],
  fragmentChars = 12,
): Record<string, unknown>[] {
  return calls.flatMap((call, index) => {
    const head = {
      index,
      id: `call_${index}`,
      type: 'function',
      function: { name: call.name, arguments: '' },
    };
    const count = Math.ceil(call.arguments.length / fragmentChars);
    const fragments = Array.from({ length: count }, (_, i) => ({
      index,
      function: { arguments: call.arguments.slice(i * fragmentChars, (i + 1) * fragmentChars) },
    }));
    return [head, ...fragments].map((part) => ({ tool_calls: [part] }));
  });
}

/** The same calls, everything in one delta. */
export function wholeCallDelta(
  calls: readonly { readonly name: string; readonly arguments: string }[],
): Record<string, unknown> {
  return {
    tool_calls: calls.map((call, index) => ({
      index,
      id: `call_${index}`,
      type: 'function',
      function: { ...call },
    })),
  };
}
