/**
 * From what a model wrote to the calls that count: native tool calls, a JSON list of calls, else calls written as text. Never
 * throws on any text.
 */
import type { Call } from './check-call.ts';
import { tryJson } from './json.ts';
import { keywordArguments } from './literal.ts';
import { pattern, strip } from './text.ts';
import { type Dict, isDict, isList, type Value } from './value.ts';

const notCalls = new Set(
  (
    'print return if for while def class import from with assert raise try except len str int float list dict set tuple type ' +
    'isinstance range enumerate zip map filter Note Example Here This The For'
  ).split(' '),
);

const nativeList = (value: Value | undefined): readonly Dict[] | null =>
  isList(value) && value.length > 0 && value.every((item) => isDict(item) && isDict(item.get('function')))
    ? (value as readonly Dict[])
    : null;

export function hasNativeCalls(text: string): boolean {
  return nativeList(tryJson(strip(text))) !== null;
}

/** Calls with their arguments as they stand in the text: an object, or anything else a model may have put there. */
export function extractCalls(text: string): Call[] {
  const trimmed = strip(text);
  const json = tryJson(trimmed);
  const native = nativeList(json);
  if (native !== null) return native.map(nativeCall);
  const named = namedCalls(json);
  return named ?? textCalls(trimmed);
}

function nativeCall(item: Dict): Call {
  const detail = item.get('function') as Dict;
  const name = detail.get('name');
  const given = argumentsAt(detail);
  const read = typeof given === 'string' ? tryJson(given) : given;
  const once = read === undefined ? given : read;
  return { name: typeof name === 'string' ? name : '', arguments: parsed(once) };
}

const argumentsAt = (item: Dict): Value =>
  item.has('arguments') ? (item.get('arguments') as Value) : new Map();

/** Arguments that are text still are read as JSON; text that is none counts as no arguments. */
function parsed(value: Value): Value {
  if (typeof value !== 'string') return value;
  const read = tryJson(value);
  return read === undefined ? new Map() : read;
}

function namedCalls(json: Value | undefined): Call[] | null {
  if (!isList(json) || json.length === 0) return null;
  if (!json.every((item) => isDict(item) && item.has('name'))) return null;
  return (json as readonly Dict[]).map((item) => {
    const name = item.get('name');
    return { name: typeof name === 'string' ? name : '', arguments: parsed(argumentsAt(item)) };
  });
}

const head = pattern('(?<![\\p{L}\\p{N}_])([A-Za-z_]\\w*)\\s*\\(', 'g');
const bareWord = pattern('^[A-Za-z_]\\w*(?:\\s*:\\s*\\w+)?$');

function textCalls(text: string): Call[] {
  const calls: Call[] = [];
  let consumed = 0;
  for (const match of text.matchAll(head)) {
    const name = match[1] ?? '';
    const start = match.index + match[0].length;
    if (match.index < consumed || notCalls.has(name)) continue;
    const end = closingAt(text, start);
    if (end === null) continue;
    const source = text.slice(start, end);
    if (isSignature(source)) continue;
    consumed = end + 1;
    calls.push({ name, arguments: keywordArguments(source) ?? new Map([['_raw', source]]) });
  }
  return calls;
}

/** Where the parenthesis that opened before `start` closes; quotes hide parentheses, backslashes hide quotes. */
function closingAt(text: string, start: number): number | null {
  let depth = 1;
  let quote = '';
  for (let i = start; i < text.length; i++) {
    const char = text[i] as string;
    if (char === '\\') i++;
    else if (quote !== '') quote = char === quote ? '' : quote;
    else if (char === '"' || char === "'") quote = char;
    else if (char === '(') depth++;
    else if (char === ')' && --depth === 0) return i;
  }
  return null;
}

/** A declaration or prose in parentheses, not a call with values. */
function isSignature(source: string): boolean {
  const parts = source
    .split(',')
    .map(strip)
    .filter((part) => part !== '');
  return parts.length > 0 && parts.every((part) => bareWord.test(part));
}
