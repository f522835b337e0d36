/**
 * Places in a grammar as states: sets of threads, each made once, with the state behind each byte kept. It is the
 * deterministic automaton of the grammar, made as far as answers go; its size is bounded, old parts are forgotten.
 */
import { Cont, type Node, type Step, Threads } from './node.ts';

const mostStates = 2000;

export class State {
  readonly steps: readonly Step[];
  readonly conts: readonly Cont[];
  /** What was read so far may be all. */
  readonly accepts: boolean;
  /** By byte: the state behind it, null where the byte is not allowed, undefined where nobody has asked. */
  readonly next: (State | null | undefined)[] = [];
  /** The tokens that are allowed here, once worked out: by `Masks`. */
  mask: Uint32Array | Int32Array | null = null;
  /** Nodes of the trie where a token goes on behind the frame: by `Masks`. */
  leaves: Int32Array | null = null;

  constructor(steps: readonly Step[], conts: readonly Cont[], accepts: boolean) {
    this.steps = steps;
    this.conts = conts;
    this.accepts = accepts;
  }
}

export class Automaton {
  /** The end of the answer. */
  #root = new Cont(null, null, 0);
  #states = new Map<string, State>();
  readonly #onForget: () => void;

  /** `onForget`: states made so far will not be met again, what was kept of them is of no use. */
  constructor(onForget: () => void) {
    this.#onForget = onForget;
  }

  get root(): Cont {
    return this.#root;
  }

  start(node: Node): State {
    const threads = new Threads();
    node.expand(this.#root, threads);
    return this.intern(threads) as State;
  }

  /** The state behind a byte, or null. */
  step(state: State, byte: number): State | null {
    const known = state.next[byte];
    if (known !== undefined) return known;
    const threads = new Threads();
    const { steps, conts } = state;
    for (let i = 0; i < steps.length; i++) {
      const step = steps[i] as Step;
      if (byte >= step.lo && byte <= step.hi) step.next.expand(conts[i] as Cont, threads);
    }
    const next = this.intern(threads);
    state.next[byte] = next;
    return next;
  }

  /** The state behind a continuation alone. */
  after(cont: Cont): State | null {
    const threads = new Threads();
    cont.pop(threads);
    return this.intern(threads);
  }

  /** The one state with these threads; null without any. */
  intern(threads: Threads): State | null {
    const { steps, conts, accepts } = threads;
    if (steps.length === 0 && !accepts) return null;
    const order = steps.map((_, i) => i);
    if (order.length > 1) order.sort((a, b) => compare(threads, a, b));
    let key = accepts ? '!' : '';
    for (const i of order) key += `${(steps[i] as Step).id},${(conts[i] as Cont).id};`;
    let state = this.#states.get(key);
    if (state === undefined) {
      if (this.#states.size >= mostStates) this.#forget();
      const sorted = order.map((i) => steps[i] as Step);
      state = new State(
        sorted,
        order.map((i) => conts[i] as Cont),
        accepts,
      );
      this.#states.set(key, state);
    }
    return state;
  }

  #forget(): void {
    this.#states = new Map();
    this.#root = new Cont(null, null, 0);
    this.#onForget();
  }
}

function compare({ steps, conts }: Threads, a: number, b: number): number {
  return (steps[a] as Step).id - (steps[b] as Step).id || (conts[a] as Cont).id - (conts[b] as Cont).id;
}
