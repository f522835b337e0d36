/**
 * JSON as Python's json module reads it: whole numbers without bound, NaN and Infinity, the last of equal keys at the place of the
 * first. `writeJson` is compact, UTF-8, and keeps a float a float.
 */
import { floatText } from '../../run/python.ts';
import { intDigitLimit } from './text.ts';
import { isDict, isList, type Value } from './value.ts';

const depthLimit = 900;

export class JsonError extends Error {
  readonly offset: number;

  constructor(message: string, offset: number) {
    super(message);
    this.offset = offset;
  }
}

export function readJson(text: string): Value {
  return new Reader(text).document();
}

/** undefined where the text is not JSON. */
export function tryJson(text: string): Value | undefined {
  try {
    return readJson(text);
  } catch (error) {
    if (error instanceof JsonError) return undefined;
    throw error;
  }
}

const numberForm = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
const blanks = /[ \t\n\r]*/y;
// biome-ignore lint/suspicious/noControlCharactersInRegex: a string may not hold them bare
const plainText = /[^"\\\u0000-\u001f]*/y;
const words: readonly (readonly [string, Value])[] = [
  ['null', null],
  ['true', true],
  ['false', false],
  ['NaN', Number.NaN],
  ['Infinity', Number.POSITIVE_INFINITY],
  ['-Infinity', Number.NEGATIVE_INFINITY],
];
const escapes: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '/': '/',
  b: '\b',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
};

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): Value {
    this.#skip();
    const value = this.#value(0);
    this.#skip();
    if (this.#at < this.#text.length) throw this.#error('text after the value');
    return value;
  }

  #error(message: string): JsonError {
    return new JsonError(`${message} at character ${this.#at}`, this.#at);
  }

  #match(form: RegExp): RegExpExecArray | null {
    form.lastIndex = this.#at;
    const found = form.exec(this.#text);
    if (found !== null) this.#at = form.lastIndex;
    return found;
  }

  #skip(): void {
    this.#match(blanks);
  }

  #take(char: string): boolean {
    if (this.#text[this.#at] !== char) return false;
    this.#at++;
    return true;
  }

  #expect(char: string): void {
    if (!this.#take(char)) throw this.#error(`'${char}' is missing`);
  }

  #value(depth: number): Value {
    if (depth > depthLimit) throw this.#error(`nested deeper than ${depthLimit}`);
    const char = this.#text[this.#at];
    if (char === '"') return this.#string();
    if (char === '{') return this.#object(depth);
    if (char === '[') return this.#array(depth);
    for (const [word, value] of words)
      if (this.#text.startsWith(word, this.#at)) {
        this.#at += word.length;
        return value;
      }
    return this.#number();
  }

  #number(): Value {
    const found = this.#match(numberForm);
    if (found === null) throw this.#error('a value is missing');
    const [lexeme, fraction, exponent] = found;
    if (fraction !== undefined || exponent !== undefined) return Number(lexeme);
    if (lexeme.length > intDigitLimit) throw this.#error(`a number of more than ${intDigitLimit} digits`);
    return BigInt(lexeme);
  }

  #string(): string {
    this.#at++;
    let text = '';
    for (;;) {
      text += this.#match(plainText)?.[0] ?? '';
      if (this.#take('"')) return text;
      if (!this.#take('\\')) throw this.#error('a string does not end');
      const letter = this.#text[this.#at] ?? '';
      const code = /^u([0-9a-fA-F]{4})/.exec(this.#text.slice(this.#at, this.#at + 5))?.[1];
      const char = code === undefined ? escapes[letter] : String.fromCharCode(Number.parseInt(code, 16));
      if (char === undefined) throw this.#error('an escape that JSON does not have');
      this.#at += code === undefined ? 1 : 5;
      text += char;
    }
  }

  #array(depth: number): Value {
    this.#at++;
    const items: Value[] = [];
    this.#skip();
    if (this.#take(']')) return items;
    for (;;) {
      this.#skip();
      items.push(this.#value(depth + 1));
      this.#skip();
      if (this.#take(']')) return items;
      this.#expect(',');
    }
  }

  #object(depth: number): Value {
    this.#at++;
    const items = new Map<string, Value>();
    this.#skip();
    if (this.#take('}')) return items;
    for (;;) {
      this.#skip();
      if (this.#text[this.#at] !== '"') throw this.#error('a key is missing');
      const key = this.#string();
      this.#skip();
      this.#expect(':');
      this.#skip();
      items.set(key, this.#value(depth + 1));
      this.#skip();
      if (this.#take('}')) return items;
      this.#expect(',');
    }
  }
}

export function writeJson(value: Value): string {
  if (isList(value)) return `[${value.map(writeJson).join(',')}]`;
  if (isDict(value))
    return `{${[...value].map(([key, item]) => `${JSON.stringify(key)}:${writeJson(item)}`).join(',')}}`;
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') return floatText(value);
  return String(value);
}
