/** Python's str methods that templates use; JavaScript's `trim` knows another set of blanks. */

/** str.isspace(): differs from \s in JavaScript by U+001C to U+001F, U+0085 and U+FEFF. */
const blank = '[\\t-\\r\\x1C-\\x20\\x85\\xA0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000]';
const leading = new RegExp(`^${blank}+`);
const oneBlank = new RegExp(blank);

export function strip(text: string): string {
  // A pattern anchored at the end would try every run of blanks in the text.
  let end = text.length;
  while (end > 0 && oneBlank.test(text.charAt(end - 1))) end--;
  return text.slice(0, end).replace(leading, '');
}

export function stripNewlinesLeft(text: string): string {
  return text.replace(/^\n+/, '');
}

export function stripNewlinesRight(text: string): string {
  let end = text.length;
  while (end > 0 && text.charAt(end - 1) === '\n') end--;
  return text.slice(0, end);
}
