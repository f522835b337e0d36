/**
 * A bounded cache from text to ids: two generations, the older is dropped whole when the younger is full, and a hit
 * moves its entry to the younger. So memory is bounded, what is used stays, and no list is kept.
 */

/** UTF-16 units from which V8 makes a slice that keeps its parent alive instead of copying. */
const sliceLength = 13;

/** Text of its own memory: a cached word must not keep the 100 kB prompt alive that it was cut from. */
function detach(text: string): string {
  return text.length < sliceLength ? text : Buffer.from(text, 'utf16le').toString('utf16le');
}

export class TextCache {
  readonly #limit: number;
  #young = new Map<string, Int32Array>();
  #old = new Map<string, Int32Array>();
  #weight = 0;

  /** `limit`: UTF-16 units plus ids, a generation. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#young.size + this.#old.size;
  }

  get(text: string): Int32Array | undefined {
    const young = this.#young.get(text);
    if (young !== undefined) return young;
    const old = this.#old.get(text);
    if (old === undefined) return undefined;
    this.#old.delete(text);
    this.set(text, old);
    return old;
  }

  set(text: string, ids: Int32Array): void {
    const weight = text.length + ids.length + 16;
    if (weight > this.#limit) return;
    if (this.#weight + weight > this.#limit) {
      this.#old = this.#young;
      this.#young = new Map();
      this.#weight = 0;
    }
    this.#young.set(detach(text), ids);
    this.#weight += weight;
  }
}
