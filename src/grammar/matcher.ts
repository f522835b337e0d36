/** Matchers: a state of the automaton, moved token by token. */
import type { Automaton, State } from './automaton.ts';
import { Masks } from './masks.ts';
import type { Node, Step } from './node.ts';
import type { Grammar, Matcher } from './types.ts';
import type { Vocabulary } from './vocabulary.ts';

/** The longest text that is settled at once, in bytes. */
const longestForced = 4096;

/** The grammar that begins with a node. */
export class NodeGrammar implements Grammar {
  readonly #node: Node;
  readonly #masks = new WeakMap<Vocabulary, Masks>();

  constructor(node: Node) {
    this.#node = node;
  }

  matcher(vocabulary: Vocabulary): Matcher {
    const masks = this.#masks.get(vocabulary) ?? new Masks(vocabulary);
    this.#masks.set(vocabulary, masks);
    return new StateMatcher(masks, masks.automaton.start(this.#node));
  }
}

class StateMatcher implements Matcher {
  readonly #masks: Masks;
  /** null behind a stop token. */
  #state: State | null;

  constructor(masks: Masks, state: State | null) {
    this.#masks = masks;
    this.#state = state;
  }

  mask(out: Uint32Array): void {
    if (this.#state === null) {
      out.fill(0);
      return;
    }
    this.#masks.write(this.#state, out);
    if (!this.#state.accepts) return;
    for (const id of this.#masks.vocabulary.stopIds)
      out[id >>> 5] = (out[id >>> 5] as number) | (1 << (id & 31));
  }

  accept(id: number): boolean {
    const { automaton, vocabulary } = this.#masks;
    if (this.#state === null) return false;
    if (vocabulary.isStop(id)) {
      if (!this.#state.accepts) return false;
      this.#state = null;
      return true;
    }
    const bytes = vocabulary.bytes(id);
    const state = bytes === null ? null : read(automaton, this.#state, bytes);
    if (state === null) return false;
    this.#state = state;
    return true;
  }

  clone(): Matcher {
    return new StateMatcher(this.#masks, this.#state);
  }

  forced(max: number): number[] {
    const { automaton, vocabulary } = this.#masks;
    const bytes: number[] = [];
    let state = this.#state;
    while (state !== null && bytes.length < longestForced) {
      const byte = onlyByte(state);
      if (byte < 0) break;
      bytes.push(byte);
      state = automaton.step(state, byte);
    }
    const ids: number[] = [];
    if (bytes.length === 0 || this.#state === null) return ids;
    let at = this.#state;
    for (const id of Array.from(vocabulary.encode(wholeText(bytes)))) {
      const text = vocabulary.bytes(id);
      const next = text === null ? null : read(automaton, at, text);
      if (next === null || ids.length >= max) break;
      ids.push(id);
      at = next;
    }
    return ids;
  }

  get ended(): boolean {
    return this.#state === null || this.#state.steps.length === 0;
  }
}

function read(automaton: Automaton, from: State, bytes: Uint8Array): State | null {
  let state: State | null = from;
  for (let i = 0; i < bytes.length && state !== null; i++) state = automaton.step(state, bytes[i] as number);
  return state;
}

/** The byte that has to come, or -1. */
function onlyByte({ steps, accepts }: State): number {
  const byte = steps[0]?.lo ?? -1;
  const only = (step: Step): boolean => step.lo === byte && step.hi === byte;
  return !accepts && steps.every(only) ? byte : -1;
}

/** The bytes as text, without the beginning of a character at the end. */
function wholeText(bytes: readonly number[]): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(bytes), { stream: true });
}
