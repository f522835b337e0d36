/**
 * Which kinds of JSON a schema lets through, with every branch of anyOf, oneOf and allOf, type lists, enums and
 * references inside the schema. Keywords that do not tell kinds apart are not looked at.
 */
import { isJsonObject, JsonNumber, type JsonObject, type JsonValue } from './json-value.ts';

export type Kind = 'null' | 'boolean' | 'integer' | 'number' | 'object' | 'array' | 'string';

export interface ValueType {
  /** null = the schema does not say. */
  readonly kinds: ReadonlySet<Kind> | null;
  /** The values of enum and const; null = not restricted. */
  readonly samples: readonly JsonValue[] | null;
}

export const anyType: ValueType = { kinds: null, samples: null };

/** Schemas looked at for one question; a recursive schema that goes on says nothing more. */
const mostSchemas = 500;
const deepestSchema = 64;

interface Walk {
  readonly root: JsonObject;
  left: number;
}

/** The type of a property of objects that fit `parameters`. */
export function propertyType(parameters: JsonObject, key: string): ValueType {
  const walk = { root: parameters, left: mostSchemas };
  const listed: JsonValue[] = [];
  const others: JsonValue[] = [];
  visitObjects(parameters, walk, 0, (schema) => {
    if (isJsonObject(schema.properties) && Object.hasOwn(schema.properties, key))
      listed.push(schema.properties[key] as JsonValue);
    else if (isJsonObject(schema.additionalProperties)) others.push(schema.additionalProperties);
  });
  const found = listed.length > 0 ? listed : others;
  if (found.length === 0) return anyType;
  return found.map((schema) => typeOf(schema, walk, 0)).reduce(unite);
}

/** The properties that any branch lists; null where none lists any. */
export function propertyNames(parameters: JsonObject): ReadonlySet<string> | null {
  let names: Set<string> | null = null;
  visitObjects(parameters, { root: parameters, left: mostSchemas }, 0, ({ properties }) => {
    if (!isJsonObject(properties)) return;
    names ??= new Set();
    for (const name of Object.keys(properties)) names.add(name);
  });
  return names;
}

/** A schema and all that apply to the same object. */
function visitObjects(
  schema: JsonValue | undefined,
  walk: Walk,
  depth: number,
  visit: (schema: JsonObject) => void,
): void {
  if (!isJsonObject(schema) || depth > deepestSchema || walk.left-- <= 0) return;
  visit(schema);
  if (typeof schema.$ref === 'string')
    visitObjects(resolveRef(schema.$ref, walk.root), walk, depth + 1, visit);
  for (const branches of [schema.anyOf, schema.oneOf, schema.allOf])
    if (Array.isArray(branches))
      for (const branch of branches as readonly JsonValue[]) visitObjects(branch, walk, depth + 1, visit);
}

function typeOf(schema: JsonValue | undefined, walk: Walk, depth: number): ValueType {
  if (!isJsonObject(schema) || depth > deepestSchema || walk.left-- <= 0) return anyType;
  const within = (branch: JsonValue | undefined): ValueType => typeOf(branch, walk, depth + 1);
  const parts: ValueType[] = [];
  if (typeof schema.$ref === 'string') parts.push(within(resolveRef(schema.$ref, walk.root)));
  const names = Array.isArray(schema.type) ? (schema.type as readonly JsonValue[]) : [schema.type];
  if (schema.type !== undefined) parts.push(names.map(typeOfName).reduce(unite, nothing));
  const samples = Array.isArray(schema.enum) ? schema.enum : 'const' in schema ? [schema.const] : null;
  if (samples !== null) parts.push(typeOfSamples(samples as readonly JsonValue[]));
  for (const branches of [schema.anyOf, schema.oneOf])
    if (Array.isArray(branches) && branches.length > 0) parts.push(branches.map(within).reduce(unite));
  if (Array.isArray(schema.allOf)) parts.push(...schema.allOf.map(within));
  const type = parts.reduce(both, anyType);
  const told = type.kinds === null ? { ...type, kinds: kindsFromKeywords(schema) } : type;
  if (schema.nullable !== true || told.kinds === null) return told;
  return { kinds: new Set([...told.kinds, 'null']), samples: told.samples && [...told.samples, null] };
}

function kindsFromKeywords(schema: JsonObject): ReadonlySet<Kind> | null {
  if ('properties' in schema) return new Set(['object']);
  if ('items' in schema || 'prefixItems' in schema) return new Set(['array']);
  return null;
}

const nothing: ValueType = { kinds: new Set(), samples: null };

function unite(a: ValueType, b: ValueType): ValueType {
  const kinds = a.kinds === null || b.kinds === null ? null : new Set([...a.kinds, ...b.kinds]);
  return { kinds, samples: a.samples && b.samples && [...a.samples, ...b.samples] };
}

function both(a: ValueType, b: ValueType): ValueType {
  const samples = a.samples ?? b.samples;
  if (a.kinds === null || b.kinds === null) return { kinds: a.kinds ?? b.kinds, samples };
  const { kinds } = b;
  const fits = (kind: Kind): boolean => kinds.has(kind) || (kind === 'integer' && kinds.has('number'));
  const shared = new Set([...a.kinds].filter(fits));
  if (a.kinds.has('number') && kinds.has('integer')) shared.add('integer');
  return { kinds: shared, samples };
}

function resolveRef(ref: string, root: JsonObject): JsonValue | undefined {
  if (ref === '#') return root;
  if (!ref.startsWith('#/')) return undefined;
  let at: JsonValue | undefined = root;
  for (const part of ref.slice(2).split('/')) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    if (Array.isArray(at)) at = (at as readonly JsonValue[])[Number(key)];
    else at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  return at;
}

function typeOfSamples(samples: readonly JsonValue[]): ValueType {
  return { kinds: new Set(samples.map(kindOf)), samples };
}

export function kindOf(value: JsonValue): Kind {
  if (value === null) return 'null';
  if (typeof value === 'boolean' || typeof value === 'string') return typeof value as Kind;
  if (value instanceof JsonNumber || typeof value === 'number')
    return Number.isInteger(Number(String(value))) ? 'integer' : 'number';
  return Array.isArray(value) ? 'array' : 'object';
}

/** The names of JSON Schema, and what else is seen in the wild. */
function typeOfName(type: JsonValue | undefined): ValueType {
  if (typeof type !== 'string') return anyType;
  const name = type.toLowerCase();
  const kind = wildNames.find(([pattern]) => pattern.test(name))?.[1] ?? 'string';
  return name === 'any' ? anyType : { kinds: new Set([kind]), samples: null };
}

const wildNames: readonly (readonly [RegExp, Kind])[] = [
  [/^(?:null|none)/, 'null'],
  [/^(?:int|uint|long|short|unsigned)/, 'integer'],
  [/^(?:num|float|double)/, 'number'],
  [/^bool/, 'boolean'],
  [/^(?:object|dict|map)/, 'object'],
  [/^(?:array|arr$|list|tuple|set)/, 'array'],
];
