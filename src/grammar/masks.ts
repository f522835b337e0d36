/**
 * Which tokens may come next. A walk over the trie of the vocabulary answers it byte by byte; what it finds is kept at
 * the state. Where many bytes are possible, as in a string, the walk is done once for the place inside its frame (one
 * value), whatever stands around it: in all grammars of the vocabulary. Only tokens that reach beyond the frame are
 * then looked at in the place itself.
 */
import { Automaton, type State } from './automaton.ts';
import { type Cont, deepestNesting, type Step, Threads } from './node.ts';
import type { Vocabulary } from './vocabulary.ts';

/** Masks as bits; shorter lists of ids are kept with their states. */
const mostDense = 256;
const mostListed = 256;
/** A state with fewer possible bytes is walked where it stands. */
const narrow = 12;
/** More than any value needs above the place where it begins. */
export const mostHeight = 64;

/** Places inside frames, shared by the grammars of a vocabulary. */
class FrameMasks {
  readonly automaton = new Automaton(() => {});
  readonly dense = new DenseMasks();
}

/** Bounds how many masks are kept as bits. */
class DenseMasks {
  #states: State[] = [];

  add(state: State): void {
    if (this.#states.length >= mostDense) this.clear();
    this.#states.push(state);
  }

  clear(): void {
    for (const state of this.#states) {
      state.mask = null;
      state.leaves = null;
    }
    this.#states = [];
  }
}

const frameMasks = new WeakMap<Vocabulary, FrameMasks>();

export class Masks {
  readonly vocabulary: Vocabulary;
  readonly automaton: Automaton;
  readonly #dense = new DenseMasks();
  readonly #frames: FrameMasks;
  readonly #path: State[] = [];

  constructor(vocabulary: Vocabulary) {
    this.vocabulary = vocabulary;
    this.automaton = new Automaton(() => this.#dense.clear());
    const shared = frameMasks.get(vocabulary) ?? new FrameMasks();
    frameMasks.set(vocabulary, shared);
    this.#frames = shared;
  }

  /** Writes the tokens of text that are allowed in a state. */
  write(state: State, out: Uint32Array): void {
    if (state.mask === null) this.#fill(state, out);
    else if (state.mask instanceof Uint32Array) out.set(state.mask);
    else {
      out.fill(0);
      setBits(out, state.mask);
    }
  }

  #fill(state: State, out: Uint32Array): void {
    out.fill(0);
    if (isNarrow(state)) this.#walk({ automaton: this.automaton, from: 0, state, out });
    else for (const group of groupsOf(state)) this.#fillGroup(group, out);
    keep(state, out, this.#dense);
  }

  #fillGroup({ frame, steps, conts }: Group, out: Uint32Array): void {
    const { longest } = this.vocabulary;
    const threads = new Threads();
    if (frame.depth + longest + mostHeight > deepestNesting) {
      for (let i = 0; i < steps.length; i++) threads.add(steps[i] as Step, conts[i] as Cont);
      const state = this.automaton.intern(threads);
      if (state !== null) this.#walk({ automaton: this.automaton, from: 0, state, out });
      return;
    }
    const { automaton } = this.#frames;
    const { root } = automaton;
    for (let i = 0; i < steps.length; i++) {
      const step = steps[i] as Step;
      const clamped = step.clamp === null ? step : step.clamp(longest + 1);
      threads.add(clamped, moved(conts[i] as Cont, frame, root));
    }
    const inner = automaton.intern(threads);
    if (inner === null) return;
    const behind = frame.next === null ? null : this.automaton.after(frame);
    const leaves = this.#writeInner(inner, out);
    if (behind === null) return;
    for (const from of leaves) this.#walk({ automaton: this.automaton, from, state: behind, out });
  }

  /** The tokens that stay in the frame or end with it; returns where tokens reach beyond it. */
  #writeInner(inner: State, out: Uint32Array): Int32Array {
    if (inner.mask === null || inner.leaves === null) {
      const own = new Uint32Array(this.vocabulary.words);
      const leaves: number[] = [];
      this.#walk({ automaton: this.#frames.automaton, from: 0, state: inner, out: own, leaves });
      inner.leaves = Int32Array.from(leaves);
      keep(inner, own, this.#frames.dense);
    }
    const mask = inner.mask as Uint32Array | Int32Array;
    if (mask instanceof Int32Array) setBits(out, mask);
    else for (let i = 0; i < mask.length; i++) out[i] = (out[i] as number) | (mask[i] as number);
    return inner.leaves as Int32Array;
  }

  /** Sets the bits of all tokens below the node `from` that `state` reads. */
  #walk({ automaton, from, state, out, leaves }: Walk): void {
    const { byte, depth, end, token, twin } = this.vocabulary;
    const path = this.#path;
    const last = end[from] as number;
    path[depth[from] as number] = state;
    for (let node = from + 1; node < last; ) {
      const level = depth[node] as number;
      const before = path[level - 1] as State;
      const read = byte[node] as number;
      let next = before.next[read];
      if (next === undefined) next = automaton.step(before, read);
      if (next === null) {
        node = end[node] as number;
        continue;
      }
      for (let id = token[node] as number; id >= 0; id = twin[id] as number)
        out[id >>> 5] = (out[id >>> 5] as number) | (1 << (id & 31));
      if (leaves !== undefined && next.accepts && (end[node] as number) > node + 1) leaves.push(node);
      path[level] = next;
      node++;
    }
  }
}

interface Walk {
  readonly automaton: Automaton;
  readonly from: number;
  readonly state: State;
  readonly out: Uint32Array;
  readonly leaves?: number[];
}

/** The threads of a state inside one frame. */
interface Group {
  readonly frame: Cont;
  readonly steps: Step[];
  readonly conts: Cont[];
}

function groupsOf({ steps, conts }: State): Iterable<Group> {
  const groups = new Map<Cont, Group>();
  for (let i = 0; i < steps.length; i++) {
    const cont = conts[i] as Cont;
    let frame = cont;
    while (!frame.isFrame) frame = frame.next as Cont;
    const group = groups.get(frame) ?? { frame, steps: [], conts: [] };
    group.steps.push(steps[i] as Step);
    group.conts.push(cont);
    groups.set(frame, group);
  }
  return groups.values();
}

/** The same continuation up to `frame`, with `root` in place of it. */
function moved(cont: Cont, frame: Cont, root: Cont): Cont {
  if (cont === frame) return root;
  return moved(cont.next as Cont, frame, root).push(cont.node as NonNullable<Cont['node']>);
}

function isNarrow({ steps }: State): boolean {
  let width = 0;
  for (const { lo, hi } of steps) width += hi - lo + 1;
  return width <= narrow;
}

function keep(state: State, mask: Uint32Array, dense: DenseMasks): void {
  const ids = listed(mask);
  if (ids === null) {
    dense.add(state);
    state.mask = mask.slice();
  } else state.mask = ids;
}

/** The ids of a mask, null where there are many. */
function listed(mask: Uint32Array): Int32Array | null {
  const ids: number[] = [];
  for (let word = 0; word < mask.length; word++) {
    let bits = mask[word] as number;
    while (bits !== 0) {
      const bit = 31 - Math.clz32(bits & -bits);
      if (ids.length >= mostListed) return null;
      ids.push(word * 32 + bit);
      bits &= bits - 1;
    }
  }
  return Int32Array.from(ids);
}

function setBits(out: Uint32Array, ids: Int32Array): void {
  for (const id of ids) out[id >>> 5] = (out[id >>> 5] as number) | (1 << (id & 31));
}
