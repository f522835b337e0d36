/** Reads typed fields of a request body. A wrong type is an error that names the field, what was expected and what was found. */
import { isJsonObject, JsonNumber, type JsonObject, type JsonValue } from '../chat/index.ts';
import { shortened, UserError } from '../util/index.ts';

export function wrongField(param: string, message: string): UserError {
  return new UserError('invalid_request', `${param} ${message}`, { param });
}

/** What a value is, in words, short enough for a message. */
export function kindOf(value: JsonValue | undefined): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  if (isJsonObject(value)) return 'an object';
  if (value instanceof JsonNumber) return `the number ${shortened(value.lexeme)}`;
  return typeof value === 'string'
    ? `the text ${JSON.stringify(value.slice(0, 40))}`
    : `${typeof value === 'number' ? 'the number ' : ''}${String(value)}`;
}

export class Fields {
  readonly #json: JsonObject;
  readonly #read = new Set<string>();

  constructor(json: JsonObject) {
    this.#json = json;
  }

  /** null counts as absent. */
  value(name: string): JsonValue | undefined {
    this.#read.add(name);
    return this.#json[name] ?? undefined;
  }

  number(name: string): number | undefined {
    const value = this.value(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' && !(value instanceof JsonNumber))
      throw wrongField(name, `is ${kindOf(value)}, expected a number`);
    return Number(value);
  }

  count(name: string, least = 0): number | undefined {
    const value = this.number(name);
    if (value !== undefined && (!Number.isSafeInteger(value) || value < least))
      throw wrongField(name, `is ${value}, expected a whole number from ${least}`);
    return value;
  }

  boolean(name: string): boolean | undefined {
    const value = this.value(name);
    if (value !== undefined && typeof value !== 'boolean')
      throw wrongField(name, `is ${kindOf(value)}, expected true or false`);
    return value;
  }

  text(name: string): string | undefined {
    const value = this.value(name);
    if (value !== undefined && typeof value !== 'string')
      throw wrongField(name, `is ${kindOf(value)}, expected a text`);
    return value;
  }

  object(name: string): JsonObject | undefined {
    const value = this.value(name);
    if (value !== undefined && !isJsonObject(value))
      throw wrongField(name, `is ${kindOf(value)}, expected an object`);
    return value;
  }

  list(name: string): readonly JsonValue[] | undefined {
    const value = this.value(name);
    if (value !== undefined && !Array.isArray(value))
      throw wrongField(name, `is ${kindOf(value)}, expected a list`);
    return value as readonly JsonValue[] | undefined;
  }

  /** Fields that nothing asked for. */
  unknown(): string[] {
    return Object.keys(this.#json).filter((name) => !this.#read.has(name));
  }
}
