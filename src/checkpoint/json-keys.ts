/**
 * The first key that an object in JSON text has twice, which `JSON.parse` hides by keeping the last. One pass, for text that
 * `JSON.parse` accepts; keys of nested objects are not looked at.
 */
const quote = 0x22;
const backslash = 0x5c;
const opening = new Set([0x7b, 0x5b]);
const closing = new Set([0x7d, 0x5d]);

export function duplicateKey(text: string): string | null {
  const keys = new Set<string>();
  let depth = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if (opening.has(char)) depth++;
    else if (closing.has(char)) depth--;
    else if (char === quote) {
      const end = stringEnd(text, i);
      if (depth === 1 && isKey(text, end + 1)) {
        const key = JSON.parse(text.slice(i, end + 1)) as string;
        if (keys.has(key)) return key;
        keys.add(key);
      }
      i = end;
    }
  }
  return null;
}

function stringEnd(text: string, start: number): number {
  let i = start + 1;
  while (i < text.length && text.charCodeAt(i) !== quote) i += text.charCodeAt(i) === backslash ? 2 : 1;
  return i;
}

function isKey(text: string, after: number): boolean {
  let i = after;
  while (' \t\r\n'.includes(text[i] ?? '!')) i++;
  return text[i] === ':';
}
