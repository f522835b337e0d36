/** HTTP to the endpoint under test: keep-alive connections, no time-outs of its own, times by the monotonic clock. */
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
  /** Sends a body; every outcome is an exchange, nothing throws. */
  send(
    body: string,
    headers: Readonly<Record<string, string>>,
    onFirst?: (ns: bigint) => void,
  ): Promise<Exchange>;
  close(): Promise<void>;
}

export const now = (): bigint => process.hrtime.bigint();

export function openEndpoint(config: BenchConfig, warn: (message: string) => void): Endpoint {
  const { endpoint_config: endpoint, settings } = config;
  const url = new URL(`${(endpoint.endpoints[0] ?? '').replace(/\/+$/, '')}/v1/chat/completions`);
  const pool = new Pool(url.origin, {
    connections: settings.client.max_connections,
    pipelining: 1,
    keepAliveTimeout: settings.client.max_idle_time * 1000,
    keepAliveMaxTimeout: settings.client.max_idle_time * 1000,
    bodyTimeout: 0,
    headersTimeout: 0,
    connect: { timeout: 30_000 },
  });
  const fixed = {
    ...(endpoint.api_key === null ? {} : { Authorization: `Bearer ${endpoint.api_key}` }),
    'Content-Type': 'application/json',
    Accept: 'text/event-stream',
  };
  return {
    async send(body, headers, onFirst) {
      const answer = new Answer();
      let firstNs: bigint | null = null;
      const first = (): void => {
        firstNs = now();
        onFirst?.(firstNs);
      };
      try {
        const response = await pool.request({
          path: url.pathname,
          method: 'POST',
          headers: { ...fixed, ...headers },
          body,
        });
        if (response.statusCode !== 200) {
          const text = await response.body.text();
          return {
            answer,
            firstNs,
            completeNs: now(),
            error: { type: 'error', message: `HTTP ${response.statusCode}: ${text}` },
          };
        }
        if (String(response.headers['content-type']).startsWith('application/json')) {
          readWhole(answer, await response.body.text());
        } else {
          const reader = new SseReader(answer, warn);
          for await (const bytes of response.body) if (reader.push(bytes as Uint8Array)) first();
          if (reader.finish()) first();
        }
        return { answer, firstNs, completeNs: now(), error: null };
      } catch (cause) {
        const error = cause as Error;
        return {
          answer,
          firstNs,
          completeNs: now(),
          error: { type: error.constructor.name, message: `${error.name}: ${error.message}` },
        };
      }
    },
    close: () => pool.destroy(),
  };
}

/** Waits until something listens, at most `seconds`. */
export async function waitUntilReady(url: string, seconds: number, signal: AbortSignal): Promise<boolean> {
  const until = Date.now() + seconds * 1000;
  while (!signal.aborted) {
    try {
      await fetch(new URL('/health', url), { signal: AbortSignal.timeout(2000) });
      return true;
    } catch {
      if (Date.now() >= until) return false;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
  return false;
}
