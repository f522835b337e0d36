/** From patterns to automata: Thompson's construction, then sets of its states. */
import type { CharSet } from './char-set.ts';
import { type Dfa, explore } from './dfa.ts';
import { anyText, type Pattern, PatternError, parsePattern } from './regex.ts';

const mostNodes = 20_000;
/** States of the nondeterministic automaton that are looked at, all sets together. */
const mostWork = 2_000_000;

type Assertion = 'start' | 'end';

interface NfaState {
  readonly set: CharSet | null;
  readonly assertion: Assertion | null;
  readonly next: number[];
}

/** 'search': the pattern matches anywhere, as in JSON Schema. 'whole': it matches the whole text. */
export type MatchKind = 'search' | 'whole';

const cache = new Map<string, Dfa | null>();
const mostCached = 256;

/** The texts that a pattern matches; null when there is none. Throws PatternError. */
export function patternDfa(source: string, kind: MatchKind): Dfa | null {
  const key = `${kind}:${source}`;
  const known = cache.get(key);
  if (known !== undefined) return known;
  const pattern = parsePattern(source);
  const around: Pattern = kind === 'whole' ? pattern : { kind: 'seq', parts: [anyText, pattern, anyText] };
  const dfa = new Nfa(around).toDfa();
  if (cache.size >= mostCached) cache.clear();
  cache.set(key, dfa);
  return dfa;
}

interface StateSet {
  readonly states: readonly number[];
  readonly atStart: boolean;
}

class Nfa {
  readonly #states: NfaState[] = [];
  readonly #start: number;
  readonly #end: number;
  #work = 0;

  constructor(pattern: Pattern) {
    this.#end = this.#add(null, []);
    this.#start = this.#build(pattern, this.#end);
  }

  toDfa(): Dfa | null {
    const start = { states: this.#closure([this.#start], { start: true, end: false }), atStart: true };
    return explore<StateSet>({
      start,
      key: ({ states, atStart }) => `${atStart}:${states.join(',')}`,
      accepts: ({ states, atStart }) =>
        this.#closure(states, { start: atStart, end: true }).includes(this.#end),
      edges: ({ states }) => this.#edges(states),
    });
  }

  #add(set: CharSet | null, next: number[], assertion: Assertion | null = null): number {
    if (this.#states.length >= mostNodes) throw new PatternError(`needs more than ${mostNodes} nodes`);
    return this.#states.push({ set, assertion, next }) - 1;
  }

  /** The state where `pattern` begins when `next` follows it. */
  #build(pattern: Pattern, next: number): number {
    switch (pattern.kind) {
      case 'set':
        return this.#add(pattern.set, [next]);
      case 'seq':
        return pattern.parts.reduceRight((after, part) => this.#build(part, after), next);
      case 'alt':
        return this.#add(
          null,
          pattern.options.map((option) => this.#build(option, next)),
        );
      case 'repeat':
        return this.#repeat(pattern, next);
      default:
        return this.#add(null, [next], pattern.kind);
    }
  }

  #repeat({ body, min, max }: Extract<Pattern, { kind: 'repeat' }>, next: number): number {
    let at = next;
    if (max === Number.POSITIVE_INFINITY) {
      const loop = this.#add(null, [next]);
      this.#states[loop]?.next.unshift(this.#build(body, loop));
      at = loop;
    } else for (let i = min; i < max; i++) at = this.#add(null, [this.#build(body, at), next]);
    for (let i = 0; i < min; i++) at = this.#build(body, at);
    return at;
  }

  #closure(from: readonly number[], at: { readonly start: boolean; readonly end: boolean }): number[] {
    const seen = new Set(from);
    const todo = [...from];
    for (let id = todo.pop(); id !== undefined; id = todo.pop()) {
      this.#spend(1);
      const { set, assertion, next } = this.#states[id] as NfaState;
      if (set !== null || (assertion !== null && !at[assertion])) continue;
      for (const to of next)
        if (!seen.has(to)) {
          seen.add(to);
          todo.push(to);
        }
    }
    const useful = [...seen].filter((id) => this.#stays(id));
    return useful.sort((a, b) => a - b);
  }

  /** Whether a state tells anything in a set that is closed. */
  #stays(id: number): boolean {
    const { set, assertion } = this.#states[id] as NfaState;
    return set !== null || assertion !== null || id === this.#end;
  }

  #edges(states: readonly number[]): { lo: number; hi: number; to: StateSet }[] {
    /** Where a target comes and goes: at a character, by +1 or -1. */
    const events: { at: number; to: number; by: number }[] = [];
    for (const id of states) {
      const { set, next } = this.#states[id] as NfaState;
      for (const [lo, hi] of set ?? [])
        events.push({ at: lo, to: next[0] as number, by: 1 }, { at: hi + 1, to: next[0] as number, by: -1 });
    }
    events.sort((a, b) => a.at - b.at);
    this.#spend(events.length);
    const active = new Map<number, number>();
    const sets = new Map<string, StateSet>();
    const out: { lo: number; hi: number; to: StateSet }[] = [];
    events.forEach(({ at, to, by }, i) => {
      const sum = (active.get(to) ?? 0) + by;
      if (sum === 0) active.delete(to);
      else active.set(to, sum);
      const next = events[i + 1]?.at ?? at;
      if (next > at && active.size > 0) out.push({ lo: at, hi: next - 1, to: this.#target(active, sets) });
    });
    return out;
  }

  #target(active: ReadonlyMap<number, number>, sets: Map<string, StateSet>): StateSet {
    const ids = [...active.keys()].sort((a, b) => a - b);
    this.#spend(ids.length);
    const key = ids.join();
    let set = sets.get(key);
    if (set === undefined) {
      set = { states: this.#closure(ids, { start: false, end: false }), atStart: false };
      sets.set(key, set);
    }
    return set;
  }

  #spend(work: number): void {
    this.#work += work;
    if (this.#work > mostWork) throw new PatternError('is too complex');
  }
}
