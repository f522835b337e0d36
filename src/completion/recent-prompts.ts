/**
 * The last prompts with their answers, to tell which text of a new prompt differs from what came before: the cache
 * knows how far tokens matched, not what a person should look at.
 */
export interface PromptBreak {
  /** Tokens that the prompt shares with the most similar one before it. */
  readonly at: number;
  /** The last shared text, what the other prompt went on with, and what this one does. Cut to a few tokens. */
  readonly before: string;
  readonly was: string;
  readonly now: string;
}

interface Entry {
  readonly tenant: string;
  ids: Int32Array;
}

const maxEntries = 16;
const maxTokens = 2 ** 20;
const shownTokens = 24;

export class RecentPrompts {
  readonly #decode: (ids: Int32Array) => string;
  readonly #entries: Entry[] = [];
  #tokens = 0;

  constructor(decode: (ids: Int32Array) => string) {
    this.#decode = decode;
  }

  /**
   * Where a prompt parts from the most similar one of the same tenant; null where it only continues it, or nothing is
   * known. `answered` adds what was generated behind it.
   */
  add(
    ids: Int32Array,
    tenant: string,
  ): { readonly broke: PromptBreak | null; answered(generated: readonly number[]): void } {
    const broke = this.#breakOf(ids, tenant);
    const entry: Entry = { tenant, ids };
    this.#entries.unshift(entry);
    this.#tokens += ids.length;
    this.#trim();
    return {
      broke,
      answered: (generated) => {
        if (!this.#entries.includes(entry)) return;
        const whole = new Int32Array(ids.length + generated.length);
        whole.set(ids);
        whole.set(generated, ids.length);
        entry.ids = whole;
        this.#tokens += generated.length;
        this.#trim();
      },
    };
  }

  #breakOf(ids: Int32Array, tenant: string): PromptBreak | null {
    let best: { readonly entry: Entry; readonly at: number } | null = null;
    for (const entry of this.#entries) {
      if (entry.tenant !== tenant) continue;
      const at = sharedLength(entry.ids, ids);
      if (best === null || at > best.at) best = { entry, at };
    }
    if (best === null) return null;
    const { entry, at } = best;
    if (at === entry.ids.length || at === ids.length) return null;
    const show = (from: Int32Array, start: number, end: number): string =>
      this.#decode(from.subarray(Math.max(0, start), end));
    return {
      at,
      before: show(ids, at - shownTokens, at),
      was: show(entry.ids, at, at + shownTokens),
      now: show(ids, at, at + shownTokens),
    };
  }

  #trim(): void {
    while (this.#entries.length > maxEntries || (this.#tokens > maxTokens && this.#entries.length > 1))
      this.#tokens -= this.#entries.pop()?.ids.length ?? 0;
  }
}

function sharedLength(a: Int32Array, b: Int32Array): number {
  const end = Math.min(a.length, b.length);
  let n = 0;
  while (n < end && a[n] === b[n]) n++;
  return n;
}
