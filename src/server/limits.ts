/**
 * What a request may hold, so that reading one takes the thread that serves all of them a bounded time, and what of
 * it is repeated in the log.
 */
import type { Logger } from 'pino';
import { isJsonObject, type JsonLimits, type JsonValue } from '../chat/index.ts';
import { shortened } from '../util/index.ts';
import { wrongField } from './fields.ts';

export interface BodyLimits extends JsonLimits {
  readonly bytes: number;
}

/** Text has about four bytes per token; with escapes and much white space this many. */
const bytesPerToken = 16;
/** Schemas of tools, and pictures that become a placeholder. */
const otherBytes = 8 * 2 ** 20;
/** Beside the ids of a raw prompt. */
const otherValues = 100_000;
/** Python refuses to read longer integers. */
const digits = 4300;

/** `bytes` is what the operator wants, null = what a prompt for this context could have. */
export function bodyLimits(contextTokens: number, bytes: number | null = null): BodyLimits {
  return {
    bytes: bytes ?? contextTokens * bytesPerToken + otherBytes,
    values: contextTokens + otherValues,
    keys: 4096,
    digits,
  };
}

/** Entries of a list or an object, by the name of the field in whichever API. */
const counts: Readonly<Record<string, number>> = {
  messages: 16_384,
  input: 16_384,
  tools: 1024,
  functions: 1024,
  stop: 16,
  stop_sequences: 16,
  logit_bias: 1024,
};
/** Characters of a stop text: each is looked for behind every token. */
const stopLength = 1024;

/** Throws UserError that names the field, what it has and the limit. */
export function checkCounts(body: JsonValue): void {
  if (!isJsonObject(body)) return;
  for (const [name, limit] of Object.entries(counts)) {
    const value = body[name];
    const isMany = Array.isArray(value) || isJsonObject(value);
    const count = isMany ? Object.keys(value).length : 0;
    if (count > limit) throw wrongField(name, `has ${count} entries, the limit is ${limit}`);
  }
  for (const name of ['stop', 'stop_sequences']) {
    for (const text of [body[name]].flat())
      if (typeof text === 'string' && text.length > stopLength)
        throw wrongField(name, `has a text of ${text.length} characters, the limit is ${stopLength}`);
  }
}

/** Entries of a list in a line of the log. */
const loggedEntries = 32;
const loggedDepth = 4;

/** A log in which no value is repeated at length. */
export function shortLog(log: Logger): Logger {
  return log.child(
    {},
    { formatters: { log: (fields) => shortValue(fields, loggedDepth) as Record<string, unknown> } },
  );
}

function shortValue(value: unknown, depth: number): unknown {
  if (typeof value === 'string') return shortened(value);
  if (typeof value !== 'object' || value === null || value instanceof Error || depth === 0) return value;
  if (Array.isArray(value)) {
    const shown = value.slice(0, loggedEntries).map((item) => shortValue(item, depth - 1));
    return value.length > loggedEntries ? [...shown, `${value.length - loggedEntries} more`] : shown;
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, shortValue(item, depth - 1)]));
}
