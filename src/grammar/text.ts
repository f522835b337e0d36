/**
 * Texts of a language as nodes that read bytes: raw UTF-8, or the inside of a JSON string. Lengths are counted in
 * characters while the text is read, so a limit of a million costs no more than one of ten.
 */
import { type Dfa, type Edge, shortest } from './dfa.ts';
import { alt, type Cont, literal, Node, Step, type Threads } from './node.ts';
import { PatternError } from './regex.ts';

/**
 * 'raw': the text itself. 'json': inside a JSON string, each character written in one way. 'free': inside a JSON
 * string, also with escapes of characters that need none.
 */
export type Encoding = 'raw' | 'json' | 'free';

/** How many characters. */
export interface Lengths {
  readonly min: number;
  /** Infinity: no limit. */
  readonly max: number;
}

export const anyLength: Lengths = { min: 0, max: Number.POSITIVE_INFINITY };

const mostNodes = 20_000;
const mostWork = 4_000_000;

/** The texts of `dfa` with these lengths, or null when there is none. Throws PatternError where that is too much work. */
export function textNode(dfa: Dfa, encoding: Encoding, lengths: Lengths = anyLength): Node | null {
  const max = Math.min(lengths.max, Number.MAX_SAFE_INTEGER);
  const bounded = { min: lengths.min, max: lengths.max === Number.POSITIVE_INFINITY ? lengths.max : max };
  return languageOf(dfa, encoding).node(0, bounded);
}

const languages = new WeakMap<Dfa, Map<Encoding, Language>>();

function languageOf(dfa: Dfa, encoding: Encoding): Language {
  const known = languages.get(dfa) ?? new Map<Encoding, Language>();
  languages.set(dfa, known);
  const language = known.get(encoding) ?? new Language(dfa, encoding);
  known.set(encoding, language);
  return language;
}

class Language {
  readonly dfa: Dfa;
  readonly encoding: Encoding;
  /** Every state may end the text, and every one goes on: all lengths are possible. */
  readonly isFree: boolean;
  readonly #shortest: readonly number[];
  #reach: Uint8Array[] | null = null;
  #nodes = new Map<string, TextNode>();

  constructor(dfa: Dfa, encoding: Encoding) {
    this.dfa = dfa;
    this.encoding = encoding;
    this.#shortest = shortest(dfa);
    this.isFree = dfa.accepts.every(Boolean) && dfa.edges.every((edges) => edges.length > 0);
  }

  /** What is left to read in `state`; null where no text of these lengths ends. */
  node(state: number, { min, max }: Lengths): TextNode | null {
    const key = `${state}:${min}:${max}`;
    const known = this.#nodes.get(key);
    if (known !== undefined) return known;
    if (!this.#isPossible(state, min, max)) return null;
    if (this.#nodes.size >= mostNodes) this.#nodes.clear();
    const node = new TextNode(this, state, { min, max });
    this.#nodes.set(key, node);
    return node;
  }

  #isPossible(state: number, min: number, max: number): boolean {
    if (max < min || max < 0) return false;
    if (this.isFree) return true;
    if (min <= 0) return (this.#shortest[state] as number) <= max;
    // A text that is longer than this by a cycle of the automaton can do without the cycle.
    const most = Math.min(max, min + this.dfa.edges.length);
    for (let length = min; length <= most; length++) if (this.#ends(state, length)) return true;
    return false;
  }

  /** Whether a text of exactly this length ends the language. */
  #ends(state: number, length: number): boolean {
    this.#reach ??= [Uint8Array.from(this.dfa.accepts, Number)];
    const states = this.dfa.edges.length;
    if (length * states > mostWork) throw new PatternError(`is too much together with a length of ${length}`);
    while (this.#reach.length <= length) {
      const last = this.#reach.at(-1) as Uint8Array;
      this.#reach.push(
        Uint8Array.from(this.dfa.edges, (edges) => Number(edges.some(({ to }) => last[to] === 1))),
      );
    }
    return this.#reach[length]?.[state] === 1;
  }
}

class TextNode extends Node {
  readonly #language: Language;
  readonly #state: number;
  readonly #lengths: Lengths;
  #steps: readonly Step[] | null = null;

  constructor(language: Language, state: number, lengths: Lengths) {
    super();
    this.#language = language;
    this.#state = state;
    this.#lengths = lengths;
  }

