/** The tokens of a tokenizer as a trie over their bytes, made once per tokenizer and shared by all grammars. */
import type { Tokenizer } from '../tokenizer/index.ts';

/** What a vocabulary is made of. */
export interface TokenSource {
  /** One more than the highest id. */
  readonly size: number;
  /** The bytes of a token; null or empty: there is no such token. */
  bytes(id: number): Uint8Array | null;
  /** Control tokens are no text: a grammar never allows them, but for the stop tokens. */
  isControl(id: number): boolean;
  /** The ids of a text. */
  encode(text: string): ArrayLike<number>;
}

/**
 * The trie lies in arrays in the order of a walk: a node is followed by its subtree, so that leaving out a subtree is
 * one jump. Node 0 is the root.
 */
export class Vocabulary {
  /** One more than the highest id. */
  readonly size: number;
  /** Length of a mask in 32-bit words. */
  readonly words: number;
  readonly stopIds: readonly number[];
  /** The last byte of each node's text. */
  readonly byte: Uint8Array;
  /** Length of each node's text in bytes. */
  readonly depth: Uint16Array;
  /** The node behind each node's subtree. */
  readonly end: Int32Array;
  /** The token that each node spells, or -1. */
  readonly token: Int32Array;
  /** Another token with the same bytes, or -1; by token id. */
  readonly twin: Int32Array;
  /** The most bytes that a token has. */
  readonly longest: number;
  readonly #source: TokenSource;
  readonly #stops: ReadonlySet<number>;

  constructor(source: TokenSource, stopIds: readonly number[]) {
    this.size = source.size;
    this.words = Math.ceil(source.size / 32);
    this.stopIds = [...new Set(stopIds)].filter((id) => id >= 0 && id < source.size);
    this.#stops = new Set(this.stopIds);
    this.#source = source;
    const sorted: { id: number; bytes: Uint8Array }[] = [];
    for (let id = 0; id < source.size; id++) {
      const bytes = this.bytes(id);
      if (bytes !== null) sorted.push({ id, bytes });
    }
    sorted.sort((a, b) => Buffer.compare(a.bytes, b.bytes) || a.id - b.id);
    let nodes = 1;
    let longest = 0;
    sorted.forEach(({ bytes }, i) => {
      nodes += bytes.length - sharedLength(sorted[i - 1]?.bytes, bytes);
      longest = Math.max(longest, bytes.length);
    });
    this.longest = longest;
    this.byte = new Uint8Array(nodes);
    this.depth = new Uint16Array(nodes);
    this.end = new Int32Array(nodes);
    this.token = new Int32Array(nodes).fill(-1);
    this.twin = new Int32Array(source.size).fill(-1);
    this.#fill(sorted);
  }

  /** The bytes of a token of text; null for stop and control tokens and for ids that stand for nothing. */
  bytes(id: number): Uint8Array | null {
    if (!(id >= 0 && id < this.size) || this.#stops.has(id) || this.#source.isControl(id)) return null;
    const bytes = this.#source.bytes(id);
    return bytes === null || bytes.length === 0 ? null : bytes;
  }

  isStop(id: number): boolean {
    return this.#stops.has(id);
  }

  encode(text: string): ArrayLike<number> {
    return this.#source.encode(text);
  }

  #fill(sorted: readonly { readonly id: number; readonly bytes: Uint8Array }[]): void {
    /** The nodes on the way to the last token. */
    const path = [0];
    let count = 1;
    const close = (length: number): void => {
      while (path.length > length + 1) this.end[path.pop() as number] = count;
    };
    let last: Uint8Array | undefined;
    for (const { id, bytes } of sorted) {
      const shared = sharedLength(last, bytes);
      close(shared);
      for (let i = shared; i < bytes.length; i++) {
        this.byte[count] = bytes[i] as number;
        this.depth[count] = i + 1;
        path.push(count++);
      }
      const node = path.at(-1) as number;
      this.twin[id] = this.token[node] as number;
      this.token[node] = id;
      last = bytes;
    }
    close(0);
    this.end[0] = count;
  }
}

/** The vocabulary of a tokenizer. `stopIds`: the tokens that end an answer. */
export function vocabularyOf(tokenizer: Tokenizer, stopIds: readonly number[]): Vocabulary {
  return new Vocabulary(
    {
      size: tokenizer.vocabSize,
      bytes: (id) => (tokenizer.hasId(id) ? tokenizer.idToBytes(id) : null),
      isControl: (id) => tokenizer.specialIds.has(id),
      encode: (text) => tokenizer.encode(text, { special: 'plain' }),
    },
    stopIds,
  );
}

function sharedLength(a: Uint8Array | undefined, b: Uint8Array): number {
  if (a === undefined) return 0;
  const most = Math.min(a.length, b.length);
  let i = 0;
  while (i < most && a[i] === b[i]) i++;
  return i;
}
