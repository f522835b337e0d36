/**
 * How the text of a tool parameter becomes a JSON value: the model writes `<parameter=n>3</parameter>`, the tool's
 * JSON Schema says that 3 is an integer. Unknown parameters and types are strings.
 */
import { parseLossless } from './json-parse.ts';
import { quoteJson, stringifySpaced } from './json-stringify.ts';
import { isJsonObject, JsonNumber, type JsonObject, type JsonValue, toPlainJson } from './json-value.ts';
import { parsePythonLiteral } from './python-literal.ts';

export interface ValueType {
  readonly kind: 'string' | 'integer' | 'number' | 'boolean' | 'json';
  /** `null` is among the types, so that the text "null" may mean it even for a string. */
  readonly nullable: boolean;
}

const stringType: ValueType = { kind: 'string', nullable: false };

/** What is known of the tools of a request: their names, and the types of their parameters. */
export class ToolTypes {
  readonly #tools = new Map<string, JsonObject>();

  constructor(tools: readonly JsonValue[]) {
    for (const tool of tools) {
      const fn = isJsonObject(tool) && isJsonObject(tool.function) ? tool.function : tool;
      if (!isJsonObject(fn) || typeof fn.name !== 'string') continue;
      this.#tools.set(fn.name, isJsonObject(fn.parameters) ? fn.parameters : {});
    }
  }

  /** False only where the tool lists its parameters and this is none of them. */
  mayHave(tool: string, key: string): boolean {
    const properties = this.#tools.get(tool)?.properties;
    return !isJsonObject(properties) || Object.hasOwn(properties, key);
  }

  type(tool: string, key: string): ValueType {
    const parameters = this.#tools.get(tool);
    const properties = parameters?.properties;
    if (!parameters || !isJsonObject(properties) || !Object.hasOwn(properties, key)) return stringType;
    return typeOf(properties[key], parameters, 0);
  }
}

const schemaHops = 8;

function typeOf(schema: JsonValue | undefined, root: JsonObject, hops: number): ValueType {
  if (!isJsonObject(schema) || hops > schemaHops) return stringType;
  if (typeof schema.$ref === 'string') return typeOf(resolve(schema.$ref, root), root, hops + 1);
  const { type } = schema;
  if (typeof type === 'string') return { kind: kindOfName(type), nullable: schema.nullable === true };
  if (Array.isArray(type))
    return firstOf(
      type.map((name: JsonValue): JsonObject => ({ type: name })),
      root,
      hops,
    );
  for (const choice of [schema.anyOf, schema.oneOf, schema.allOf]) {
    if (Array.isArray(choice)) return firstOf(choice, root, hops);
  }
  const samples = Array.isArray(schema.enum) ? schema.enum : 'const' in schema ? [schema.const] : [];
  if (samples.length > 0) return typeOfSamples(samples);
  if ('properties' in schema || 'items' in schema) return { kind: 'json', nullable: false };
  return stringType;
}

/** The first type that is not null. */
function firstOf(choices: readonly JsonValue[], root: JsonObject, hops: number): ValueType {
  const isNull = (choice: JsonValue): boolean => isJsonObject(choice) && choice.type === 'null';
  const { kind, nullable } = typeOf(
    choices.find((choice) => !isNull(choice)),
    root,
    hops + 1,
  );
  return { kind, nullable: nullable || choices.some(isNull) };
}

function resolve(ref: string, root: JsonObject): JsonValue | undefined {
  if (!ref.startsWith('#/')) return undefined;
  let at: JsonValue | undefined = root;
  for (const part of ref.slice(2).split('/')) {
    const key = part.replaceAll('~1', '/').replaceAll('~0', '~');
    at = isJsonObject(at) && Object.hasOwn(at, key) ? at[key] : undefined;
  }
  return at;
}

function typeOfSamples(samples: readonly (JsonValue | undefined)[]): ValueType {
  const plain = samples.filter((sample) => sample !== null).map((sample) => toPlainJson(sample as JsonValue));
  const nullable = plain.length < samples.length;
  const all = (test: (sample: unknown) => boolean): boolean => plain.length > 0 && plain.every(test);
  if (all(Number.isInteger)) return { kind: 'integer', nullable };
  if (all((sample) => typeof sample === 'number')) return { kind: 'number', nullable };
  if (all((sample) => typeof sample === 'boolean')) return { kind: 'boolean', nullable };
  return { kind: 'string', nullable };
}

/** The names of JSON Schema, and what else is seen in the wild. */
function kindOfName(type: string): ValueType['kind'] {
  const name = type.toLowerCase();
  if (/^(?:int|uint|long|short|unsigned)/.test(name)) return 'integer';
  if (/^(?:num|float|double)/.test(name)) return 'number';
  if (/^bool/.test(name)) return 'boolean';
  return /^(?:object|dict|map|array|arr$|list|tuple|set)/.test(name) ? 'json' : 'string';
}

/** The JSON text of a parameter's value. What does not fit its type stays a string. */
export function convertValue(text: string, type: ValueType): string {
  const bare = text.trim();
  if (type.kind === 'string') return type.nullable && isNullWord(text) ? 'null' : quoteJson(text);
  if (isNullWord(bare)) return 'null';
  switch (type.kind) {
    case 'boolean':
      return String(bare.toLowerCase() === 'true');
    case 'integer':
      return integerText(bare) ?? quoteJson(text);
    case 'number':
      return numberText(bare) ?? quoteJson(text);
    case 'json': {
      const value = parseLoose(bare);
      return value === undefined ? quoteJson(text) : stringifySpaced(value);
    }
  }
}

/** The longest text that `isNullWord` accepts. */
export const longestNullWord = 4;

function isNullWord(text: string): boolean {
  return text === 'null' || text === 'None' || text === 'Null' || text === 'NULL';
}

function integerText(bare: string): string | null {
  const parts = /^([+-]?)0*(\d+)$/.exec(bare);
  if (!parts) return null;
  return parts[1] === '-' && parts[2] !== '0' ? `-${parts[2]}` : (parts[2] ?? null);
}

/** A JSON number stays as written; what Python's float() takes besides is put into JSON. */
function numberText(bare: string): string | null {
  if (/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(bare)) return bare;
  if (!/^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/.test(bare)) return null;
  const value = Number(bare);
  return Number.isFinite(value) ? stringifySpaced(value) : null;
}

/** JSON, or a Python literal; undefined when the text is neither. */
export function parseLoose(text: string): JsonValue | undefined {
  try {
    return parseLossless(text);
  } catch {
    return parsePythonLiteral(text);
  }
}

/** The name and arguments in a call that is written as JSON, or null when it is none. */
export function readJsonCall(text: string): { readonly name: string; readonly args: string } | null {
  const value = parseLoose(text);
  const call = isJsonObject(value) && isJsonObject(value.function) ? value.function : value;
  if (!isJsonObject(call) || typeof call.name !== 'string' || !isCallName(call.name)) return null;
  const given = call.arguments ?? call.parameters ?? {};
  const args = typeof given === 'string' ? parseLoose(given) : given;
  return isJsonObject(args) && !(args instanceof JsonNumber)
    ? { name: call.name, args: stringifySpaced(args) }
    : null;
}

export function isCallName(name: string): boolean {
  return name !== '' && !/[\s<>{}"']/.test(name);
}
