/** Who may ask: the API key, compared in a time that tells nothing about it, and the origins of web pages. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { UserError } from '../util/index.ts';

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** The key as OpenAI's clients send it, or Anthropic's; '' without one. */
export function keyOf(headers: IncomingHttpHeaders): string {
  const { authorization = '', 'x-api-key': key } = headers;
  return /^Bearer +(.+)$/i.exec(authorization)?.[1] ?? (typeof key === 'string' ? key : '');
}

/** Throws UserError('invalid_api_key') unless `given` is the key; a key of null admits everybody. */
export function checkKey(apiKey: string | null, given: string): void {
  if (apiKey === null || timingSafeEqual(digest(given), digest(apiKey))) return;
  throw new UserError('invalid_api_key', given === '' ? 'no API key was given' : 'the API key is wrong', {
    hint: 'Send it as `Authorization: Bearer KEY` or `x-api-key: KEY`.',
  });
}

/** Tells a browser that a page of this origin may ask. On the raw response, so that streams carry it too. */
export function allowOrigin(
  { headers }: FastifyRequest,
  { raw }: FastifyReply,
  origins: readonly string[],
): void {
  const { origin } = headers;
  if (origin === undefined || origins.length === 0) return;
  raw.setHeader('Vary', 'Origin');
  const any = origins.includes('*');
  if (!any && !origins.includes(origin)) return;
  raw.setHeader('Access-Control-Allow-Origin', any ? '*' : origin);
  raw.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE, OPTIONS');
  raw.setHeader('Access-Control-Allow-Headers', headers['access-control-request-headers'] ?? '*');
  raw.setHeader('Access-Control-Max-Age', '86400');
}
