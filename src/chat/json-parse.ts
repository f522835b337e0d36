/**
 * A strict JSON parser (RFC 8259) that keeps number lexemes and key order (see json-value.ts) and limits depth, so
 * that no input can exhaust the stack. Duplicate keys: the last value wins, at the first position, as in Python.
 */
import { shortened, UserError } from '../util/index.ts';
import { JsonNumber, type JsonObject, type JsonValue, ObjectBuilder } from './json-value.ts';

/** Nesting of arrays and objects that is accepted. */
export const jsonDepthLimit = 256;

const quote = 0x22;
const backslash = 0x5c;

export interface ParseOptions {
  /** Names the text in messages: 'request body'. */
  readonly what?: string;
  /** The request field of which the text is the value. */
  readonly param?: string;
  /** What one text may hold; without it only depth is limited. */
  readonly limits?: JsonLimits;
}

export interface JsonLimits {
  /** Of all kinds, wherever they stand: texts, numbers, lists, objects, ... */
  readonly values: number;
  /** Of one object. */
  readonly keys: number;
  /** Characters of a number. */
  readonly digits: number;
}

/** Throws UserError('invalid_request') with line and column when the text is not JSON. */
export function parseLossless(text: string, options: ParseOptions = {}): JsonValue {
  return new Parser(text, options).document();
}

class Parser {
  readonly #text: string;
  readonly #options: ParseOptions;
  #at = 0;
  #depth = 0;
  #values = 0;
  /** The member of the outermost object that is being read. */
  #field: string | null = null;

  constructor(text: string, options: ParseOptions) {
    this.#text = text;
    this.#options = options;
  }

  document(): JsonValue {
    this.#skipSpace();
    const value = this.#value();
    this.#skipSpace();
    if (this.#at < this.#text.length) throw this.#fail('the end');
    return value;
  }

  #value(): JsonValue {
    const { limits } = this.#options;
    if (limits !== undefined && ++this.#values > limits.values)
      throw this.#tooMuch(`more than ${limits.values} values`);
    switch (this.#text.charCodeAt(this.#at)) {
      case quote:
        return this.#string();
      case 0x7b: // {
        return this.#object();
      case 0x5b: // [
        return this.#array();
      case 0x74: // t
        return this.#word('true', true);
      case 0x66: // f
        return this.#word('false', false);
      case 0x6e: // n
        return this.#word('null', null);
      default:
        return this.#number();
    }
  }

  #word<T extends JsonValue>(word: string, value: T): T {
    if (!this.#text.startsWith(word, this.#at)) throw this.#fail('a value');
    this.#at += word.length;
    return value;
  }

  #object(): JsonObject {
    this.#enter();
    const builder = new ObjectBuilder();
    const { limits } = this.#options;
    let keys = 0;
    this.#skipSpace();
    if (this.#take(0x7d)) return this.#leave(builder.finish());
    for (;;) {
      this.#skipSpace();
      if (this.#text.charCodeAt(this.#at) !== quote) throw this.#fail('a key in double quotes');
      const key = this.#string();
      if (limits !== undefined && ++keys > limits.keys)
        throw this.#tooMuch(`an object with more than ${limits.keys} keys`);
      if (this.#depth === 1) this.#field = key;
      this.#skipSpace();
      if (!this.#take(0x3a)) throw this.#fail('":"');
      this.#skipSpace();
      builder.set(key, this.#value());
      this.#skipSpace();
      if (this.#take(0x7d)) return this.#leave(builder.finish());
      if (!this.#take(0x2c)) throw this.#fail('"," or "}"');
    }
  }

  #array(): JsonValue[] {
    this.#enter();
    const items: JsonValue[] = [];
    this.#skipSpace();
    if (this.#take(0x5d)) return this.#leave(items);
    for (;;) {
      this.#skipSpace();
      items.push(this.#value());
      this.#skipSpace();
      if (this.#take(0x5d)) return this.#leave(items);
      if (!this.#take(0x2c)) throw this.#fail('"," or "]"');
    }
  }

  #string(): string {
    const text = this.#text;
    const start = this.#at;
    let at = start + 1;
    let escaped = false;
    for (;;) {
      const code = text.charCodeAt(at);
      if (code === quote) break;
      if (code === backslash) {
        escaped = true;
        at += 2;
      } else if (code >= 0x20) at++;
      else {
        // A control character, or NaN at the end of the text.
        this.#at = Math.min(at, text.length);
        throw this.#fail(at < text.length ? 'no raw control character in a string' : 'the end of the string');
      }
    }
    this.#at = at + 1;
    return escaped ? this.#unescape(start) : text.slice(start + 1, at);
  }

  #unescape(start: number): string {
    try {
      return JSON.parse(this.#text.slice(start, this.#at)) as string;
    } catch {
      this.#at = start;
      throw this.#fail('a string with valid escapes');
    }
  }

  #number(): number | JsonNumber {
    const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
    number.lastIndex = this.#at;
    const lexeme = number.exec(this.#text)?.[0];
    if (lexeme === undefined) throw this.#fail('a value');
    const { limits } = this.#options;
    if (limits !== undefined && lexeme.length > limits.digits)
      throw this.#tooMuch(`a number of ${lexeme.length} characters, the limit is ${limits.digits},`);
    this.#at += lexeme.length;
    const value = Number(lexeme);
    return String(value) === lexeme ? value : new JsonNumber(lexeme);
  }

  #enter(): void {
    if (++this.#depth > jsonDepthLimit) {
      throw this.#error(`is nested more than ${jsonDepthLimit} levels deep at ${this.#where()}`);
    }
    this.#at++;
  }

  #leave<T>(value: T): T {
    this.#depth--;
    return value;
  }

  #take(code: number): boolean {
    if (this.#text.charCodeAt(this.#at) !== code) return false;
    this.#at++;
    return true;
  }

  #skipSpace(): void {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return;
      this.#at++;
    }
  }

  #where(): string {
    let line = 1;
    let start = 0;
    for (let at = this.#text.indexOf('\n'); at >= 0 && at < this.#at; at = this.#text.indexOf('\n', start)) {
      line++;
      start = at + 1;
    }
    return `line ${line}, column ${this.#at - start + 1}`;
  }

  #fail(expected: string): UserError {
    const found = this.#at < this.#text.length ? JSON.stringify(this.#text.charAt(this.#at)) : 'the end';
    return this.#error(`is not valid JSON: expected ${expected} at ${this.#where()}, found ${found}`);
  }

  /** Names the field, as that is what a client can mend. */
  #tooMuch(what: string): UserError {
    const field = this.#depth > 1 || !what.startsWith('an object') ? this.#field : null;
    const { what: text = 'the text', param = field } = this.#options;
    return new UserError(
      'invalid_request',
      `${field === null ? text : shortened(field)} has ${what} at ${this.#where()}`,
      param === null ? {} : { param },
    );
  }

  #error(problem: string): UserError {
    const { what = 'the text', param } = this.#options;
    return new UserError('invalid_request', `${what} ${problem}`, param === undefined ? {} : { param });
  }
}
