/** `GET /v1/cache/explain`: how much of its prompt each of the last answers found in the cache, and what ended it. */
import type { Answer } from '../completion/index.ts';
import { UserError } from '../util/index.ts';
import type { AnswerHead } from './api.ts';

type Start = NonNullable<Answer['start']>;

const maxEntries = 64;

const reasons: Readonly<Record<Start['reuseLimit'], string>> = {
  'whole-prompt': 'everything but the last token was reused',
  'tokens-differ': 'the prompt differs from all that is cached behind the matched tokens',
  'no-snapshot': 'more tokens matched, but no snapshot of the recurrent state was there',
  cold: 'nothing that is cached begins like this prompt',
};

export class Explained {
  readonly #entries: ReturnType<typeof explain>[] = [];

  add(head: AnswerHead, start: Start): void {
    this.#entries.unshift(explain(head, start));
    this.#entries.length = Math.min(this.#entries.length, maxEntries);
  }

  /** Newest first. `id` asks for one answer, `limit` for the last few. Throws UserError. */
  body({ id, limit }: Readonly<Record<string, unknown>>) {
    if (id !== undefined) {
      const found = this.#entries.filter((entry) => entry.id === id);
      if (found.length === 0)
        throw new UserError(
          'not_found',
          `the answer '${String(id).slice(0, 200)}' is not among the last ${maxEntries}`,
          { param: 'id' },
        );
      return { object: 'list', data: found };
    }
    const count = limit === undefined ? maxEntries : Number(limit);
    if (!Number.isInteger(count) || count < 1)
      throw new UserError(
        'invalid_request',
        `limit is '${String(limit).slice(0, 200)}', expected a whole number from 1`,
        { param: 'limit' },
      );
    return { object: 'list', data: this.#entries.slice(0, count) };
  }
}

function explain({ id, created }: AnswerHead, start: Start) {
  const { promptTokens, cachedTokens, matchedTokens, reuseLimit, broke, stableLines } = start;
  return {
    id,
    created,
    prompt_tokens: promptTokens,
    cached_tokens: cachedTokens,
    matched_tokens: matchedTokens,
    limit: reuseLimit,
    reason: reasons[reuseLimit],
    stable_lines: stableLines,
    broke_at: broke,
  };
}
