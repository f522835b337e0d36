/**
 * Source text of a Java value to a Python value, as the official checker converts it. What does not have the expected form stays
 * text, which then usually fails the comparison.
 */
import { parseFloat64, parseInt10, pattern, strip } from './text.ts';
import type { TypeName, Value } from './value.ts';

/** Thrown where the official scorer raises; the sample counts as failed. */
export class ScorerError extends Error {}

export const javaTypes: Readonly<Record<string, TypeName | 'set'>> = {
  byte: 'int',
  short: 'int',
  integer: 'int',
  long: 'int',
  float: 'float',
  double: 'float',
  boolean: 'bool',
  char: 'str',
  String: 'str',
  any: 'str',
  Array: 'list',
  ArrayList: 'list',
  Queue: 'list',
  Stack: 'list',
  HashMap: 'dict',
  Hashtable: 'dict',
  Set: 'set',
};

const whole = pattern('^-?\\d+$');
const long = pattern('^-?\\d+[lL]$');
const double = pattern('^-?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?$');
const float = pattern('^-?\\d+(?:\\.\\d+)?(?:[eE][+-]?\\d+)?[fF]$');
const array = pattern('new\\s+\\w+\\[\\]\\s*\\{(.*?)\\}');
const asList = pattern('new\\s+ArrayList<\\w*>\\(Arrays\\.asList\\((.+?)\\)\\)');
const added = pattern('new\\s+ArrayList<\\w*>\\(\\)\\s*\\{\\{(.+?)\\}\\}', 's');
const add = pattern('add\\((.+?)\\)', 'g');
const emptyList = pattern('new\\s+ArrayList<\\w*>\\(\\)');
const map = pattern('new\\s+HashMap<.*?>\\s*\\(\\)\\s*\\{\\s*\\{?([^}]*)\\}', 's');
const put = pattern('put\\("(.*?)",\\s*(.*?)\\)', 'g');
const emptyMap = pattern('new\\s+HashMap<.*?>\\s*\\(\\)');

export function fromJava(text: string, type: string, itemType: string | null = null): Value {
  switch (type) {
    case 'byte':
    case 'short':
    case 'integer':
      return whole.test(text) ? (parseInt10(text) ?? text) : text;
    case 'long':
      return long.test(text) ? (parseInt10(strip(text).slice(0, -1)) ?? text) : text;
    case 'double':
      return double.test(text) ? (parseFloat64(text) ?? text) : text;
    case 'float':
      return float.test(text) ? (parseFloat64(strip(text).slice(0, -1)) ?? text) : text;
    case 'boolean':
      return text === 'true' ? true : text === 'false' ? false : text;
    case 'char':
    case 'String':
    case 'any':
      return text;
    case 'Array':
      return arrayItems(text, itemType);
    case 'ArrayList':
      return listItems(text, itemType);
    case 'HashMap':
      return mapItems(text);
    default:
      throw new ScorerError(`Java type ${type} has no conversion`);
  }
}

function arrayItems(text: string, itemType: string | null): Value {
  const items = array.exec(text)?.[1];
  if (items === undefined) return text;
  const texts = items.split(',').map(strip);
  return texts
    .filter((item) => item !== '')
    .map((item) => (itemType === null ? guess(item) : fromJava(item, itemType)));
}

function listItems(text: string, itemType: string | null): Value {
  const convert = (item: string): Value => {
    if (itemType === 'char' || itemType === 'String') return item.slice(1, -1);
    return itemType === null ? guess(item) : fromJava(item, itemType);
  };
  const listed = asList.exec(text)?.[1];
  if (listed !== undefined) return listed.split(',').map((item) => convert(strip(item)));
  const body = added.exec(text)?.[1];
  if (body !== undefined) return [...body.matchAll(add)].map(([, item = '']) => convert(strip(item)));
  return emptyList.test(text) ? [] : text;
}

function mapItems(text: string): Value {
  const body = map.exec(text)?.[1];
  if (body === undefined) return emptyMap.test(text) ? new Map() : text;
  // Without what follows the last parenthesis no pair is tried in vain.
  const puts = body.slice(0, body.lastIndexOf(')') + 1);
  return new Map([...puts.matchAll(put)].map(([, key = '', value = '']) => [key, guess(strip(value))]));
}

function guess(text: string): Value {
  if (text === 'true') return true;
  if (text === 'false') return false;
  if (text.startsWith('"') && text.endsWith('"')) return text.slice(1, -1);
  if (long.test(text)) return parseInt10(text.slice(0, -1)) ?? text;
  if (float.test(text)) return parseFloat64(text.slice(0, -1)) ?? text;
  return parseInt10(text) ?? parseFloat64(text) ?? text;
}
