/**
 * Byte-pair merging of one piece (a word of the pre-tokenizer): always the lowest rank first, the leftmost of
 * equal ranks first. Short pieces scan; long ones, which only hostile or machine-made text has, use a heap, so the
 * cost of n bytes is O(n log n) and never O(n^2).
 */
import { byteAlphabet } from './byte-alphabet.ts';
import { PairTable } from './pair-table.ts';
import { type BpeSpec, bad } from './tokenizer-file.ts';

const scanLimit = 96;
/** Packs (rank, position) into one exact double: rank < 2^26, position < 2^27. */
const positionRange = 2 ** 27;
const noMerge = 0x7fffffff;

export class Bpe {
  readonly #pairs: PairTable;
  /** byte -> id */
  readonly #byteIds: Int32Array;
  readonly #encoder = new TextEncoder();
  #bytes = new Uint8Array(512);
  #ids = new Int32Array(512);
  #ranks = new Int32Array(scanLimit);

  constructor(spec: BpeSpec) {
    this.#byteIds = Int32Array.from(byteAlphabet, (char, byte) => {
      const id = spec.vocab.get(char);
      if (id === undefined)
        throw bad(`tokenizer.json: the vocabulary has no token for byte ${byte}`, 'model.vocab');
      return id;
    });
    this.#pairs = buildPairs(spec);
  }

  /** The ids of a piece of well-formed text, in a new array. */
  encode(piece: string): Int32Array {
    const count = this.#loadBytes(piece);
    const length = count <= scanLimit ? this.#mergeByScan(count) : this.#mergeByHeap(count);
    return this.#ids.slice(0, length);
  }

  #loadBytes(piece: string): number {
    if (this.#bytes.length < piece.length * 3) {
      this.#bytes = new Uint8Array(piece.length * 4);
      this.#ids = new Int32Array(piece.length * 4);
    }
    const { written } = this.#encoder.encodeInto(piece, this.#bytes);
    for (let i = 0; i < written; i++) this.#ids[i] = this.#byteIds[this.#bytes[i] as number] as number;
    return written;
  }

  #rankAt(i: number, j: number): number {
    const slot = this.#pairs.find(this.#ids[i] as number, this.#ids[j] as number);
    return slot < 0 ? noMerge : this.#pairs.rank(slot);
  }

  #mergedAt(i: number, j: number): number {
    return this.#pairs.merged(this.#pairs.find(this.#ids[i] as number, this.#ids[j] as number));
  }

  #mergeByScan(count: number): number {
    const ids = this.#ids;
    const ranks = this.#ranks;
    let n = count;
    for (let i = 0; i + 1 < n; i++) ranks[i] = this.#rankAt(i, i + 1);
    for (;;) {
      let best = noMerge;
      let at = 0;
      for (let i = 0; i + 1 < n; i++) {
        if ((ranks[i] as number) < best) {
          best = ranks[i] as number;
          at = i;
        }
      }
      if (best === noMerge) return n;
      ids[at] = this.#mergedAt(at, at + 1);
      ids.copyWithin(at + 1, at + 2, n);
      ranks.copyWithin(at + 1, at + 2, n);
      n--;
      if (at > 0) ranks[at - 1] = this.#rankAt(at - 1, at);
      if (at + 1 < n) ranks[at] = this.#rankAt(at, at + 1);
    }
  }

  #mergeByHeap(count: number): number {
    const ids = this.#ids;
    const next = Int32Array.from({ length: count }, (_, i) => i + 1);
    const previous = Int32Array.from({ length: count }, (_, i) => i - 1);
    const heap = new MinHeap(count * 3);
    const offer = (i: number, j: number): void => {
      const rank = this.#rankAt(i, j);
      if (rank !== noMerge) heap.push(rank * positionRange + i);
    };
    for (let i = 0; i + 1 < count; i++) offer(i, i + 1);
    while (heap.size > 0) {
      const entry = heap.pop();
      const at = entry % positionRange;
      const right = next[at] as number;
      // An entry is stale when its left symbol is gone or the pair there has changed since.
      if ((ids[at] as number) < 0 || right >= count) continue;
      if (this.#rankAt(at, right) !== (entry - at) / positionRange) continue;
      ids[at] = this.#mergedAt(at, right);
      ids[right] = -1;
      const after = next[right] as number;
      next[at] = after;
      if (after < count) previous[after] = at;
      if (at > 0) offer(previous[at] as number, at);
      if (after < count) offer(at, after);
    }
    let n = 0;
    for (let i = 0; i < count; i = next[i] as number) ids[n++] = ids[i] as number;
    return n;
  }
}

function buildPairs(spec: BpeSpec): PairTable {
  const pairs = new PairTable(spec.merges.length);
  spec.merges.forEach(([left, right], rank) => {
    const l = spec.vocab.get(left);
    const r = spec.vocab.get(right);
    const merged = spec.vocab.get(left + right);
    if (l === undefined || r === undefined || merged === undefined) {
      throw bad(
        `tokenizer.json: merge ${rank} (${left} ${right}) uses a token the vocabulary lacks`,
        `model.merges[${rank}]`,
      );
    }
    pairs.set(l, r, rank, merged);
  });
  return pairs;
}

/** A binary heap of doubles whose capacity is known. */
class MinHeap {
  readonly #items: Float64Array;
  size = 0;

  constructor(capacity: number) {
    this.#items = new Float64Array(capacity);
  }

  push(value: number): void {
    const items = this.#items;
    let at = this.size++;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if ((items[parent] as number) <= value) break;
      items[at] = items[parent] as number;
      at = parent;
    }
    items[at] = value;
  }

  pop(): number {
    const items = this.#items;
    const top = items[0] as number;
    const last = items[--this.size] as number;
    let at = 0;
    for (;;) {
      let child = at * 2 + 1;
      if (child >= this.size) break;
      if (child + 1 < this.size && (items[child + 1] as number) < (items[child] as number)) child++;
      if ((items[child] as number) >= last) break;
      items[at] = items[child] as number;
      at = child;
    }
    items[at] = last;
    return top;
  }
}
