/**
 * Finds where the value of a parameter ends. A closing tag or the next declared key ends it at a line's start; in the
 * middle of a line they are text, unless the whole value is written in one line with its tags. Calls that are quoted
 * inside the value are balanced: their closing tags are theirs.
 */
import {
  type Closes,
  closingTag,
  type Ending,
  meantTag,
  parameterTag,
  skipBlank,
  skipSpaces,
  structureAt,
} from './call-tags.ts';

export type ValueEnd =
  /** The value is text[0, end), reading goes on at `resume`. */
  | { readonly kind: 'end'; readonly end: number; readonly resume: number }
  /** Nothing before `safe` can be the end. */
  | { readonly kind: 'more'; readonly safe: number };

type Verdict = { readonly resume: number } | 'wait' | 'text';
type Closing = Exclude<ReturnType<typeof closingTag>, string>;
type Format = Exclude<Closes, 'think'>;

const longestOpening = 40;

export class ValueScanner {
  readonly #mayFollow: (key: string) => boolean;
  readonly #isKey: (key: string) => boolean;
  #from = 0;
  /** Calls that are quoted in the value and still open. */
  readonly #quoted: Format[] = [];
  /** Other tags that resemble those of the format, and how many are open. */
  readonly #opened = new Map<string, number>();
  /** Nothing but blanks has been cut off since the last line break. */
  #cutStartsLine = true;
  #sawLine = false;

  /** `mayFollow`: a key that would begin the next parameter. `isKey`: a key that the tool declares. */
  constructor(mayFollow: (key: string) => boolean, isKey: (key: string) => boolean) {
    this.#mayFollow = mayFollow;
    this.#isKey = isKey;
  }

  /** `text` was cut off the front: part of the value, or the line break before it. */
  cut(text: string): void {
    if (text === '') return;
    const line = text.lastIndexOf('\n');
    if (line >= 0) this.#sawLine = true;
    const tail = text.slice(line + 1);
    this.#cutStartsLine = (line >= 0 || this.#cutStartsLine) && tail.trim() === '';
    this.#from = Math.max(0, this.#from - text.length);
  }

  scan(text: string, ending: Ending): ValueEnd {
    for (let at = text.indexOf('<', this.#from); at >= 0; at = text.indexOf('<', at + 1)) {
      const verdict = this.#tagAt(text, at, ending);
      if (verdict === 'wait') {
        this.#from = at;
        return { kind: 'more', safe: at };
      }
      if (verdict !== 'text') return { kind: 'end', end: at, resume: verdict.resume };
    }
    this.#from = text.length;
    return { kind: 'more', safe: text.length };
  }

  #tagAt(text: string, at: number, ending: Ending): Verdict {
    const close = closingTag(text, at, ending);
    if (close === 'wait') return 'wait';
    if (close !== 'no') return this.#closes(text, at, close, ending);
    const opening = /^<([A-Za-z_][\w-]{0,30})(.?)/s.exec(text.slice(at, at + longestOpening));
    const [, name = '', next = ''] = opening ?? [];
    if (opening !== null && next === '' && ending === 'open') return 'wait';
    if (name === 'tool_call' && next === '>') return this.#quote('tool_call');
    if (name === 'function' && next === '=') return this.#quote('function');
    if (name === 'parameter' && !/[>\w]/.test(next)) return this.#parameter(text, at, ending);
    if (meantTag(name) !== null) this.#opened.set(name, (this.#opened.get(name) ?? 0) + 1);
    return 'text';
  }

  #quote(what: Format): 'text' {
    this.#quoted.push(what);
    return 'text';
  }

  #parameter(text: string, at: number, ending: Ending): Verdict {
    const tag = parameterTag(text, at, ending, this.#isKey);
    if (tag === 'wait') return 'wait';
    const isExact = text.startsWith('<parameter=', at);
    if (tag === 'no' || !(isExact || this.#isKey(tag.name))) return 'text';
    if (this.#quoted.includes('function')) return this.#quote('parameter');
    return this.#startsLine(text, at) && this.#mayFollow(tag.name) ? { resume: at } : 'text';
  }

  #closes(text: string, at: number, { closes, spelt, end }: Closing, ending: Ending): Verdict {
    if (closes === 'think' || this.#closesOwn(closes, spelt)) return 'text';
    const after = skipBlank(text, end);
    const follows = after >= text.length ? 'end' : structureAt(text, after, ending);
    if (follows === 'wait' || (follows === 'end' && ending === 'open')) return 'wait';
    const startsLine = this.#startsLine(text, at);
    const inOneLine = !this.#sawLine && !text.slice(0, at).includes('\n');
    const resume = closes === 'parameter' ? end : at;
    if (follows === 'no')
      return closes === 'tool_call' && startsLine && endsLine(text, end) ? { resume } : 'text';
    if (startsLine || inOneLine) return { resume };
    const alone = follows === 'end' || endsLine(text, end);
    return closes === 'parameter' && alone ? { resume } : 'text';
  }

  /** Whether the tag closes what was opened in the value itself. */
  #closesOwn(closes: Format, spelt: string): boolean {
    const quoted = this.#quoted.lastIndexOf(closes);
    if (quoted >= 0) {
      this.#quoted.length = quoted;
      return true;
    }
    const opened = this.#opened.get(spelt) ?? 0;
    if (opened > 0) this.#opened.set(spelt, opened - 1);
    return opened > 0;
  }

  #startsLine(text: string, at: number): boolean {
    let from = at;
    while (from > 0 && (text.charAt(from - 1) === ' ' || text.charAt(from - 1) === '\t')) from--;
    return from === 0 ? this.#cutStartsLine : text.charAt(from - 1) === '\n';
  }
}

function endsLine(text: string, end: number): boolean {
  const next = text.charAt(skipSpaces(text, end));
  return next === '\n' || next === '\r' || next === '';
}
