/**
 * Deterministic automata over characters: languages of strings that can be met, subtracted and measured. Every state
 * of one can reach its end. Work and size are bounded; what exceeds them throws PatternError.
 */
import { type CharSet, invert } from './char-set.ts';
import { PatternError } from './regex.ts';

export interface Edge {
  readonly lo: number;
  readonly hi: number;
  readonly to: number;
}

export interface Dfa {
  /** By state, sorted; state 0 is the start. */
  readonly edges: readonly (readonly Edge[])[];
  readonly accepts: readonly boolean[];
}

const mostStates = 10_000;
const mostEdges = 200_000;

/** An automaton that is described rather than written down. States with equal keys are one. */
export interface Description<S> {
  readonly start: S;
  key(state: S): string;
  accepts(state: S): boolean;
  /** Ranges that do not overlap. */
  edges(state: S): readonly { readonly lo: number; readonly hi: number; readonly to: S }[];
}

/** The automaton of a description, or null when it accepts nothing. */
export function explore<S>(description: Description<S>): Dfa | null {
  const ids = new Map<string, number>([[description.key(description.start), 0]]);
  const states = [description.start];
  const edges: Edge[][] = [];
  let count = 0;
  for (let i = 0; i < states.length; i++) {
    const list: Edge[] = [];
    for (const { lo, hi, to } of description.edges(states[i] as S)) {
      const key = description.key(to);
      let id = ids.get(key);
      if (id === undefined) {
        id = states.length;
        ids.set(key, id);
        states.push(to);
        if (id >= mostStates) throw new PatternError(`needs more than ${mostStates} states`);
      }
      const last = list.at(-1);
      if (last !== undefined && last.to === id && last.hi === lo - 1) list[list.length - 1] = { ...last, hi };
      else list.push({ lo, hi, to: id });
    }
    count += list.length;
    if (count > mostEdges) throw new PatternError(`needs more than ${mostEdges} transitions`);
    edges.push(list);
  }
  return trim({ edges, accepts: states.map((state) => description.accepts(state)) });
}

/** Without the states that lead nowhere. */
function trim({ edges, accepts }: Dfa): Dfa | null {
  const alive = shortest({ edges, accepts }).map((length) => length < Number.POSITIVE_INFINITY);
  if (!alive[0]) return null;
  const ids: number[] = [];
  let count = 0;
  alive.forEach((lives, i) => {
    ids[i] = lives ? count++ : -1;
  });
  const kept = edges.filter((_, i) => alive[i]);
  return {
    edges: kept.map((list) =>
      list.filter(({ to }) => alive[to]).map(({ lo, hi, to }) => ({ lo, hi, to: ids[to] as number })),
    ),
    accepts: accepts.filter((_, i) => alive[i]),
  };
}

/** By state: the fewest characters to an end. */
export function shortest({ edges, accepts }: Dfa): number[] {
  const sources: number[][] = edges.map(() => []);
  edges.forEach((list, from) => {
    for (const { to } of list) sources[to]?.push(from);
  });
  const lengths = accepts.map((isEnd) => (isEnd ? 0 : Number.POSITIVE_INFINITY));
  let level = accepts.flatMap((isEnd, i) => (isEnd ? [i] : []));
  for (let length = 1; level.length > 0; length++) {
    const next: number[] = [];
    for (const state of level)
      for (const from of sources[state] as number[])
        if (lengths[from] === Number.POSITIVE_INFINITY) {
          lengths[from] = length;
          next.push(from);
        }
    level = next;
  }
  return lengths;
}

const none = -1;

/** What both accept. */
export function both(a: Dfa, b: Dfa): Dfa | null {
  return pairs(a, b, 'both');
}

/** What `a` accepts and `b` does not. */
export function without(a: Dfa, b: Dfa | null): Dfa | null {
  return b === null ? a : pairs(a, b, 'without');
}

type Pair = readonly [number, number];

function pairs(a: Dfa, b: Dfa, how: 'both' | 'without'): Dfa | null {
  const inB = (state: number): boolean => state !== none && b.accepts[state] === true;
  return explore<Pair>({
    start: [0, 0],
    key: ([x, y]) => `${x},${y}`,
    accepts: ([x, y]) => a.accepts[x] === true && inB(y) === (how === 'both'),
    edges: ([x, y]) => {
      const second = y === none ? [] : (b.edges[y] as readonly Edge[]);
      return overlay(a.edges[x] as readonly Edge[], second, how);
    },
  });
}

