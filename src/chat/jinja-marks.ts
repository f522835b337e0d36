/**
 * Carries through a Jinja interpreter what it would lose, by private-use characters that occur nowhere in the input
 * and are taken out of the output again:
 * - the first character of whatever in the request spells a control token, or begins one at the end of a string, so
 *   that it can be told from the template's own;
 * - number lexemes that JavaScript would print otherwise (`1.0`, 20 digits), as a string, with quotes where the
 *   template made JSON of it;
 * - the written order of keys that look like array indices.
 */
import type { TextSegment } from '../tokenizer/index.ts';
import { assert } from '../util/index.ts';
import { pythonNumber, stringifyPython } from './json-stringify.ts';
import { JsonNumber, type JsonObject, type JsonValue, orderedKeys } from './json-value.ts';
import type { RenderInput } from './types.ts';

export class JinjaMarks {
  readonly #controlTokens: readonly string[];
  /** first character of some control token -> its stand-in, and back */
  readonly #guardOf = new Map<string, string>();
  readonly #guarded = new Map<string, string>();
  readonly #number: string;
  readonly #key: string;
  readonly #lexemes: string[] = [];

  constructor(input: RenderInput, controlTokens: readonly string[]) {
    this.#controlTokens = controlTokens;
    const firsts = [...new Set(controlTokens.map((token) => token.charAt(0)))];
    const everything = stringifyPython([
      input.messages as unknown as JsonValue,
      input.tools ?? null,
      input.extra ?? null,
    ]);
    const unused = unusedCharacters(everything);
    this.#number = unused.next().value ?? '';
    this.#key = unused.next().value ?? '';
    for (const first of firsts) {
      const guard = unused.next().value ?? '';
      this.#guardOf.set(first, guard);
      this.#guarded.set(guard, first);
    }
  }

  encode(value: JsonValue | undefined): unknown {
    if (typeof value === 'string') return this.#guard(value);
    if (typeof value === 'number' || value instanceof JsonNumber) return this.#encodeNumber(value);
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => this.encode(item));
    const object = value as JsonObject;
    const entries = orderedKeys(object)
      .filter((key) => object[key] !== undefined)
      .map(
        (key) => [this.#guard(/^\d+$/.test(key) ? this.#key + key : key), this.encode(object[key])] as const,
      );
    return Object.fromEntries(entries);
  }

  /** The rendered text without marks; guarded characters are untrusted segments of their own. */
  decode(rendered: string): TextSegment[] {
    const quotedOrRaw = new RegExp(
      `"${this.#number}(\\d+)${this.#number}"|${this.#number}(\\d+)${this.#number}`,
      'g',
    );
    const text = rendered
      .replace(quotedOrRaw, (_, quoted?: string, raw?: string) => this.#lexemes[Number(quoted ?? raw)] ?? '')
      .replaceAll(this.#key, '');
    if (this.#guarded.size === 0) return [{ text, trusted: true }];
    return text.split(new RegExp(`([${[...this.#guarded.keys()].join('')}])`)).map((part) => {
      const first = this.#guarded.get(part);
      return first === undefined ? { text: part, trusted: true } : { text: first, trusted: false };
    });
  }

  #encodeNumber(value: number | JsonNumber): unknown {
    const lexeme = pythonNumber(value);
    if (String(Number(lexeme)) === lexeme) return Number(lexeme);
    return `${this.#number}${this.#lexemes.push(lexeme) - 1}${this.#number}`;
  }

  #guard(text: string): string {
    let out = text;
    for (const token of this.#controlTokens) {
      const guarded = (this.#guardOf.get(token.charAt(0)) ?? '') + token.slice(1);
      out = out.replaceAll(token, guarded);
      // The template may put another string of the request right behind this one.
      let length = Math.min(token.length - 1, out.length);
      while (length > 0 && !out.endsWith(token.slice(0, length))) length--;
      if (length > 0) out = out.slice(0, out.length - length) + guarded.slice(0, length);
    }
    return out;
  }
}

function* unusedCharacters(text: string): Generator<string, undefined> {
  for (let code = 0xe000; code < 0xf900; code++) {
    const char = String.fromCharCode(code);
    if (!text.includes(char)) yield char;
  }
  assert(false, 'the request holds every private-use character');
}
