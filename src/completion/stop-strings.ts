/** Ends a text at the first stop string, which is never emitted. What might become one is held back. */
export class StopStrings {
  readonly #stops: readonly string[];
  #held = '';

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '');
  }

  /** The text that is safe to emit, and the stop string that was reached, if one was. */
  push(text: string): { readonly text: string; readonly stop: string | null } {
    if (this.#stops.length === 0) return { text, stop: null };
    const all = this.#held + text;
    const found = this.#stops.map((stop) => ({ stop, at: all.indexOf(stop) })).filter(({ at }) => at >= 0);
    const [first] = found.sort((a, b) => a.at - b.at);
    if (first !== undefined) {
      this.#held = '';
      return { text: all.slice(0, first.at), stop: first.stop };
    }
    const keep = Math.max(...this.#stops.map((stop) => overlap(all, stop)));
    this.#held = all.slice(all.length - keep);
    return { text: all.slice(0, all.length - keep), stop: null };
  }

  /** What was held back and did not become a stop string. */
  flush(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }
}

/** Length of the longest end of `text` that begins `stop`. */
function overlap(text: string, stop: string): number {
  for (let n = Math.min(text.length, stop.length - 1); n > 0; n--)
    if (stop.startsWith(text.slice(text.length - n))) return n;
  return 0;
}
