/** Python's text rules, where JavaScript's differ: blanks, digits, int() and float() of a string. */

/** Members of a character class: what str.strip() and `\s` take for blanks. */
export const blank = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';

/** Longest whole number that Python reads from text. */
export const intDigitLimit = 4300;

/**
 * A regular expression written as for Python: `\s`, `\d` and `\w` are Unicode classes, the dot stops at U+000A only, and `$` also
 * matches before one last newline.
 */
export function pattern(source: string, flags = ''): RegExp {
  const translated = source.replace(/\\s|\\d|\\w|\\.|\[[^\]]*\]|\.|\$$/g, (part) => {
    if (part === '\\s') return `[${blank}]`;
    if (part === '\\d') return '\\p{Nd}';
    if (part === '\\w') return '[\\p{L}\\p{N}_]';
    if (part === '.') return flags.includes('s') ? part : '[^\\n]';
    return part === '$' ? '(?=\\n?$)' : part;
  });
  return new RegExp(translated, `u${flags}`);
}

const outer = new RegExp(`^[${blank}]+|[${blank}]+$`, 'gu');

export const strip = (text: string): string => text.replace(outer, '');

/** Without the characters of `set` at both ends. */
export function stripChars(text: string, set: string): string {
  let [start, end] = [0, text.length];
  while (start < end && set.includes(text[start] as string)) start++;
  while (end > start && set.includes(text[end - 1] as string)) end--;
  return text.slice(start, end);
}

const isDigit = (code: number): boolean => /\p{Nd}/u.test(String.fromCodePoint(code));

/** Digits of every script as ASCII ones. Scripts list their digits from 0 to 9, some several times in a row. */
function asciiDigits(text: string): string {
  return text.replace(/\p{Nd}/gu, (char) => {
    const code = char.codePointAt(0) as number;
    let first = code;
    while (first > 0 && isDigit(first - 1)) first--;
    return String((code - first) % 10);
  });
}

/** int(text), or null where Python raises. */
export function parseInt10(text: string): bigint | null {
  const digits = asciiDigits(strip(text));
  if (!/^[+-]?\d+(?:_\d+)*$/.test(digits) || digits.length > intDigitLimit) return null;
  const plain = digits.replaceAll('_', '');
  return plain.startsWith('-') ? -BigInt(plain.slice(1)) : BigInt(plain.replace('+', ''));
}

const decimal = /^[+-]?(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)(?:[eE][+-]?\d+(?:_\d+)*)?$/;

/** float(text), or null where Python raises. */
export function parseFloat64(text: string): number | null {
  const plain = asciiDigits(strip(text));
  const named = /^([+-]?)(inf|infinity|nan)$/i.exec(plain);
  if (named !== null) {
    const value = named[2]?.toLowerCase() === 'nan' ? Number.NaN : Number.POSITIVE_INFINITY;
    return named[1] === '-' ? -value : value;
  }
  return decimal.test(plain) ? Number(plain.replaceAll('_', '')) : null;
}
