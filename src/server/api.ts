/**
 * The seam between an API and the server: one record per API, over one completion. An API reads its requests, writes
 * its answers, whole or as a stream, and says errors in its own shape; it knows nothing of HTTP.
 *
 * To add one: a folder with an `Api` record, named in `server.ts`.
 */
import type { JsonValue } from '../chat/index.ts';
import type { Answer, Completion, Delta } from '../completion/index.ts';
import type { ReadOptions } from './content.ts';
import type { UsageOptions } from './openai/usage.ts';

export interface Api {
  readonly name: string;
  /** Whether errors on this path are told in the API's shape. */
  owns(path: string): boolean;
  readonly endpoints: readonly Endpoint[];
  /** Everything else that the API has; none generates. */
  readonly routes?: readonly Route[];
  /** Status and body for whatever was thrown; tells nothing of the inside. */
  errorBody(error: unknown): ErrorReply;
}

export interface ErrorReply {
  readonly status: number;
  readonly body: unknown;
  /** For the log. */
  readonly message: string;
}

/** A POST route that generates. */
export interface Endpoint {
  readonly path: string;
  /** In front of the ids of its answers. */
  readonly idPrefix: string;
  /** Throws UserError for a request that can not be taken. */
  read(body: JsonValue, context: ReadContext): Call;
}

/** A route that answers at once. */
export interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** With `:name` for a part that `params` has. */
  readonly path: string;
  /** The body of the answer. Throws UserError. */
  handle(request: RouteRequest, context: ReadContext): unknown;
}

export interface RouteRequest {
  /** null where the request has none. */
  readonly body: JsonValue;
  readonly params: Readonly<Record<string, string>>;
  readonly query: Readonly<Record<string, unknown>>;
}

export interface ReadContext extends ReadOptions, UsageOptions {
  readonly completion: Completion;
  /** The key that the client sent: what one may look up, another may not. */
  readonly caller: string;
  /** Name that the model is served under. */
  readonly modelName: string;
  /** Throws UserError for a name that the server does not have. */
  readonly checkModel: (model: string) => void;
  /** A note for the log. */
  readonly log: (fields: Readonly<Record<string, unknown>>, message: string) => void;
}

/** One request, read and checked. */
export interface Call {
  readonly model: string;
  readonly stream: boolean;
  /** Answers wanted to the one prompt. */
  readonly choices: number;
  /** Throws UserError at once for what can not be run; `choice` counts from 0. */
  generate(choice: number, signal: AbortSignal): AsyncIterable<Delta>;
  /** The body of a whole answer; one entry per choice. */
  whole(head: AnswerHead, answers: readonly Answer[]): unknown;
  writer(head: AnswerHead): StreamWriter;
  /** Called with what a stream or a whole answer said, when it is complete. */
  readonly keep?: (head: AnswerHead, answers: readonly Answer[]) => void;
  /** Fields that were ignored. */
  readonly unknown: readonly string[];
  /** What was changed or left out. */
  readonly notes: readonly string[];
}

/** Identity of one answer. */
export interface AnswerHead {
  readonly id: string;
  /** Unix time, seconds. */
  readonly created: number;
  /** The name that the model is served under. */
  readonly model: string;
}

export type FinishDelta = Extract<Delta, { type: 'finish' }>;

/** Turns deltas into the text of a stream. Every method returns text to send, '' for nothing. */
export interface StreamWriter {
  readonly contentType: string;
  /** Sent with the headers, before the engine has said anything. */
  open(): string;
  delta(delta: Delta, choice: number): string;
  /** All choices have finished; `finishes` holds one entry per choice. */
  end(finishes: readonly FinishDelta[]): string;
  /** The stream breaks off; `body` is that of `errorBody`. */
  fail(body: unknown): string;
  /** Keeps a quiet connection open. */
  ping(): string;
}

export const eventStream = 'text/event-stream; charset=utf-8';

/** A server-sent event. */
export function event(data: unknown, name?: string): string {
  const text = typeof data === 'string' ? data : JSON.stringify(data);
  return `${name === undefined ? '' : `event: ${name}\n`}data: ${text}\n\n`;
}

/** Clients skip it. */
export function comment(text: string): string {
  return `: ${text}\n\n`;
}
