/**
 * Reads a Python literal (dict, list, tuple, string, number, True, False, None) as JSON: models that should write
 * JSON sometimes write the repr of a Python value. Returns undefined when the text is none.
 */
import { jsonDepthLimit } from './json-parse.ts';
import { JsonNumber, type JsonObject, type JsonValue, ObjectBuilder } from './json-value.ts';

export function parsePythonLiteral(text: string): JsonValue | undefined {
  try {
    return new Reader(text).whole();
  } catch (error) {
    if (error instanceof NotALiteral) return undefined;
    throw error;
  }
}

class NotALiteral extends Error {}

const words: Readonly<Record<string, JsonValue>> = {
  True: true,
  False: false,
  None: null,
  true: true,
  false: false,
  null: null,
};

const simpleEscapes: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  b: '\b',
  f: '\f',
  v: '\v',
  a: '\x07',
  '\n': '',
  '\\': '\\',
  "'": "'",
  '"': '"',
};

class Reader {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  whole(): JsonValue {
    const value = this.#value();
    this.#skipSpace();
    if (this.#at < this.#text.length) throw new NotALiteral();
    return value;
  }

  #value(): JsonValue {
    this.#skipSpace();
    const char = this.#text.charAt(this.#at);
    if (char === '{') return this.#nested(() => this.#dict());
    if (char === '[') return this.#nested(() => this.#items(']'));
    if (char === '(') return this.#nested(() => this.#items(')'));
    if (char === '"' || char === "'") return this.#string(char);
    const word = this.#match(/[A-Za-z]+/y);
    if (word !== null) {
      const value = Object.hasOwn(words, word) ? words[word] : undefined;
      if (value === undefined) throw new NotALiteral();
      return value;
    }
    return this.#number();
  }

  #nested<T>(read: () => T): T {
    if (++this.#depth > jsonDepthLimit) throw new NotALiteral();
    this.#at++;
    const value = read();
    this.#depth--;
    return value;
  }

  #dict(): JsonObject {
    const builder = new ObjectBuilder();
    while (!this.#take('}')) {
      const key = this.#value();
      if (typeof key !== 'string') throw new NotALiteral();
      if (!this.#take(':')) throw new NotALiteral();
      builder.set(key, this.#value());
      if (!this.#take(',') && !this.#peek('}')) throw new NotALiteral();
    }
    return builder.finish();
  }

  #items(close: string): JsonValue[] {
    const items: JsonValue[] = [];
    while (!this.#take(close)) {
      items.push(this.#value());
      if (!this.#take(',') && !this.#peek(close)) throw new NotALiteral();
    }
    return items;
  }

  #string(quote: string): string {
    let out = '';
    this.#at++;
    for (;;) {
      const char = this.#text.charAt(this.#at++);
      if (char === '') throw new NotALiteral();
      if (char === quote) return out;
      out += char === '\\' ? this.#escape() : char;
    }
  }

  #escape(): string {
    const hex = this.#match(/x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}/y);
    if (hex !== null) {
      const code = Number.parseInt(hex.slice(1), 16);
      if (code > 0x10ffff) throw new NotALiteral();
      return String.fromCodePoint(code);
    }
    const char = this.#text.charAt(this.#at++);
    // Python keeps the backslash of an escape that it does not know.
    return simpleEscapes[char] ?? `\\${char}`;
  }

  #number(): JsonValue {
    const lexeme = this.#match(/-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y);
    if (lexeme === null) throw new NotALiteral();
    return String(Number(lexeme)) === lexeme ? Number(lexeme) : new JsonNumber(lexeme);
  }

  #match(pattern: RegExp): string | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text)?.[0] ?? null;
    this.#at += found?.length ?? 0;
    return found;
  }

  #peek(char: string): boolean {
    this.#skipSpace();
    return this.#text.charAt(this.#at) === char;
  }

  #take(char: string): boolean {
    if (!this.#peek(char)) return false;
    this.#at++;
    return true;
  }

  #skipSpace(): void {
    this.#match(/\s+/y);
  }
}
