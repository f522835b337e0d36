/** Where the official tool's numbers depend on Python: rounding, splitting, float text. */

/** round(x, digits): the exact binary value, exact ties to even. */
export function pythonRound(x: number, digits: number): number {
  if (!Number.isFinite(x) || x === 0) return x;
  const { mantissa, exponent } = decompose(Math.abs(x));
  // |x| * 10^digits = numerator / denominator
  const numerator = mantissa * 10n ** BigInt(digits) * (exponent > 0 ? 2n ** BigInt(exponent) : 1n);
  const denominator = exponent < 0 ? 2n ** BigInt(-exponent) : 1n;
  let whole = numerator / denominator;
  const twice = 2n * (numerator % denominator);
  if (twice > denominator || (twice === denominator && whole % 2n === 1n)) whole++;
  const text = whole.toString().padStart(digits + 1, '0');
  const rounded = Number(digits === 0 ? text : `${text.slice(0, -digits)}.${text.slice(-digits)}`);
  return x < 0 ? -rounded : rounded;
}

function decompose(x: number): { mantissa: bigint; exponent: number } {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, x);
  const bits = view.getBigUint64(0);
  const biased = Number((bits >> 52n) & 2047n);
  const fraction = bits & ((1n << 52n) - 1n);
  return biased === 0
    ? { mantissa: fraction, exponent: -1074 }
    : { mantissa: fraction | (1n << 52n), exponent: biased - 1075 };
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: Python counts these separators as blanks
const whitespace = /[\t-\r\x1c-\x1f \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/;

/** str.split() without arguments. */
export function pythonSplit(text: string): string[] {
  return text.split(whitespace).filter((part) => part !== '');
}

/** repr(float(x)) for the range that request fields use: a whole number gets `.0`. */
export function floatText(x: number): string {
  const text = String(x);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

/** Order of strings by code point, as Python sorts them. */
export function byCodePoint(a: string, b: string): number {
  const [left, right] = [Array.from(a), Array.from(b)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = (left[i]?.codePointAt(0) ?? 0) - (right[i]?.codePointAt(0) ?? 0);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}
