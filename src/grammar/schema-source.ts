/**
 * A schema as it was sent: its parts with their places, references, and the keywords that are refused. A part is
 * looked at when something needs it; what nobody refers to may hold anything.
 */
import {
  isJsonObject,
  JsonNumber,
  type JsonObject,
  type JsonValue,
  orderedKeys,
  parseLossless,
} from '../chat/index.ts';
import { UserError } from '../util/index.ts';
import { shown } from './plain.ts';

const longestSchema = 4_000_000;
const mostParts = 20_000;
const mostWork = 500_000;

/** A schema or a part of one. */
export type Schema = JsonObject | boolean;

/** These change what is valid in ways that are not followed. */
const refused = [
  'if',
  'dependentRequired',
  'dependentSchemas',
  'dependencies',
  'contains',
  'unevaluatedProperties',
  'unevaluatedItems',
  'additionalItems',
  '$dynamicRef',
  '$recursiveRef',
] as const;

const counts = ['minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties'] as const;
const numbers = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum', 'multipleOf'] as const;
const schemaLists = ['anyOf', 'oneOf', 'allOf', 'prefixItems'] as const;
const schemaMaps = ['properties', 'patternProperties', '$defs', 'definitions'] as const;
const schemas = ['items', 'additionalProperties', 'propertyNames', 'not'] as const;
const typeNames = new Set(['null', 'boolean', 'integer', 'number', 'string', 'object', 'array']);

export class SchemaSource {
  readonly root: Schema;
  readonly #what: string;
  readonly #places = new Map<JsonObject, string>();
  readonly #ids = new Map<JsonObject, number>();
  readonly #checked = new Set<JsonObject>();
  #spent = 0;

  /** `what` names the schema in messages. Throws UserError. */
  constructor(text: string, what: string) {
    this.#what = what;
    if (text.length > longestSchema) {
      throw new UserError(
        'invalid_request',
        `${what}: ${text.length} characters are more than a schema may have (${longestSchema})`,
      );
    }
    const root = parseLossless(text, { what });
    if (typeof root !== 'boolean' && !isJsonObject(root))
      throw new UserError(
        'invalid_request',
        `${what}: ${shown(root)} is no schema: an object or a boolean is`,
      );
    this.root = root;
    if (isJsonObject(root)) this.#places.set(root, '#');
  }

  /** A number that stands for a part. */
  id(schema: JsonObject): number {
    let id = this.#ids.get(schema);
    if (id === undefined) {
      id = this.#ids.size;
      this.#ids.set(schema, id);
    }
    return id;
  }

  /** The place of a keyword as a JSON pointer. */
  place(schema: JsonObject, keyword: string): string {
    return `${this.#places.get(schema) ?? '#'}/${escapePointer(keyword)}`;
  }

  error(schema: JsonObject, keyword: string, problem: string): UserError {
    return new UserError(
      'invalid_request',
      `${this.#what}: ${keyword} at ${this.place(schema, keyword)} ${problem}`,
    );
  }

