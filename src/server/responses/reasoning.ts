/** Reasoning that a client without a store keeps for us, as `encrypted_content`. It is no secret: the summary says it too. */
import type { JsonValue } from '../../chat/index.ts';

const mark = 'copse1.';

export function sealReasoning(text: string): string {
  return mark + Buffer.from(text, 'utf8').toString('base64');
}

/** null for what another server made. */
export function openReasoning(sealed: JsonValue | undefined): string | null {
  if (typeof sealed !== 'string' || !sealed.startsWith(mark)) return null;
  return Buffer.from(sealed.slice(mark.length), 'base64').toString('utf8');
}
