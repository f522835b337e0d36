/**
 * JSON that keeps what JavaScript loses: the lexeme of a number (`1.0`, 20-digit integers) and the order of keys
 * that look like array indices. Values are plain, so they can be read as ever; only numbers whose lexeme is not
 * what JavaScript would print are `JsonNumber`s. Use `toPlainJson` before validating with a schema library.
 */

export type JsonValue = null | boolean | number | string | JsonNumber | readonly JsonValue[] | JsonObject;

export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** A number whose lexeme matters. */
export class JsonNumber {
  readonly lexeme: string;

  constructor(lexeme: string) {
    this.lexeme = lexeme;
  }

  valueOf(): number {
    return Number(this.lexeme);
  }

  toJSON(): number {
    return Number(this.lexeme);
  }
}

export function isJsonObject(value: unknown): value is JsonObject {
  return (
    typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof JsonNumber)
  );
}

/** Written order of the keys of objects that have index-like keys, which JavaScript would move to the front. */
const writtenOrder = new WeakMap<object, readonly string[]>();

const indexLike = /^(?:0|[1-9]\d{0,9})$/;

/** Builds an object from entries in written order. A repeated key keeps its first place and takes the last value. */
export class ObjectBuilder {
  readonly #object: Record<string, JsonValue> = {};
  #order: Set<string> | null = null;

  set(key: string, value: JsonValue): void {
    if (this.#order === null && indexLike.test(key)) this.#order = new Set(Object.keys(this.#object));
    this.#order?.add(key);
    if (key === '__proto__') {
      Object.defineProperty(this.#object, key, {
        value,
        enumerable: true,
        configurable: true,
        writable: true,
      });
    } else {
      this.#object[key] = value;
    }
  }

  finish(): JsonObject {
    if (this.#order !== null) writtenOrder.set(this.#object, [...this.#order]);
    return this.#object;
  }
}

/** The keys in written order. */
export function orderedKeys(object: JsonObject): readonly string[] {
  return writtenOrder.get(object) ?? Object.keys(object);
}

/** The same value with ordinary numbers; parts without a `JsonNumber` are shared, not copied. */
export function toPlainJson(value: JsonValue): unknown {
  if (value instanceof JsonNumber) return value.valueOf();
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const items = value.map(toPlainJson);
    return items.every((item, i) => item === value[i]) ? value : items;
  }
  const entries = Object.entries(value as JsonObject).map(([key, item]) => [key, toPlainJson(item)] as const);
  const same = entries.every(([key, item]) => item === (value as JsonObject)[key]);
  return same ? value : Object.fromEntries(entries);
}
