/** Whether a value is valid under a schema: for the values of enum and const, which are known in advance. */
import { isJsonObject, JsonNumber, type JsonObject, type JsonValue, orderedKeys } from '../chat/index.ts';
import { compareDecimals, type Decimal, decimalOf, isWhole, lexemeOf, wholeOf } from './decimal.ts';
import { matches } from './dfa.ts';
import { formatDfa } from './formats.ts';
import type { Kind } from './schema-flat.ts';
import type { Schema, SchemaSource } from './schema-source.ts';

const deepest = 300;

/** True only where the value is valid for sure. Throws UserError for keywords that are not supported. */
export function isValid(source: SchemaSource, value: JsonValue, schema: Schema, depth = 0): boolean {
  if (typeof schema === 'boolean') return schema;
  source.check(schema);
  source.spend(schema);
  if (depth > deepest) return false;
  const under = (part: Schema): boolean => isValid(source, value, part, depth + 1);
  const list = (keyword: string): readonly Schema[] => (schema[keyword] ?? []) as readonly Schema[];
  if (schema.$ref !== undefined && !under(source.resolve(schema))) return false;
  if (!list('allOf').every(under)) return false;
  if (schema.anyOf !== undefined && !list('anyOf').some(under)) return false;
  if (schema.oneOf !== undefined && list('oneOf').filter(under).length !== 1) return false;
  if (schema.not !== undefined && under(schema.not as Schema)) return false;
  if ('const' in schema && !sameJson(value, schema.const as JsonValue)) return false;
  if (schema.enum !== undefined && !(schema.enum as JsonValue[]).some((one) => sameJson(value, one)))
    return false;
  if (!hasType(value, schema)) return false;
  if (typeof value === 'string') return isValidText(value, schema);
  const number = decimalOf(value);
  if (number !== null) return isValidNumber(number, schema);
  const within = (part: JsonValue, own: Schema): boolean => isValid(source, part, own, depth + 1);
  if (Array.isArray(value)) return isValidList(value as readonly JsonValue[], schema, within);
  return !isJsonObject(value) || isValidObject(value, schema, within);
}

type Within = (part: JsonValue, schema: Schema) => boolean;

export function kindOf(value: JsonValue): Kind {
  if (value === null) return 'null';
  if (typeof value === 'boolean' || typeof value === 'string') return typeof value as Kind;
  if (typeof value === 'number' || value instanceof JsonNumber)
    return Number.isInteger(Number(value)) ? 'integer' : 'fraction';
  return Array.isArray(value) ? 'array' : 'object';
}

function hasType(value: JsonValue, { type, nullable }: JsonObject): boolean {
  if (type === undefined || (nullable === true && value === null)) return true;
  const names = Array.isArray(type) ? (type as readonly JsonValue[]) : [type];
  const kind = kindOf(value);
  const isNumber = kind === 'integer' || kind === 'fraction';
  return names.includes(kind) || (isNumber && names.includes('number'));
}

function count(schema: JsonObject, keyword: string, otherwise: number): number {
  return schema[keyword] === undefined ? otherwise : Number(schema[keyword]);
}

function isValidText(text: string, schema: JsonObject): boolean {
  const length = [...text].length;
  if (length < count(schema, 'minLength', 0) || length > count(schema, 'maxLength', Number.POSITIVE_INFINITY))
    return false;
  if (typeof schema.pattern === 'string' && !fits(schema.pattern, text)) return false;
  const format = typeof schema.format === 'string' ? formatDfa(schema.format) : null;
  return format === null || matches(format, text);
}

function fits(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, 'u').test(text);
  } catch {
    return false;
  }
}

function isValidNumber(value: Decimal, schema: JsonObject): boolean {
  const order = (keyword: string): number => {
    const bound = decimalOf(schema[keyword]);
    return bound === null ? Number.NaN : compareDecimals(value, bound);
  };
  if (order('minimum') < 0 || order('exclusiveMinimum') <= 0) return false;
  if (order('maximum') > 0 || order('exclusiveMaximum') >= 0) return false;
  if (schema.multipleOf === undefined) return true;
  const step = decimalOf(schema.multipleOf);
  const whole = step !== null && isWhole(step) && isWhole(value) && wholeOf(step) > 0n;
  return whole && wholeOf(value) % wholeOf(step) === 0n;
}

function isValidList(items: readonly JsonValue[], schema: JsonObject, within: Within): boolean {
  if (items.length < count(schema, 'minItems', 0)) return false;
  if (items.length > count(schema, 'maxItems', Number.POSITIVE_INFINITY)) return false;
  const texts = new Set(items.map(canonical));
  if (schema.uniqueItems === true && texts.size < items.length) return false;
  const first = (schema.prefixItems ?? []) as readonly Schema[];
  return items.every((item, i) => within(item, first[i] ?? (schema.items as Schema | undefined) ?? true));
}

function isValidObject(value: JsonObject, schema: JsonObject, within: Within): boolean {
  const keys = orderedKeys(value);
  if (keys.length < count(schema, 'minProperties', 0)) return false;
  if (keys.length > count(schema, 'maxProperties', Number.POSITIVE_INFINITY)) return false;
  if (!((schema.required ?? []) as string[]).every((name) => Object.hasOwn(value, name))) return false;
  return keys.every(
    (key) =>
      (schema.propertyNames === undefined || within(key, schema.propertyNames as Schema)) &&
      propertySchemas(schema, key).every((part) => within(value[key] as JsonValue, part)),
  );
}

/** What a schema says of the value behind a key. */
export function propertySchemas(schema: JsonObject, key: string): Schema[] {
  const found: Schema[] = [];
  const properties = (schema.properties ?? {}) as Record<string, Schema>;
  if (Object.hasOwn(properties, key)) found.push(properties[key] as Schema);
  const byPattern = (schema.patternProperties ?? {}) as Record<string, Schema>;
  for (const pattern of Object.keys(byPattern))
    if (fits(pattern, key)) found.push(byPattern[pattern] as Schema);
  if (found.length === 0 && schema.additionalProperties !== undefined)
    found.push(schema.additionalProperties as Schema);
  return found;
}

export function sameJson(a: JsonValue, b: JsonValue): boolean {
  return canonical(a) === canonical(b);
}

/** One text for equal values, whatever the order of their keys and the spelling of their numbers. */
export function canonical(value: JsonValue): string {
  const number = decimalOf(value);
  if (number !== null) return `${number.negative ? '-' : ''}${number.int}.${number.frac}`;
  if (Array.isArray(value)) return `[${(value as readonly JsonValue[]).map(canonical).join()}]`;
  if (!isJsonObject(value)) return value instanceof JsonNumber ? lexemeOf(value) : JSON.stringify(value);
  const keys = [...orderedKeys(value)].sort();
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key] as JsonValue)}`).join()}}`;
}