function overlay(
  first: readonly Edge[],
  second: readonly Edge[],
  how: 'both' | 'without',
): { lo: number; hi: number; to: Pair }[] {
  const out: { lo: number; hi: number; to: Pair }[] = [];
  let i = 0;
  for (const { lo, hi, to } of first) {
    let from = lo;
    while (i > 0 && (second[i - 1] as Edge).hi >= lo) i--;
    while (i < second.length && (second[i] as Edge).hi < lo) i++;
    for (; i < second.length && (second[i] as Edge).lo <= hi; i++) {
      const other = second[i] as Edge;
      const start = Math.max(from, other.lo);
      if (start > from && how === 'without') out.push({ lo: from, hi: start - 1, to: [to, none] });
      const end = Math.min(hi, other.hi);
      out.push({ lo: start, hi: end, to: [to, other.to] });
      from = end + 1;
    }
    if (from <= hi && how === 'without') out.push({ lo: from, hi, to: [to, none] });
  }
  return out;
}

/** One of these texts; null for none. */
export function ofTexts(texts: readonly string[]): Dfa | null {
  const edges: Map<number, number>[] = [new Map()];
  const ends = new Set<number>();
  for (const text of texts) {
    let at = 0;
    for (const char of text) {
      const code = char.codePointAt(0) as number;
      const known = (edges[at] as Map<number, number>).get(code);
      if (known === undefined) {
        edges[at]?.set(code, edges.length);
        at = edges.length;
        edges.push(new Map());
      } else at = known;
    }
    ends.add(at);
  }
  const sorted = edges.map((map) =>
    [...map].sort((a, b) => a[0] - b[0]).map(([code, to]) => ({ lo: code, hi: code, to })),
  );
  return trim({ edges: sorted, accepts: sorted.map((_, i) => ends.has(i)) });
}

/** Any text of these characters. */
export function textOf(set: CharSet): Dfa {
  return { edges: [set.map(([lo, hi]) => ({ lo, hi, to: 0 }))], accepts: [true] };
}

/** Any text that contains none of the given ones, which are not empty. */
export function textWithout(set: CharSet, forbidden: readonly string[]): Dfa {
  const words = forbidden.map((text) => [...text].map((char) => char.codePointAt(0) as number));
  /** A state is the longest beginning of a word that the text ends with: all words that are begun, by length. */
  const begun = (text: readonly number[]): number[] => {
    for (let from = 0; from < text.length; from++) {
      const tail = text.slice(from);
      if (words.some((word) => tail.every((code, i) => word[i] === code))) return tail;
    }
    return [];
  };
  const isWhole = (text: readonly number[]): boolean =>
    words.some(
      (word) => word.length <= text.length && word.every((code, i) => text.at(i - word.length) === code),
    );
  const codes = [...new Set(words.flat())].sort((a, b) => a - b);
  const inSet = (code: number): boolean => set.some(([lo, hi]) => lo <= code && code <= hi);
  const others = meet(set, invert(codes.map((code) => [code, code] as const)));
  const dfa = explore<number[]>({
    start: [],
    key: (state) => state.join(','),
    accepts: () => true,
    edges: (state) => {
      const named = codes
        .filter(inSet)
        .filter((code) => !isWhole([...state, code]))
        .map((code) => ({ lo: code, hi: code, to: begun([...state, code]) }));
      const rest = others.map(([lo, hi]) => ({ lo, hi, to: [] as number[] }));
      return [...named, ...rest].sort((a, b) => a.lo - b.lo);
    },
  });
  return dfa as Dfa;
}

function meet(a: CharSet, b: CharSet): CharSet {
  return a.flatMap(([lo, hi]) =>
    b.map(([from, to]) => [Math.max(lo, from), Math.min(hi, to)] as const).filter(([from, to]) => from <= to),
  );
}

/** The state behind a text, or -1. */
export function run(dfa: Dfa, text: string): number {
  let state = 0;
  for (const char of text) {
    const code = char.codePointAt(0) as number;
    const edge = dfa.edges[state]?.find(({ lo, hi }) => lo <= code && code <= hi);
    if (edge === undefined) return none;
    state = edge.to;
  }
  return state;
}

export function matches(dfa: Dfa | null, text: string): boolean {
  return dfa !== null && dfa.accepts[run(dfa, text)] === true;
}
