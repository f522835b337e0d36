/**
 * Source text of a JavaScript value to a Python value, as the official checker converts it: by patterns, so commas in strings split
 * and the first closing bracket ends. What does not have the expected form stays text.
 */
import { parseFloat64, parseInt10, pattern, strip, stripChars } from './text.ts';
import type { TypeName, Value } from './value.ts';

export const javascriptTypes: Readonly<Record<string, TypeName>> = {
  String: 'str',
  any: 'str',
  integer: 'int',
  Bigint: 'int',
  float: 'float',
  Boolean: 'bool',
  dict: 'dict',
  array: 'list',
};

const whole = pattern('^-?\\d+$');
const float = pattern('^-?\\d+(?:\\.\\d+)?$');
const big = pattern('^-?\\d+n$');
const gridStart = pattern('^(\\[|new\\s+Array\\()\\s*\\[');
const betweenRows = pattern('\\s*(?:,\\s*(\\[)|([\\])]))', 'y');
const row = pattern('\\[(.*?)\\]', 'g');
const flat = pattern('^(?:\\[(.*?)\\]|new\\s+Array\\((.*?)\\))');
const object = pattern('^\\{(.*?)\\}');
const pair = pattern('([^:]+):\\s*(.*?)(?:,\\s*(?=[^,]+:)|$)', 'g');
const quotes = `'"`;

export function fromJavascript(text: string, type: string, itemType: string | null = null): Value {
  switch (type) {
    case 'String':
      return isQuoted(text) ? text.slice(1, -1) : text;
    case 'integer':
      return whole.test(text) ? (parseInt10(text) ?? text) : text;
    case 'float':
      return float.test(text) ? (parseFloat64(text) ?? text) : text;
    case 'Bigint':
      return big.test(text) ? (parseInt10(strip(text).slice(0, -1)) ?? text) : text;
    case 'Boolean':
      return text === 'true' ? true : text === 'false' ? false : text;
    case 'array':
      return arrayItems(text, itemType);
    case 'dict':
      return objectItems(text);
    default:
      return text;
  }
}

function isQuoted(text: string): boolean {
  return [...quotes].some((quote) => text.startsWith(quote) && text.endsWith(quote));
}

function arrayItems(text: string, itemType: string | null): Value {
  const code = strip(text);
  const found = gridAtStart(code);
  if (found !== null)
    return [...found.matchAll(row)].map(([, cells = ''], i) => {
      const trimmed = strip(cells);
      const items = i === 0 && trimmed.startsWith('[') ? trimmed.slice(1) : trimmed;
      return items.split(',').map((item) => guess(strip(item)));
    });
  const simple = flat.exec(code);
  if (simple === null) return text;
  const items = simple[1] ?? simple[2] ?? '';
  if (items === '') return [];
  // The checker raises for a type that it does not know, and keeps the text.
  if (itemType !== null && !Object.hasOwn(javascriptTypes, itemType)) return text;
  return items
    .split(',')
    .map((item) => (itemType === null ? guess(strip(item)) : fromJavascript(strip(item), itemType)));
}

/**
 * The list of rows that the text begins with. A row ends at the first `]` after which the rest can be read as rows and a closing
 * bracket; found from the end, since trying all ways to split takes exponential time.
 */
export function gridAtStart(code: string): string | null {
  const start = gridStart.exec(code);
  if (start === null) return null;
  const closing = start[1] === '[' ? ']' : ')';
  /** Row ends from which the list can be finished, the next one in the text last, and where the list ends then. */
  const good: { readonly at: number; readonly end: number }[] = [];
  // The first of them after `from` without a line break between.
  const firstGood = (from: number): number | null => {
    let i = good.length - 1;
    while (i >= 0 && (good[i]?.at as number) < from) i--;
    const found = good[i];
    const isSameLine = found !== undefined && !code.slice(from, found.at).includes('\n');
    return isSameLine ? found.end : null;
  };
  const rowStart = start[0].length;
  for (let at = code.lastIndexOf(']'); at >= rowStart; at = at === 0 ? -1 : code.lastIndexOf(']', at - 1)) {
    betweenRows.lastIndex = at + 1;
    const next = betweenRows.exec(code);
    if (next === null) continue;
    const end =
      next[1] === undefined
        ? next[2] === closing
          ? betweenRows.lastIndex
          : null
        : firstGood(betweenRows.lastIndex);
    if (end !== null) good.push({ at, end });
  }
  const end = firstGood(rowStart);
  return end === null ? null : code.slice(0, end);
}

function objectItems(text: string): Value {
  if (text === '{}') return new Map();
  const body = object.exec(text)?.[1];
  if (body === undefined) return text;
  const pairs = [...body.matchAll(pair)].map(([, key = '', value = '']): [string, Value] => [
    stripChars(strip(key), quotes),
    member(strip(value)),
  ]);
  return new Map(pairs);
}

function member(text: string): Value {
  if (text.startsWith('[') && text.endsWith(']')) return arrayItems(text, null);
  if (text.startsWith('{') && text.endsWith('}')) return objectItems(text);
  return guess(stripChars(text, quotes));
}

function guess(text: string): Value {
  if (text === 'true') return true;
  if (text === 'false') return false;
  if (isQuoted(text)) return text.slice(1, -1);
  return parseInt10(text) ?? parseFloat64(text) ?? text;
}
