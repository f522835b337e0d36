/** Sets of Unicode scalar values as sorted ranges that neither overlap nor touch. Surrogates are in none. */

export type Range = readonly [lo: number, hi: number];
export type CharSet = readonly Range[];

const highest = 0x10ffff;
const surrogates: Range = [0xd800, 0xdfff];

/** A set from ranges in any order. */
export function charSet(ranges: readonly Range[]): CharSet {
  const out: [number, number][] = [];
  for (const [lo, hi] of [...ranges].sort((a, b) => a[0] - b[0])) {
    const last = out.at(-1);
    if (last !== undefined && lo <= last[1] + 1) last[1] = Math.max(last[1], hi);
    else out.push([lo, hi]);
  }
  return out.flatMap(withoutSurrogates);
}

function withoutSurrogates([lo, hi]: Range): Range[] {
  const below: Range = [lo, Math.min(hi, surrogates[0] - 1)];
  const above: Range = [Math.max(lo, surrogates[1] + 1), hi];
  return [below, above].filter(([from, to]) => from <= to);
}

export const anyChar: CharSet = charSet([[0, highest]]);

export function invert(set: CharSet): CharSet {
  const out: Range[] = [];
  let from = 0;
  for (const [lo, hi] of set) {
    if (lo > from) out.push([from, lo - 1]);
    from = hi + 1;
  }
  if (from <= highest) out.push([from, highest]);
  return charSet(out);
}

export function one(code: number): CharSet {
  return charSet([[code, code]]);
}

export const digits: CharSet = [[0x30, 0x39]];
export const wordChars: CharSet = charSet([
  [0x30, 0x39],
  [0x41, 0x5a],
  [0x5f, 0x5f],
  [0x61, 0x7a],
]);
/** WhiteSpace and LineTerminator of ECMAScript. */
export const blanks: CharSet = charSet([
  [0x09, 0x0d],
  [0x20, 0x20],
  [0xa0, 0xa0],
  [0x1680, 0x1680],
  [0x2000, 0x200a],
  [0x2028, 0x2029],
  [0x202f, 0x202f],
  [0x205f, 0x205f],
  [0x3000, 0x3000],
  [0xfeff, 0xfeff],
]);
/** What a dot does not match. */
export const lineBreaks: CharSet = charSet([
  [0x0a, 0x0a],
  [0x0d, 0x0d],
  [0x2028, 0x2029],
]);

const properties = new Map<string, CharSet>();

/** The characters that a class escape such as `\p{Lu}` matches; the escape is one that RegExp takes. */
export function propertySet(name: string): CharSet {
  let set = properties.get(name);
  if (set === undefined) {
    const test = new RegExp(`^${name}$`, 'u');
    const ranges: [number, number][] = [];
    for (let code = 0; code <= highest; code++) {
      if (!test.test(String.fromCodePoint(code))) continue;
      const last = ranges.at(-1);
      if (last !== undefined && last[1] === code - 1) last[1] = code;
      else ranges.push([code, code]);
    }
    set = charSet(ranges);
    properties.set(name, set);
  }
  return set;
}
