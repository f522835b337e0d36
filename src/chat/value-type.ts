/**
 * How the text of a tool parameter becomes a JSON value: the model writes `<parameter=n>3</parameter>`, the tool's
 * JSON Schema says that 3 is an integer. All branches of a schema count. What fits a type exactly becomes it, text is
 * the last resort; without any type only JSON objects and lists become values.
 */
import { parseLossless } from './json-parse.ts';
import { quoteJson, stringifySpaced } from './json-stringify.ts';
import { isJsonObject, JsonNumber, type JsonObject, type JsonValue } from './json-value.ts';
import { parsePythonLiteral } from './python-literal.ts';
import { anyType, type Kind, kindOf, propertyNames, propertyType, type ValueType } from './schema-type.ts';

/** What is known of the tools of a request: their names, and the types of their parameters. */
export class ToolTypes {
  readonly #tools = new Map<string, JsonObject>();
  readonly #types = new Map<string, ValueType>();
  readonly #names = new Map<string, ReadonlySet<string> | null>();

  constructor(tools: readonly JsonValue[]) {
    for (const tool of tools) {
      const fn = isJsonObject(tool) && isJsonObject(tool.function) ? tool.function : tool;
      if (!isJsonObject(fn) || typeof fn.name !== 'string') continue;
      this.#tools.set(fn.name, isJsonObject(fn.parameters) ? fn.parameters : {});
    }
  }

  get size(): number {
    return this.#tools.size;
  }

  /** The tool is among those of the request. */
  has(tool: string): boolean {
    return this.#tools.has(tool);
  }

  /** False only where the tool lists its parameters and this is none of them. */
  mayHave(tool: string, key: string): boolean {
    return this.#namesOf(tool)?.has(key) ?? true;
  }

  /** The tool lists this parameter. */
  declares(tool: string, key: string): boolean {
    return this.#namesOf(tool)?.has(key) ?? false;
  }

  #namesOf(tool: string): ReadonlySet<string> | null {
    let names = this.#names.get(tool);
    if (names === undefined) {
      const parameters = this.#tools.get(tool);
      names = parameters === undefined ? null : propertyNames(parameters);
      this.#names.set(tool, names);
    }
    return names;
  }

  type(tool: string, key: string): ValueType {
    const parameters = this.#tools.get(tool);
    if (parameters === undefined) return anyType;
    const id = JSON.stringify([tool, key]);
    let type = this.#types.get(id);
    if (type === undefined) {
      type = propertyType(parameters, key);
      this.#types.set(id, type);
    }
    return type;
  }
}

/** The JSON text of a parameter's value. What does not fit its type stays a string. */
export function convertValue(text: string, type: ValueType): string {
  const bare = text.trim();
  const mayBeText = type.kinds === null || type.kinds.has('string');
  const exact = exactValue(mayBeText ? text : bare, type);
  if (exact !== null) return exact;
  return (mayBeText ? null : looseValue(bare, type)) ?? quoteJson(text);
}

/** Whether a value that begins with `text` can be nothing but a string, whatever follows. */
export function startsAsText(text: string, { kinds }: ValueType): boolean {
  if (kinds === null) return !mayOpenStructure(text);
  if (!kinds.has('string')) return false;
  if (kinds.has('boolean') || kinds.has('integer') || kinds.has('number')) return false;
  if (kinds.has('null') && text.length <= longestNullWord) return false;
  return !(kinds.has('object') || kinds.has('array')) || !mayOpenStructure(text);
}

function mayOpenStructure(text: string): boolean {
  const first = text.trimStart().charAt(0);
  return first === '' || first === '{' || first === '[';
}

/** The value where the text is the very JSON of one of the types, in order of how little else it could mean. */
function exactValue(text: string, { kinds, samples }: ValueType): string | null {
  const bare = text.trim();
  const has = (kind: Kind): boolean => kinds?.has(kind) ?? (kind === 'object' || kind === 'array');
  const among = (value: JsonValue): boolean =>
    samples === null ||
    !samples.includes(text) ||
    samples.some((sample) => stringifySpaced(sample) === stringifySpaced(value));
  if (isNullWord(text) && has('null') && among(null)) return 'null';
  const lower = bare.toLowerCase();
  if ((lower === 'true' || lower === 'false') && has('boolean') && among(lower === 'true')) return lower;
  const isInteger = /^(?:0|-?[1-9]\d*)$/.test(bare);
  const isNumber = has('number') && jsonNumber.test(bare);
  if (((isInteger && has('integer')) || isNumber) && among(new JsonNumber(bare))) return bare;
  if (!/^[[{]/.test(bare)) return null;
  const value = parseStrict(bare);
  return value !== undefined && has(kindOf(value)) && among(value) ? stringifySpaced(value) : null;
}

/** What else a model writes for a type that leaves no room for text. */
function looseValue(bare: string, { kinds }: ValueType): string | null {
  if (isNullWord(bare)) return 'null';
  const integer = kinds?.has('integer') ? integerText(bare) : null;
  const number = kinds?.has('number') ? numberText(bare) : null;
  if (integer !== null || number !== null) return integer ?? number;
  const value = /^[[{(]/.test(bare) ? parsePythonLiteral(bare) : undefined;
  return value !== undefined && kinds?.has(kindOf(value)) ? stringifySpaced(value) : null;
}

const longestNullWord = 4;

function isNullWord(text: string): boolean {
  return text === 'null' || text === 'None' || text === 'Null' || text === 'NULL';
}

const jsonNumber = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

/** Zeros in front and a fraction of zeros do not change what integer it is. */
function integerText(bare: string): string | null {
  const parts = /^([+-]?)0*(\d+)(?:\.0*)?$/.exec(bare);
  if (parts) return parts[1] === '-' && parts[2] !== '0' ? `-${parts[2]}` : (parts[2] ?? null);
  const number = numberText(bare);
  return number !== null && Number.isSafeInteger(Number(number)) ? String(Number(number)) : null;
}

/** A JSON number stays as written; what Python's float() takes besides is put into JSON. */
function numberText(bare: string): string | null {
  if (jsonNumber.test(bare)) return bare;
  if (!/^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$/.test(bare)) return null;
  const value = Number(bare);
  return Number.isFinite(value) ? stringifySpaced(value) : null;
}

function parseStrict(text: string): JsonValue | undefined {
  try {
    return parseLossless(text);
  } catch {
    return undefined;
  }
}

/** JSON, or a Python literal; undefined when the text is neither. */
export function parseLoose(text: string): JsonValue | undefined {
  return parseStrict(text) ?? parsePythonLiteral(text);
}

/** The name and arguments in a call that is written as JSON, or null when it is none. */
export function readJsonCall(text: string): { readonly name: string; readonly args: JsonObject } | null {
  const value = parseLoose(text);
  const call = isJsonObject(value) && isJsonObject(value.function) ? value.function : value;
  if (!isJsonObject(call) || typeof call.name !== 'string') return null;
  const given = call.arguments ?? call.parameters ?? {};
  const args = typeof given === 'string' ? parseLoose(given) : given;
  return isJsonObject(args) ? { name: call.name, args } : null;
}
