/**
 * Recognizes the tags of the Qwen call format in text that is still being written. Every question is answered
 * 'wait' until the text that follows settles it, so an answer never depends on how the text was cut into chunks.
 */

/** No more text will come. */
export type Ending = 'open' | 'ended';

export type CallStart =
  | { readonly kind: 'function'; readonly name: string; readonly end: number }
  | { readonly kind: 'json'; readonly at: number }
  | 'wait'
  | 'no';

const longestName = 256;

/** A call that begins at `at`: `<tool_call>` with a function or JSON in it, or a function without the wrapper. */
export function callStart(text: string, at: number, ending: Ending): CallStart {
  const wrapped = text.startsWith('<tool_call>', at);
  const inner = wrapped ? skipBlank(text, at + '<tool_call>'.length) : at;
  if (wrapped && text.charAt(inner) === '{') return { kind: 'json', at: inner };
  const name = tagName(text, inner, '<function=', ending);
  if (name === 'wait' || name === 'no')
    return name === 'no' && cutOff(text, at, ['<tool_call>'], ending) ? 'wait' : name;
  return { kind: 'function', ...name };
}

/** The name in `<function=name>` or `<parameter=name>` at `at`. */
export function tagName(
  text: string,
  at: number,
  tag: '<function=' | '<parameter=',
  ending: Ending,
): { readonly name: string; readonly end: number } | 'wait' | 'no' {
  if (!text.startsWith(tag, at)) return cutOff(text, at, [tag], ending) ? 'wait' : 'no';
  const from = at + tag.length;
  const stop = text.slice(from, from + longestName + 1).search(/[\s<>{}"']/);
  if (stop < 0) return ending === 'open' && text.length - from <= longestName ? 'wait' : 'no';
  if (stop === 0 || text.charAt(from + stop) !== '>') return 'no';
  return { name: text.slice(from, from + stop), end: from + stop + 1 };
}

/** The text from `at` on is empty or the beginning of one of the tags, and more may come. */
export function cutOff(text: string, at: number, tags: readonly string[], ending: Ending): boolean {
  if (ending === 'ended') return false;
  const left = text.length - at;
  return tags.some((tag) => left < tag.length && tag.startsWith(text.slice(at)));
}

export function skipBlank(text: string, from: number): number {
  const blanks = /[ \t\r\n]*/y;
  blanks.lastIndex = from;
  blanks.test(text);
  return Math.max(from, blanks.lastIndex);
}

export type ValueEnd =
  /** The value is text[0, end), reading goes on at `resume`. */
  | { readonly kind: 'end'; readonly end: number; readonly resume: number }
  /** Nothing before `safe` can be the end. */
  | { readonly kind: 'more'; readonly safe: number };

export interface ValueContext {
  readonly ending: Ending;
  /** Whether `<parameter=key>` inside the value is the next parameter (the closing tag was forgotten) or text. */
  readonly isNext: (key: string) => boolean;
}

const closers = ['</parameter>', '</function>', '</tool_call>'] as const;
const followers: Readonly<Record<(typeof closers)[number], readonly string[]>> = {
  '</parameter>': ['<parameter=', '</function>', '</tool_call>', '<tool_call>', '<function='],
  '</function>': ['</tool_call>', '<tool_call>', '<function='],
  '</tool_call>': ['<tool_call>'],
};
const valueTags = [...closers, '<parameter='];

/** Where a parameter's value ends. Text that looks like a closing tag is one only before what may follow it. */
export function findValueEnd(text: string, from: number, context: ValueContext): ValueEnd {
  for (let at = text.indexOf('<', from); at >= 0; at = text.indexOf('<', at + 1)) {
    const verdict = valueEndAt(text, at, context);
    if (verdict === 'wait') return { kind: 'more', safe: at };
    if (verdict === 'end') return { kind: 'end', end: at, resume: at };
    if (verdict === 'close') return { kind: 'end', end: at, resume: at + '</parameter>'.length };
  }
  return { kind: 'more', safe: text.length };
}

function valueEndAt(
  text: string,
  at: number,
  { ending, isNext }: ValueContext,
): 'wait' | 'no' | 'end' | 'close' {
  if (cutOff(text, at, valueTags, ending)) return 'wait';
  const closer = closers.find((tag) => text.startsWith(tag, at));
  if (closer === undefined) {
    const next = tagName(text, at, '<parameter=', ending);
    if (typeof next === 'string') return next;
    return isNext(next.name) ? 'end' : 'no';
  }
  const after = skipBlank(text, at + closer.length);
  const follows = followers[closer].some((tag) => text.startsWith(tag, after));
  if (!follows && cutOff(text, after, followers[closer], ending)) return 'wait';
  if (!follows && after < text.length) return 'no';
  return closer === '</parameter>' ? 'close' : 'end';
}

/** Follows JSON text as it grows and says where its outermost bracket closes. */
export class JsonExtent {
  #at = 0;
  #depth = 0;
  #inString = false;

  /**
   * `end`: just behind the closing bracket. `unclosed`: a `</tool_call>` outside of strings came first, at `end`,
   * when `depth` brackets were open. `text` must be that of the last call, perhaps with more at its end.
   */
  scan(text: string, ending: Ending): { readonly end: number; readonly depth: number } | null {
    for (; this.#at < text.length; this.#at++) {
      const char = text.charAt(this.#at);
      if (this.#inString) {
        if (char === '\\') {
          if (this.#at + 1 >= text.length) return null;
          this.#at++;
        } else if (char === '"') this.#inString = false;
      } else if (char === '"') this.#inString = true;
      else if (char === '{' || char === '[') this.#depth++;
      else if (char === '}' || char === ']') {
        if (--this.#depth === 0) return { end: this.#at + 1, depth: 0 };
      } else if (char === '<') {
        if (cutOff(text, this.#at, ['</tool_call>'], ending)) return null;
        if (text.startsWith('</tool_call>', this.#at)) return { end: this.#at, depth: this.#depth };
      }
    }
    return null;
  }
}
