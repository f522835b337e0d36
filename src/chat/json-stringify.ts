/**
 * JSON text in the two styles that matter. `stringifyPython` is what `json.dumps(value, ensure_ascii=False)` prints
 * after `json.loads`, the form models were trained on: `", "` and `": "`, non-ASCII raw, floats as Python's repr
 * (`1.0`, `1e-07`), integers of any size. `stringifyCompact` has no blanks and keeps number lexemes as written.
 */
import { UserError } from '../util/index.ts';
import { jsonDepthLimit } from './json-parse.ts';
import { isJsonObject, JsonNumber, type JsonValue, orderedKeys } from './json-value.ts';

interface Style {
  readonly comma: string;
  readonly colon: string;
  readonly number: (value: number | JsonNumber) => string;
}

const python: Style = { comma: ', ', colon: ': ', number: pythonNumber };
const spaced: Style = { comma: ', ', colon: ': ', number: lexemeOf };
const compact: Style = { comma: ',', colon: ':', number: lexemeOf };

export function stringifyPython(value: JsonValue): string {
  return write(value, python, 0);
}

export function stringifyCompact(value: JsonValue): string {
  return write(value, compact, 0);
}

/** Python's separators, numbers as written. */
export function stringifySpaced(value: JsonValue): string {
  return write(value, spaced, 0);
}

function write(value: JsonValue | undefined, style: Style, depth: number): string {
  if (typeof value === 'string') return quoteJson(value);
  if (typeof value === 'number' || value instanceof JsonNumber) return style.number(value);
  if (typeof value !== 'object' || value === null) return String(value ?? null);
  if (depth >= jsonDepthLimit) {
    throw new UserError('invalid_request', `a JSON value is nested more than ${jsonDepthLimit} levels deep`);
  }
  if (!isJsonObject(value)) {
    return `[${value.map((item) => write(item, style, depth + 1)).join(style.comma)}]`;
  }
  const members = orderedKeys(value)
    // What JSON.stringify leaves out is left out here.
    .filter((key) => value[key] !== undefined)
    .map((key) => quoteJson(key) + style.colon + write(value[key], style, depth + 1));
  return `{${members.join(style.comma)}}`;
}

/** A JSON string as Python writes it: a lone surrogate stays raw, where JavaScript would escape it. */
export function quoteJson(text: string): string {
  const quoted = JSON.stringify(text);
  if (!/\p{Surrogate}/u.test(text)) return quoted;
  return quoted.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (whole, code: string | undefined) =>
    code === undefined ? whole : String.fromCharCode(Number.parseInt(code, 16)),
  );
}

function lexemeOf(value: number | JsonNumber): string {
  return value instanceof JsonNumber ? value.lexeme : pythonNumber(value);
}

/** Integers as they are, everything with a point or an exponent as the repr of a Python float. */
export function pythonNumber(value: number | JsonNumber): string {
  if (value instanceof JsonNumber) {
    if (/[.eE]/.test(value.lexeme)) return pythonFloat(Number(value.lexeme));
    return value.lexeme === '-0' ? '0' : value.lexeme;
  }
  const whole = Number.isInteger(value) && Math.abs(value) < 1e21;
  return whole ? String(value) : pythonFloat(value);
}

function pythonFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? 'Infinity' : '-Infinity';
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  const [mantissa = '', exponentText] = Math.abs(value).toExponential().split('e');
  const digits = mantissa.replace('.', '');
  const exponent = Number(exponentText);
  if (exponent < -4 || exponent >= 16) {
    const fraction = digits.length > 1 ? `.${digits.slice(1)}` : '';
    const size = String(Math.abs(exponent)).padStart(2, '0');
    return `${sign}${digits.charAt(0)}${fraction}e${exponent < 0 ? '-' : '+'}${size}`;
  }
  if (exponent < 0) return `${sign}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, '0');
  return `${sign}${whole}.${digits.slice(exponent + 1) || '0'}`;
}
