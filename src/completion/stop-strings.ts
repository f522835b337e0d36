/** Ends a text at the first stop string, which is never emitted. What might become one is held back. */
export class StopStrings {
  readonly #stops: readonly string[];
  #held = '';

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '');
  }

  /** The text that is safe to emit, and whether a stop string was reached. */
  push(text: string): { readonly text: string; readonly stopped: boolean } {
    if (this.#stops.length === 0) return { text, stopped: false };
    const all = this.#held + text;
    const found = this.#stops.map((stop) => all.indexOf(stop)).filter((at) => at >= 0);
    if (found.length > 0) {
      this.#held = '';
      return { text: all.slice(0, Math.min(...found)), stopped: true };
    }
    const keep = Math.max(...this.#stops.map((stop) => overlap(all, stop)));
    this.#held = all.slice(all.length - keep);
    return { text: all.slice(0, all.length - keep), stopped: false };
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
