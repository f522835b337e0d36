/**
 * Where thinking ends in an answer that must have a form. Everything may be thought; but the closing tag has to come, and
 * what follows it begins with a token of its own, so that the form starts at a token's border. The tag counts however it is
 * spelt in tokens, as it does for the reader of the answer.
 */
import type { Vocabulary } from '../../grammar/index.ts';

const tags = ['</think>', '</thinking>'].map((tag) => Buffer.from(tag));
const longestTag = Math.max(...tags.map((tag) => tag.length));

const openingBracket = 0x3c;

/** What is left of a tag behind its first `have` bytes. */
interface Ending {
  readonly tag: number;
  readonly have: number;
}

/** By their first byte. */
const endings = new Map<number, Ending[]>();
for (const [tag, text] of tags.entries())
  for (let have = 1; have < text.length; have++) {
    const first = text[have] as number;
    endings.set(first, [...(endings.get(first) ?? []), { tag, have }]);
  }

/** Tokens that would go on behind the closing tag, by what stands before them. */
export class ThinkingTags {
  /** By `tag index * 16 + bytes of the tag that stand before`: tokens that complete it and say more. */
  readonly #overshoot = new Map<number, number[]>();
  /** Tokens that have a whole tag and more behind it: never. */
  readonly #never: number[] = [];
  readonly #vocabulary: Vocabulary;

  /** One pass over the vocabulary. */
  constructor(vocabulary: Vocabulary) {
    this.#vocabulary = vocabulary;
    for (let id = 0; id < vocabulary.size; id++) {
      const bytes = vocabulary.bytes(id);
      if (bytes === null || bytes.length < 2) continue;
      if (bytes.includes(openingBracket)) this.#noteWhole(id, bytes);
      for (const ending of endings.get(bytes[0] as number) ?? []) this.#noteEnding(id, bytes, ending);
    }
  }

  #noteWhole(id: number, bytes: Uint8Array): void {
    const token = Buffer.from(bytes);
    const saysMore = (tag: Buffer): boolean => {
      const at = token.indexOf(tag);
      return at >= 0 && at + tag.length < token.length;
    };
    if (tags.some(saysMore)) this.#never.push(id);
  }

  #noteEnding(id: number, bytes: Uint8Array, { tag, have }: Ending): void {
    const text = tags[tag] as Buffer;
    const rest = text.length - have;
    if (bytes.length <= rest) return;
    for (let i = 1; i < rest; i++) if (bytes[i] !== text[have + i]) return;
    const ids = this.#overshoot.get(16 * tag + have);
    if (ids === undefined) this.#overshoot.set(16 * tag + have, [id]);
    else ids.push(id);
  }

  /** Tokens that may not follow thinking that ends with `tail`. */
  ruledOut(tail: Buffer): readonly number[] {
    const out = [...this.#never];
    for (const [t, tag] of tags.entries())
      for (let have = 1; have < tag.length; have++)
        if (endsWith(tail, tag.subarray(0, have))) out.push(...(this.#overshoot.get(16 * t + have) ?? []));
    return out;
  }

  /** The end of the thinking behind this token, null when it closes the thinking. */
  after(tail: Buffer, id: number): Buffer | null {
    const bytes = this.#vocabulary.bytes(id) ?? new Uint8Array(0);
    const all = Buffer.concat([tail, bytes]);
    return tags.some((tag) => endsWith(all, tag)) ? null : all.subarray(Math.max(0, all.length - longestTag));
  }
}

function endsWith(text: Buffer, end: Buffer): boolean {
  return text.length >= end.length && text.compare(end, 0, end.length, text.length - end.length) === 0;
}
