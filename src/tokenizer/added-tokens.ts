/**
 * Finds added tokens in text: leftmost, then longest, as the reference splits before anything else.
 * A match can be refused by the caller (a control token that a user typed); then shorter ones at the same place
 * and later ones are tried.
 */
import type { AddedToken } from './tokenizer-file.ts';

export interface AddedMatch {
  readonly start: number;
  readonly end: number;
  readonly token: AddedToken;
}

export type Accept = (token: AddedToken, start: number, end: number) => boolean;

export class AddedTokenFinder {
  readonly #longestFirst: readonly AddedToken[];
  readonly #pattern: RegExp | null;

  constructor(tokens: readonly AddedToken[]) {
    this.#longestFirst = [...tokens].sort((a, b) => b.content.length - a.content.length);
    const alternatives = this.#longestFirst.map((token) =>
      token.content.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'),
    );
    this.#pattern = tokens.length === 0 ? null : new RegExp(alternatives.join('|'), 'g');
  }

  find(text: string, accept: Accept): AddedMatch[] {
    const found: AddedMatch[] = [];
    const pattern = this.#pattern;
    if (pattern === null) return found;
    pattern.lastIndex = 0;
    for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
      const start = match.index;
      const token = this.#longestFirst.find(
        ({ content }, i) =>
          text.startsWith(content, start) &&
          accept(this.#longestFirst[i] as AddedToken, start, start + content.length),
      );
      const end = start + (token?.content.length ?? 1);
      if (token) found.push({ start, end, token });
      pattern.lastIndex = end;
    }
    return found;
  }
}
