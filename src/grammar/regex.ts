/**
 * ECMAScript patterns (with the u flag, as JSON Schema has them) as automata over characters. What a pattern can ask
 * beyond a regular language (look-around, back references, word boundaries) is refused.
 */
import {
  anyChar,
  blanks,
  type CharSet,
  charSet,
  digits,
  invert,
  lineBreaks,
  one,
  propertySet,
  type Range,
  wordChars,
} from './char-set.ts';

/** Why a pattern has no automaton: said behind the keyword. */
export class PatternError extends Error {}

export type Pattern =
  | { readonly kind: 'set'; readonly set: CharSet }
  | { readonly kind: 'seq'; readonly parts: readonly Pattern[] }
  | { readonly kind: 'alt'; readonly options: readonly Pattern[] }
  | { readonly kind: 'repeat'; readonly body: Pattern; readonly min: number; readonly max: number }
  | { readonly kind: 'start' }
  | { readonly kind: 'end' };

const deepestGroups = 100;
const longestPattern = 20_000;

/** Throws PatternError. */
export function parsePattern(source: string): Pattern {
  if (source.length > longestPattern) throw new PatternError(`is longer than ${longestPattern} characters`);
  try {
    new RegExp(source, 'u');
  } catch (error) {
    throw new PatternError(`is no regular expression: ${(error as Error).message.slice(0, 200)}`);
  }
  return new PatternParser(source).whole();
}

/** RegExp has found the syntax right; what is left is to read it. */
class PatternParser {
  readonly #text: readonly string[];
  #at = 0;
  #depth = 0;

  constructor(source: string) {
    this.#text = [...source];
  }

  whole(): Pattern {
    return this.#alternatives();
  }

  #alternatives(): Pattern {
    const options = [this.#sequence()];
    while (this.#take('|')) options.push(this.#sequence());
    return options.length === 1 ? (options[0] as Pattern) : { kind: 'alt', options };
  }

  #sequence(): Pattern {
    const parts: Pattern[] = [];
    for (let next = this.#peek(); next !== '' && next !== '|' && next !== ')'; next = this.#peek())
      parts.push(this.#quantified());
    return parts.length === 1 ? (parts[0] as Pattern) : { kind: 'seq', parts };
  }

  #quantified(): Pattern {
    const body = this.#atom();
    const bounds = this.#quantifier();
    if (bounds === null) return body;
    this.#take('?');
    return { kind: 'repeat', body, min: bounds[0], max: bounds[1] };
  }

  #quantifier(): [number, number] | null {
    if (this.#take('*')) return [0, Number.POSITIVE_INFINITY];
    if (this.#take('+')) return [1, Number.POSITIVE_INFINITY];
    if (this.#take('?')) return [0, 1];
    if (!this.#take('{')) return null;
    const [min = '', max] = this.#until('}').split(',');
    const least = Number(min);
    return [least, max === undefined ? least : max === '' ? Number.POSITIVE_INFINITY : Number(max)];
  }

  #atom(): Pattern {
    const char = this.#next();
    if (char === '(') return this.#group();
    if (char === '[') return { kind: 'set', set: this.#class() };
    if (char === '.') return { kind: 'set', set: invert(lineBreaks) };
    if (char === '^') return { kind: 'start' };
    if (char === '$') return { kind: 'end' };
    return { kind: 'set', set: char === '\\' ? this.#escape() : one(codeOf(char)) };
  }

  #group(): Pattern {
    if (this.#take('?')) {
      if (this.#take('<')) {
        const next = this.#peek();
        if (next === '=' || next === '!')
          throw new PatternError('looks behind with (?<, which is not supported');
        this.#until('>');
      } else if (!this.#take(':')) {
        throw new PatternError(`has the group (?${this.#peek()}, which is not supported`);
      }
    }
    if (++this.#depth > deepestGroups) throw new PatternError(`nests more than ${deepestGroups} groups`);
    const body = this.#alternatives();
    this.#next();
    this.#depth--;
    return body;
  }

  #class(): CharSet {
    const inverted = this.#take('^');
    const ranges: Range[] = [];
    while (!this.#take(']')) {
      const first = this.#classPart();
      const lo = single(first);
      if (lo === null || this.#peek() !== '-' || this.#text[this.#at + 1] === ']') {
        ranges.push(...first);
        continue;
      }
      this.#next();
      ranges.push([lo, single(this.#classPart()) ?? lo]);
    }
    const set = charSet(ranges);
    return inverted ? invert(set) : set;
  }

  #classPart(): readonly Range[] {
    const char = this.#next();
    if (char !== '\\') return [[codeOf(char), codeOf(char)]];
    if (this.#take('b')) return one(0x08);
    if (this.#take('-')) return one(0x2d);
    return this.#escape();
  }

  #escape(): CharSet {
    const char = this.#next();
    const simple = escapes.get(char);
    if (simple !== undefined) return simple;
    if (char === 'b' || char === 'B')
      throw new PatternError(`asks for a word boundary (\\${char}), which is not supported`);
    if (char === 'p' || char === 'P') return propertySet(`\\${char}${this.#braces()}`);
    if (char === 'k' || /[1-9]/.test(char))
      throw new PatternError(`refers back to a group (\\${char}), which is not supported`);
    if (char === 'c') return one(codeOf(this.#next()) % 32);
    if (char === 'x') return one(this.#hex(2));
    return one(char === 'u' ? this.#unicode() : codeOf(char));
  }

  #unicode(): number {
    if (this.#take('{')) return Number.parseInt(this.#until('}'), 16);
    const high = this.#hex(4);
    const isPair =
      high >= 0xd800 && high < 0xdc00 && this.#peek() === '\\' && this.#text[this.#at + 1] === 'u';
    if (!isPair) return high;
    const low = Number.parseInt(this.#text.slice(this.#at + 2, this.#at + 6).join(''), 16);
    if (!(low >= 0xdc00 && low < 0xe000)) return high;
    this.#at += 6;
    return 0x10000 + (high - 0xd800) * 0x400 + (low - 0xdc00);
  }

  #hex(length: number): number {
    this.#at += length;
    return Number.parseInt(this.#text.slice(this.#at - length, this.#at).join(''), 16);
  }

  #braces(): string {
    return this.#take('{') ? `{${this.#until('}')}}` : '';
  }

  #until(end: string): string {
    let text = '';
    for (let char = this.#next(); char !== end && char !== ''; char = this.#next()) text += char;
    return text;
  }

  #peek(): string {
    return this.#text[this.#at] ?? '';
  }

  #next(): string {
    return this.#text[this.#at++] ?? '';
  }

  #take(char: string): boolean {
    if (this.#peek() !== char) return false;
    this.#at++;
    return true;
  }
}

const escapes: ReadonlyMap<string, CharSet> = new Map([
  ['d', digits],
  ['D', invert(digits)],
  ['w', wordChars],
  ['W', invert(wordChars)],
  ['s', blanks],
  ['S', invert(blanks)],
  ['n', one(0x0a)],
  ['r', one(0x0d)],
  ['t', one(0x09)],
  ['v', one(0x0b)],
  ['f', one(0x0c)],
  ['0', one(0x00)],
]);

function codeOf(char: string): number {
  return char.codePointAt(0) ?? 0;
}

/** The character of a part of a class that is one character. */
function single(part: readonly Range[]): number | null {
  const only = part.length === 1 ? part[0] : undefined;
  return only !== undefined && only[0] === only[1] ? only[0] : null;
}

export const anyText: Pattern = {
  kind: 'repeat',
  body: { kind: 'set', set: anyChar },
  min: 0,
  max: Number.POSITIVE_INFINITY,
};