  expand(cont: Cont, into: Threads): void {
    for (const step of this.steps) into.add(step, cont);
    if (this.#lengths.min <= 0 && this.#language.dfa.accepts[this.#state] === true) cont.pop(into);
  }

  get steps(): readonly Step[] {
    this.#steps ??= this.#makeSteps();
    return this.#steps;
  }

  #makeSteps(): Step[] {
    const { min, max } = this.#lengths;
    const { dfa, encoding, isFree } = this.#language;
    const lengths = { min: Math.max(0, min - 1), max: max - 1 };
    const steps: Step[] = [];
    const counts = min > 0 || max < Number.POSITIVE_INFINITY;
    const clampOf = (index: number): Step['clamp'] =>
      isFree && counts ? (horizon) => this.#clamped(horizon).steps[index] as Step : null;
    const targets = new Map<number, Edge[]>();
    for (const edge of dfa.edges[this.#state] as readonly Edge[]) {
      const list = targets.get(edge.to) ?? [];
      list.push(edge);
      targets.set(edge.to, list);
    }
    for (const [to, edges] of targets) {
      const then = this.#language.node(to, lengths);
      if (then === null) continue;
      for (const { range, rest } of encoded(edges, encoding, then))
        steps.push(new Step(range, rest, clampOf(steps.length)));
    }
    return steps;
  }

  /** The same where counts beyond the horizon, in characters, are all one. */
  #clamped(horizon: number): TextNode {
    const { min, max } = this.#lengths;
    const near = { min: Math.min(min, horizon), max: max > horizon ? Number.POSITIVE_INFINITY : max };
    return this.#language.node(this.#state, near) ?? this;
  }
}

interface FirstByte {
  readonly range: readonly [number, number];
  readonly rest: Node;
}

/** The characters of these edges as first bytes and what is left of them; disjoint first bytes except for escapes. */
function encoded(edges: readonly Edge[], encoding: Encoding, then: Node): FirstByte[] {
  const out: FirstByte[] = [];
  const escapes: Node[] = [];
  for (const { lo, hi } of edges) {
    if (encoding === 'raw') {
      utf8(lo, hi, then, out);
      continue;
    }
    for (const [from, to] of [
      [0x20, 0x21],
      [0x23, 0x5b],
      [0x5d, 0x10ffff],
    ] as const)
      utf8(Math.max(lo, from), Math.min(hi, to), then, out);
    for (const [code, text] of jsonEscapes) if (lo <= code && code <= hi) escapes.push(literal(text, then));
  }
  if (encoding === 'free') escapes.push(anyUnicodeEscape(then), literal('/', then));
  if (escapes.length > 0) out.push({ range: [0x5c, 0x5c], rest: alt(escapes) });
  return out;
}

/** Characters that a JSON string can not hold as they are, with what follows the backslash. */
const jsonEscapes: readonly (readonly [number, string])[] = [
  [0x22, '"'],
  [0x5c, '\\'],
  ...Array.from({ length: 0x20 }, (_, code) => [code, controlEscape(code)] as const),
];

function controlEscape(code: number): string {
  return JSON.stringify(String.fromCharCode(code)).slice(2, -1);
}

const digitRange: readonly [number, number] = [0x30, 0x39];

function hexDigits(lo: number, hi: number, then: Node): Node {
  const options: Node[] = [];
  const add = (from: number, to: number, base: number): void => {
    if (Math.max(lo, from) > Math.min(hi, to)) return;
    options.push(new Step([base + Math.max(lo, from) - from, base + Math.min(hi, to) - from], then));
  };
  add(0, 9, digitRange[0]);
  add(10, 15, 0x41);
  add(10, 15, 0x61);
  return alt(options);
}

/** `uXXXX` of any character, surrogates in pairs only. */
function anyUnicodeEscape(then: Node): Node {
  const any = (rest: Node): Node => hexDigits(0, 15, rest);
  const three = any(any(any(then)));
  const low = literal('\\u', literalHexD(hexDigits(0xc, 0xf, any(any(then)))));
  const plainD = literalHexD(hexDigits(0, 7, any(any(then))));
  const pair = literalHexD(hexDigits(0x8, 0xb, any(any(low))));
  const others = alt([hexDigits(0, 0xc, three), hexDigits(0xe, 0xf, three)]);
  return literal('u', alt([others, plainD, pair]));
}

function literalHexD(then: Node): Node {
  return hexDigits(0xd, 0xd, then);
}

const utf8Lengths = [0x7f, 0x7ff, 0xffff, 0x10ffff];

/** The UTF-8 of the characters from `lo` to `hi`. */
function utf8(lo: number, hi: number, then: Node, out: FirstByte[]): void {
  let from = lo;
  for (const most of utf8Lengths) {
    if (from > hi) return;
    if (from > most) continue;
    const to = Math.min(hi, most);
    utf8Same(bytesOf(from), bytesOf(to), then, out);
    from = to + 1;
  }
}

/** Both ends have the same number of bytes. */
function utf8Same(lo: readonly number[], hi: readonly number[], then: Node, out: FirstByte[]): void {
  const [first = 0, ...lowTail] = lo;
  const [last = 0, ...highTail] = hi;
  const tails = (from: readonly number[], to: readonly number[]): Node => {
    if (from.length === 0) return then;
    const inner: FirstByte[] = [];
    utf8Same(from, to, then, inner);
    return alt(inner.map(({ range, rest }) => new Step(range, rest)));
  };
  const least = lowTail.map(() => 0x80);
  const most = lowTail.map(() => 0xbf);
  if (first === last) {
    out.push({ range: [first, first], rest: tails(lowTail, highTail) });
    return;
  }
  const cutsLow = lowTail.some((byte) => byte !== 0x80);
  const cutsHigh = highTail.some((byte) => byte !== 0xbf);
  if (cutsLow) out.push({ range: [first, first], rest: tails(lowTail, most) });
  const middle: readonly [number, number] = [cutsLow ? first + 1 : first, cutsHigh ? last - 1 : last];
  if (middle[0] <= middle[1]) out.push({ range: middle, rest: tails(least, most) });
  if (cutsHigh) out.push({ range: [last, last], rest: tails(least, highTail) });
}

function bytesOf(code: number): number[] {
  return [...Buffer.from(String.fromCodePoint(code))];
}
