/**
 * Finds where the end of a text has occurred before and what followed there.
 *
 * Tokens are kept in a ring of fixed capacity. The last `gram` tokens hash to the newest earlier position with the same
 * hash, and every position links to the one before it: appending costs a hash and two stores, a look-up walks a bounded
 * number of links and compares backwards. Links that fell out of the ring are recognised by age.
 */
import { assert } from '../../util/index.ts';

export interface Occurrence {
  /** Where it was found. */
  readonly index: SuffixIndex;
  /** Index of the token that followed the match, counted from the first token ever appended. */
  readonly next: number;
  /** Tokens that agree backwards from there, at most `maxMatch`. */
  readonly matchLen: number;
}

export interface SuffixIndexLimits {
  /** Tokens remembered; a power of two. */
  readonly capacity: number;
  /** Shortest match that counts. */
  readonly gram: number;
  /** Longest match that is told apart from longer ones. */
  readonly maxMatch: number;
  /** Links followed per look-up. */
  readonly maxLinks: number;
}

export const defaultSuffixLimits: SuffixIndexLimits = {
  capacity: 65_536,
  gram: 3,
  maxMatch: 32,
  maxLinks: 24,
};

const hashBits = 15;

/** Not a token: between texts. */
const separator = -1;

export class SuffixIndex {
  readonly #limits: SuffixIndexLimits;
  readonly #mask: number;
  readonly #tokens: Int32Array;
  /** Per token: index of the previous token whose gram has the same hash, -1 = none. */
  readonly #links: Float64Array;
  readonly #heads: Float64Array;
  #length = 0;

  constructor(limits: Partial<SuffixIndexLimits> = {}) {
    this.#limits = { ...defaultSuffixLimits, ...limits };
    const { capacity, gram, maxMatch } = this.#limits;
    assert(capacity > 0 && (capacity & (capacity - 1)) === 0, `capacity ${capacity} is a power of two`);
    assert(gram >= 1 && gram <= maxMatch && maxMatch < capacity, `1 <= ${gram} <= ${maxMatch} < ${capacity}`);
    this.#mask = capacity - 1;
    this.#tokens = new Int32Array(capacity);
    this.#links = new Float64Array(capacity).fill(-1);
    this.#heads = new Float64Array(1 << hashBits).fill(-1);
  }

  /** Tokens appended so far. */
  get length(): number {
    return this.#length;
  }

  append(ids: Int32Array | readonly number[]): void {
    for (const id of ids) {
      const at = this.#length++;
      this.#tokens[at & this.#mask] = id;
      if (this.#length < this.#limits.gram) continue;
      const slot = this.#hash((n) => this.#tokens[(at - n) & this.#mask] as number);
      this.#links[at & this.#mask] = this.#heads[slot] as number;
      this.#heads[slot] = at;
    }
  }

  /** Ends a text: no occurrence reaches over it, none continues into it. */
  separate(): void {
    this.append([separator]);
  }

  /** The token at an index, which must still be remembered; negative = the text ended there. */
  token(index: number): number {
    assert(this.#isKept(index), `token ${index} of ${this.#length} is remembered`);
    return this.#tokens[index & this.#mask] as number;
  }

  /** Earlier occurrences of the text's end, newest first; each agrees in at least `gram` tokens. */
  find(): Occurrence[] {
    if (this.#length < this.#limits.gram) return [];
    const last = this.#length - 1;
    const back = (n: number): number => (this.#isKept(last - n) ? this.token(last - n) : separator);
    return this.#occurrences(this.#links[last & this.#mask] as number, back);
  }

  /** Occurrences of the end of another text, newest first. */
  findEndOf(text: Int32Array): Occurrence[] {
    if (text.length < this.#limits.gram) return [];
    const back = (n: number): number => text[text.length - 1 - n] ?? separator;
    return this.#occurrences(this.#heads[this.#hash(back)] as number, back);
  }

  /** From a chain of links; `back(n)` is the n-th token before the end of the text that is looked for. */
  #occurrences(newest: number, back: (n: number) => number): Occurrence[] {
    const found: Occurrence[] = [];
    let at = newest;
    for (let hops = 0; hops < this.#limits.maxLinks && this.#isKept(at); hops++) {
      const matchLen = this.#agreement(at, back);
      if (matchLen >= this.#limits.gram) found.push({ index: this, next: at + 1, matchLen });
      const before = this.#links[at & this.#mask] as number;
      if (before >= at) break;
      at = before;
    }
    return found;
  }

  #isKept(index: number): boolean {
    return index >= 0 && index < this.#length && index > this.#length - 1 - this.#limits.capacity;
  }

  #agreement(at: number, back: (n: number) => number): number {
    let n = 0;
    while (n < this.#limits.maxMatch && this.#isKept(at - n)) {
      const token = back(n);
      if (token === separator || this.token(at - n) !== token) break;
      n++;
    }
    return n;
  }

  #hash(back: (n: number) => number): number {
    let hash = 0;
    for (let i = 0; i < this.#limits.gram; i++) hash = Math.imul(hash ^ back(i), 0x9e3779b1) ^ (hash >>> 13);
    return (hash >>> (32 - hashBits)) & ((1 << hashBits) - 1);
  }
}
