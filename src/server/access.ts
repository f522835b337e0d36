/** Who may ask: the API key, compared in a time that tells nothing about it. */
import { createHash, timingSafeEqual } from 'node:crypto';
import { UserError } from '../util/index.ts';

const digest = (text: string): Buffer => createHash('sha256').update(text).digest();

/** Throws UserError('invalid_api_key') unless the header carries the key; a key of null admits everybody. */
export function checkKey(apiKey: string | null, authorization: string | undefined): void {
  if (apiKey === null) return;
  const given = /^Bearer +(.+)$/i.exec(authorization ?? '')?.[1] ?? '';
  if (timingSafeEqual(digest(given), digest(apiKey))) return;
  throw new UserError('invalid_api_key', given === '' ? 'no API key was given' : 'the API key is wrong', {
    hint: 'Send it as `Authorization: Bearer KEY`.',
  });
}
