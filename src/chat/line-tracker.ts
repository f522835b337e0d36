/** Follows text line by line: whether a place starts its line, and whether it stands in a code fence. */

const shownOfLine = 120;

export class LineTracker {
  /** How much of the text has been followed. */
  #at = 0;
  /** The beginning of the current line. */
  #line = '';
  #blank = true;
  #last = '\n';
  #fence: string | null = null;

  /** Follows the text up to `at`. */
  to(text: string, at: number): void {
    let from = this.#at;
    for (let end = text.indexOf('\n', from); end >= 0 && end < at; end = text.indexOf('\n', from)) {
      this.#extend(text.slice(from, end));
      this.#endLine();
      from = end + 1;
    }
    if (from < at) this.#extend(text.slice(from, at));
    this.#at = Math.max(this.#at, at);
  }

  /** The first `count` characters of the text are gone; those not followed yet are skipped. */
  cut(count: number): void {
    this.#at = Math.max(0, this.#at - count);
  }

  /** A call has ended: what follows it stands for itself. */
  restart(): void {
    this.#at = 0;
    this.#startLine();
    this.#fence = null;
  }

  /** Nothing but blanks stands before this place on its line. */
  get startsLine(): boolean {
    return this.#blank;
  }

  /** The character before this place. */
  get before(): string {
    return this.#last;
  }

  /** The marks that opened the code fence around this place, null outside. */
  get fence(): string | null {
    return this.#fence;
  }

  #extend(piece: string): void {
    if (piece === '') return;
    this.#line += piece.slice(0, Math.max(0, shownOfLine - this.#line.length));
    this.#blank &&= piece.trim() === '';
    this.#last = piece.at(-1) ?? this.#last;
  }

  #endLine(): void {
    const marks = /^\s*(`{3,}|~{3,})(.*)$/.exec(this.#line);
    if (marks?.[1] !== undefined) this.#readFence(marks[1], marks[2] ?? '');
    this.#startLine();
  }

  #readFence(marks: string, info: string): void {
    if (this.#fence === null) {
      if (!info.includes('`')) this.#fence = marks;
    } else if (marks.startsWith(this.#fence) && info.trim() === '') this.#fence = null;
  }

  #startLine(): void {
    this.#line = '';
    this.#blank = true;
    this.#last = '\n';
  }
}

/** Where a line closes the fence that `marks` opened, at or behind `from`: the beginning of that line, or -1. */
export function fenceCloseAt(text: string, from: number, marks: string, ended: boolean): number {
  const mark = marks.charAt(0) === '`' ? '`' : '~';
  const line = new RegExp(`\\n[ \\t]*${mark}{${marks.length},}[ \\t\\r]*(\\n|$)`, 'g');
  line.lastIndex = from;
  const found = line.exec(text);
  return found !== null && (found[1] !== '' || ended) ? found.index + 1 : -1;
}
