/**
 * Open-addressing hash from a pair of token ids to the rank of their merge and the merged id.
 * Typed arrays and integer keys: a look-up allocates nothing.
 */
export class PairTable {
  readonly #mask: number;
  readonly #left: Int32Array;
  readonly #right: Int32Array;
  readonly #rank: Int32Array;
  readonly #merged: Int32Array;

  constructor(capacity: number) {
    const size = 2 ** Math.ceil(Math.log2(Math.max(16, capacity * 2)));
    this.#mask = size - 1;
    this.#left = new Int32Array(size).fill(-1);
    this.#right = new Int32Array(size);
    this.#rank = new Int32Array(size);
    this.#merged = new Int32Array(size);
  }

  set(left: number, right: number, rank: number, merged: number): void {
    const slot = this.#slot(left, right);
    this.#left[slot] = left;
    this.#right[slot] = right;
    this.#rank[slot] = rank;
    this.#merged[slot] = merged;
  }

  /** Where the pair is, or -1 when it never merges. */
  find(left: number, right: number): number {
    const slot = this.#slot(left, right);
    return this.#left[slot] === -1 ? -1 : slot;
  }

  rank(slot: number): number {
    return this.#rank[slot] as number;
  }

  merged(slot: number): number {
    return this.#merged[slot] as number;
  }

  #slot(left: number, right: number): number {
    let hash = Math.imul(left, 0x9e3779b1) ^ Math.imul(right, 0x85ebca6b);
    hash ^= hash >>> 15;
    let slot = hash & this.#mask;
    for (;;) {
      const found = this.#left[slot] as number;
      if (found === -1 || (found === left && this.#right[slot] === right)) return slot;
      slot = (slot + 1) & this.#mask;
    }
  }
}