  /** Throws where a part is no schema or has a keyword that is not supported. Its own parts get their places. */
  check(schema: JsonObject): void {
    if (this.#checked.has(schema)) return;
    if (this.#checked.size >= mostParts)
      throw new UserError('invalid_request', `${this.#what}: more than ${mostParts} parts are too many`);
    this.#checked.add(schema);
    for (const keyword of refused) this.#refuse(schema, keyword);
    this.#checkTypes(schema);
    for (const keyword of counts) this.#checkCount(schema, keyword);
    for (const keyword of numbers) this.#expect(schema, keyword, 'a number', isNumber);
    for (const keyword of ['pattern', 'format', '$ref'] as const)
      this.#expect(schema, keyword, 'text', (value) => typeof value === 'string');
    this.#expect(schema, 'required', 'a list of names', isTextList);
    this.#expect(schema, 'enum', 'a list of values', (value) => Array.isArray(value) && value.length > 0);
    this.#expect(schema, 'uniqueItems', 'true or false', (value) => typeof value === 'boolean');
    for (const keyword of schemas) this.#enter(schema, keyword, schema[keyword], keyword);
    for (const keyword of schemaLists) {
      this.#expect(schema, keyword, 'a list of schemas', Array.isArray);
      for (const [i, part] of ((schema[keyword] ?? []) as JsonValue[]).entries())
        this.#enter(schema, keyword, part, `${keyword}/${i}`);
    }
    for (const keyword of schemaMaps) {
      this.#expect(schema, keyword, 'an object of schemas', isJsonObject);
      const map = schema[keyword];
      if (!isJsonObject(map)) continue;
      for (const name of orderedKeys(map))
        this.#enter(schema, keyword, map[name], `${keyword}/${escapePointer(name)}`);
    }
  }

  /** Counts a step of work on a schema. Throws UserError when there have been too many. */
  spend(schema: JsonObject): void {
    if (++this.#spent <= mostWork) return;
    throw new UserError(
      'invalid_request',
      `${this.#what}: ${this.place(schema, '')} takes too much work to compile`,
    );
  }

  /** The part that a reference means. Throws UserError. */
  resolve(schema: JsonObject): Schema {
    const ref = schema.$ref as string;
    let at: JsonValue | undefined = ref === '#' || ref.startsWith('#/') ? this.root : undefined;
    let place = '#';
    for (const part of ref.split('/').slice(1)) {
      const key = decodePointer(part);
      place += `/${part}`;
      if (Array.isArray(at)) at = (at as readonly JsonValue[])[Number(key)];
      else at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
    }
    if (typeof at === 'boolean') return at;
    if (!isJsonObject(at))
      throw this.error(
        schema,
        '$ref',
        `${shown(ref)} leads to no schema in this one (as "#/$defs/name" would)`,
      );
    if (!this.#places.has(at)) this.#places.set(at, place);
    return at;
  }

  #enter(schema: JsonObject, keyword: string, part: JsonValue | undefined, path: string): void {
    if (part === undefined || typeof part === 'boolean') return;
    if (!isJsonObject(part)) throw this.error(schema, keyword, `has ${shown(part)}, which is no schema`);
    if (!this.#places.has(part)) this.#places.set(part, `${this.#places.get(schema) ?? '#'}/${path}`);
  }

  #refuse(schema: JsonObject, keyword: string): void {
    const value = schema[keyword];
    if (value === undefined) return;
    const isOpen = keyword.startsWith('unevaluated') && value === true;
    if (isOpen || (keyword === 'additionalItems' && !Array.isArray(schema.items))) return;
    throw this.error(schema, keyword, 'is not supported');
  }

  #checkTypes(schema: JsonObject): void {
    const { type } = schema;
    if (type === undefined) return;
    const names = Array.isArray(type) ? (type as readonly JsonValue[]) : [type];
    const wrong = names.find((name) => typeof name !== 'string' || !typeNames.has(name));
    if (wrong !== undefined || names.length === 0)
      throw this.error(schema, 'type', `${shown(wrong ?? type)} is none of ${[...typeNames].join(', ')}`);
  }

  #checkCount(schema: JsonObject, keyword: string): void {
    this.#expect(schema, keyword, 'an integer from 0', (value) => isNumber(value) && isCount(Number(value)));
  }

  #expect(schema: JsonObject, keyword: string, what: string, fits: (value: JsonValue) => boolean): void {
    const value = schema[keyword];
    if (value !== undefined && !fits(value))
      throw this.error(schema, keyword, `is ${shown(value)}, not ${what}`);
  }
}

function isCount(value: number): boolean {
  return Number.isInteger(value) && value >= 0;
}

function isNumber(value: JsonValue): boolean {
  return typeof value === 'number' || value instanceof JsonNumber;
}

function isTextList(value: JsonValue): boolean {
  return Array.isArray(value) && value.every((name) => typeof name === 'string');
}

function escapePointer(name: string): string {
  const short = name.length > 100 ? `${name.slice(0, 100)}…` : name;
  return short.replaceAll('~', '~0').replaceAll('/', '~1');
}

function decodePointer(part: string): string {
  const plain = part.replaceAll('~1', '/').replaceAll('~0', '~');
  try {
    return decodeURIComponent(plain);
  } catch {
    return plain;
  }
}
