/**
 * Python values as the official scorer sees them: int = bigint, float = number, dict = Map, list = array. The scorer tells 1 from
 * 1.0 and from True by type but not by equality, so neither JSON.parse nor `===` will do.
 */
export type Value = null | boolean | bigint | number | string | List | Dict;
export type List = readonly Value[];
export type Dict = ReadonlyMap<string, Value>;
export type TypeName = 'None' | 'bool' | 'int' | 'float' | 'str' | 'list' | 'dict';

export const isDict = (value: Value | undefined): value is Dict => value instanceof Map;
export const isList = (value: Value | undefined): value is List => Array.isArray(value);

export function typeOf(value: Value): TypeName {
  if (value === null) return 'None';
  if (isDict(value)) return 'dict';
  if (isList(value)) return 'list';
  switch (typeof value) {
    case 'boolean':
      return 'bool';
    case 'bigint':
      return 'int';
    case 'number':
      return 'float';
    default:
      return 'str';
  }
}

/** `==`: numbers and booleans by amount, containers by depth, dicts without order. */
export function equal(a: Value, b: Value): boolean {
  if (isList(a))
    return isList(b) && a.length === b.length && a.every((item, i) => equal(item, b[i] as Value));
  if (isDict(a)) {
    if (!isDict(b) || a.size !== b.size) return false;
    return [...a].every(([key, item]) => b.has(key) && equal(item, b.get(key) as Value));
  }
  if (a === null || typeof a === 'string' || b === null || typeof b === 'string') return a === b;
  if (isList(b) || isDict(b)) return false;
  // bigint == number compares amounts exactly; `===` never does.
  // biome-ignore lint/suspicious/noDoubleEquals: see above
  return amount(a) == amount(b);
}

const amount = (value: boolean | bigint | number): bigint | number =>
  typeof value === 'boolean' ? BigInt(value) : value;

/** `value in list` */
export function contains(list: List, value: Value): boolean {
  return list.some((item) => equal(item, value));
}

/** A dict key as JSON writes it; null for what can not be one. */
export function writeKey(key: Value): string | null {
  if (typeof key === 'string') return key;
  if (isList(key) || isDict(key)) return null;
  return typeof key === 'number' && Number.isInteger(key) ? `${key}.0` : String(key);
}
