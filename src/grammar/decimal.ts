/** Numbers of a schema as decimal digits: bounds are compared as they are written, not as doubles. */
import { JsonNumber, type JsonValue } from '../chat/index.ts';

/** (-1 if negative) * int.frac, without zeros at the ends; int has at least one digit. */
export interface Decimal {
  readonly negative: boolean;
  readonly int: string;
  readonly frac: string;
}

const mostDigits = 60;

/** A number as it was written. */
export function lexemeOf(value: number | JsonNumber): string {
  return value instanceof JsonNumber ? value.lexeme : String(value);
}

/** The number of a JSON value; null when it is none, or has more than 60 digits written out. */
export function decimalOf(value: JsonValue | undefined): Decimal | null {
  if (typeof value !== 'number' && !(value instanceof JsonNumber)) return null;
  const parts = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(lexemeOf(value));
  if (parts === null) return null;
  const [, sign = '', whole = '', fraction = '', power = '0'] = parts;
  const exponent = Number(power);
  if (Math.abs(exponent) > mostDigits) return null;
  const digits = '0'.repeat(Math.max(0, -exponent)) + whole + fraction + '0'.repeat(Math.max(0, exponent));
  const point = Math.max(0, -exponent) + whole.length + exponent;
  const int = digits.slice(0, point).replace(/^0+(?=\d)/, '') || '0';
  const frac = digits.slice(point).replace(/0+$/, '');
  if (int.length + frac.length > mostDigits) return null;
  return { negative: sign === '-' && !(int === '0' && frac === ''), int, frac };
}

export function isZero({ int, frac }: Decimal): boolean {
  return int === '0' && frac === '';
}

/** Negative, zero or positive, as in a sort. */
export function compareDecimals(a: Decimal, b: Decimal): number {
  if (a.negative !== b.negative) return a.negative ? -1 : 1;
  const size = compareSizes(a, b);
  return a.negative ? -size : size;
}

function compareSizes(a: Decimal, b: Decimal): number {
  if (a.int.length !== b.int.length) return a.int.length - b.int.length;
  if (a.int !== b.int) return a.int < b.int ? -1 : 1;
  return a.frac === b.frac ? 0 : a.frac < b.frac ? -1 : 1;
}

export function isWhole({ frac }: Decimal): boolean {
  return frac === '';
}

export function wholeOf({ negative, int }: Decimal): bigint {
  return negative ? -BigInt(int) : BigInt(int);
}
