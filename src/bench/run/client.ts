/**
 * HTTP to the endpoint under test: keep-alive connections, one request in flight on each, no time-outs of its own, times by the
 * monotonic clock of this process. Every outcome is an exchange; nothing throws. A request is never sent twice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Pool } from 'undici';
import { Answer } from './answer.ts';
import type { BenchConfig } from './config.ts';
import { readWhole, SseReader } from './sse.ts';

export interface Exchange {
  readonly answer: Answer;
  readonly firstNs: bigint | null;
  readonly completeNs: bigint;
  readonly error: { readonly type: string; readonly message: string } | null;
}

export interface Endpoint {
  /**
   * Sends a body. `isWanted` false: what still comes is read to free the connection, but not kept.
   */
  send(
    body: string,
    headers: Readonly<Record<string, string>>,
    onFirst?: (ns: bigint) => void,
    isWanted?: () => boolean,
  ): Promise<Exchange>;
  /** The server's metrics page, or null where there is none. Not on the connections of the requests. */
  metricsText(): Promise<string | null>;
  close(): Promise<void>;
}

export const now = (): bigint => process.hrtime.bigint();

export function openEndpoint(config: BenchConfig, warn: (message: string) => void): Endpoint {
  const { endpoint_config: endpoint, settings } = config;
  const base = (endpoint.endpoints[0] ?? '').replace(/\/+$/, '');
  const url = new URL(`${base}/v1/chat/completions`);
  const idleMs = settings.client.max_idle_time * 1000;
  const pool = new Pool(url.origin, {
    connections: settings.client.max_connections,
    pipelining: 1,
    keepAliveTimeout: idleMs,
    keepAliveMaxTimeout: idleMs,
    bodyTimeout: 0,
    headersTimeout: 0,
    connect: { timeout: 30_000 },
  });
  const authorization: Record<string, string> =
    endpoint.api_key === null ? {} : { Authorization: `Bearer ${endpoint.api_key}` };
  const fixed = { ...authorization, 'Content-Type': 'application/json', Accept: 'text/event-stream' };
  const isStreaming = config.model_params.streaming !== 'off';

  async function exchange(...[body, headers, onFirst, isWanted = () => true]: Parameters<Endpoint['send']>) {
    const answer = new Answer();
    let firstNs: bigint | null = null;
    const first = (): void => {
      firstNs = now();
      onFirst?.(firstNs);
    };
    const outcome = (error: Exchange['error']): Exchange => ({ answer, firstNs, completeNs: now(), error });
    try {
      const path = url.pathname;
      const response = await pool.request({ path, method: 'POST', headers: { ...fixed, ...headers }, body });
      if (response.statusCode !== 200) {
        const text = await response.body.text();
        return outcome({ type: 'error', message: `HTTP ${response.statusCode}: ${text}` });
      }
      if (isStreaming) {
        const reader = new SseReader(answer, warn);
        for await (const bytes of response.body) if (isWanted() && reader.push(bytes as Uint8Array)) first();
        if (isWanted() && reader.finish()) first();
      } else {
        readWhole(answer, await response.body.text());
      }
      return outcome(null);
    } catch (cause) {
      const error = cause as Error & { code?: string };
      const message = [error.message, error.code ?? ''].filter((part) => part !== '').join(', ');
      return outcome({ type: error.constructor.name, message: `${error.constructor.name}(${message})` });
    }
  }

  return {
    send: exchange,
    metricsText: () => getText(`${base}/metrics`, authorization),
    close: () => pool.destroy(),
  };
}

async function getText(url: string, headers: Record<string, string>): Promise<string | null> {
  try {
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(2000) });
    const text = await response.text();
    return response.ok ? text : null;
  } catch {
    return null;
  }
}

/** Waits until something listens, at most `seconds`. Any answer will do, except 503: a server that still loads its model. */
export async function waitUntilReady(url: string, seconds: number, signal: AbortSignal): Promise<boolean> {
  const until = Date.now() + seconds * 1000;
  while (!signal.aborted) {
    try {
      const response = await fetch(new URL('/health', url), {
        signal: AbortSignal.any([AbortSignal.timeout(2000), signal]),
      });
      await response.body?.cancel();
      if (response.status !== 503) return true;
    } catch {
      // Nothing listens yet.
    }
    if (Date.now() >= until) return false;
    await sleep(200);
  }
  return false;
}
