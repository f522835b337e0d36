/**
 * A grammar as a graph of nodes that read bytes, and the stack of what follows. A place in a grammar is a thread: the
 * next byte to read, and a continuation. Continuations are shared and immutable, so a place can be kept for nothing.
 */

let nodeCount = 0;
let contCount = 0;

/** The most frames (nested values) that an answer opens; parsers stop at 256. */
export const deepestNesting = 240;

/** Threads that one state keeps. Further ways to go on are dropped: what is written stays right. */
const mostThreads = 256;

/** What follows: a node and what follows that, down to the end of the answer. */
export class Cont {
  readonly id = contCount++;
  readonly node: Node | null;
  readonly next: Cont | null;
  /** Frames around this place. */
  readonly depth: number;
  #pushed: Map<number, Cont> | null = null;
  #framed: Cont | null = null;

  constructor(node: Node | null, next: Cont | null, depth: number) {
    this.node = node;
    this.next = next;
    this.depth = depth;
  }

  /** A border between a value and what stands around it: masks are worked out up to it. */
  get isFrame(): boolean {
    return this.node === null;
  }

  push(node: Node): Cont {
    this.#pushed ??= new Map();
    let cont = this.#pushed.get(node.id);
    if (cont === undefined) {
      cont = new Cont(node, this, this.depth);
      this.#pushed.set(node.id, cont);
    }
    return cont;
  }

  pushFrame(): Cont {
    this.#framed ??= new Cont(null, this, this.depth + 1);
    return this.#framed;
  }

  /** Goes on with what follows. */
  pop(into: Threads): void {
    if (this.next === null) into.accepts = true;
    else if (this.node === null) this.next.pop(into);
    else this.node.expand(this.next, into);
  }
}

/** The threads of a state while it is made. */
export class Threads {
  readonly steps: Step[] = [];
  readonly conts: Cont[] = [];
  /** The answer may end here. */
  accepts = false;

  add(step: Step, cont: Cont): void {
    for (let i = 0; i < this.steps.length; i++) if (this.steps[i] === step && this.conts[i] === cont) return;
    if (this.steps.length >= mostThreads) return;
    this.steps.push(step);
    this.conts.push(cont);
  }
}

/** Reads some text, then goes on with a continuation. Every node can be completed. */
export abstract class Node {
  readonly id = nodeCount++;

  /** Adds the threads of this node with `cont` behind it. */
  abstract expand(cont: Cont, into: Threads): void;
}

/** Reads one byte from `lo` to `hi`, then `next`. */
export class Step extends Node {
  readonly lo: number;
  readonly hi: number;
  readonly next: Node;
  /** The same step with counters that no token can tell from these; null: there are none. */
  readonly clamp: ((horizon: number) => Step) | null;

  constructor(range: readonly [number, number], next: Node, clamp: Step['clamp'] = null) {
    super();
    this.lo = range[0];
    this.hi = range[1];
    this.next = next;
    this.clamp = clamp;
  }

  expand(cont: Cont, into: Threads): void {
    into.add(this, cont);
  }
}

class Empty extends Node {
  expand(cont: Cont, into: Threads): void {
    cont.pop(into);
  }
}

/** Reads nothing. */
export const empty: Node = new Empty();

class Alt extends Node {
  readonly #options: readonly Node[];

  constructor(options: readonly Node[]) {
    super();
    this.#options = options;
  }

  expand(cont: Cont, into: Threads): void {
    for (const option of this.#options) option.expand(cont, into);
  }
}

class Seq extends Node {
  readonly #first: Node;
  readonly #rest: Node;

  constructor(first: Node, rest: Node) {
    super();
    this.#first = first;
    this.#rest = rest;
  }

  expand(cont: Cont, into: Threads): void {
    this.#first.expand(cont.push(this.#rest), into);
  }
}

class Lazy extends Node {
  #make: (() => Node) | null;
  #node: Node | null = null;

  constructor(make: () => Node) {
    super();
    this.#make = make;
  }

  expand(cont: Cont, into: Threads): void {
    if (this.#make !== null) {
      this.#node = this.#make();
      this.#make = null;
    }
    this.#node?.expand(cont, into);
  }
}

/** One value. It needs room for `height` frames. */
class Frame extends Node {
  readonly #body: Node;
  readonly #height: number;

  constructor(body: Node, height: number) {
    super();
    this.#body = body;
    this.#height = height;
  }

  expand(cont: Cont, into: Threads): void {
    if (cont.depth + this.#height <= deepestNesting) this.#body.expand(cont.pushFrame(), into);
  }
}

class Guard extends Node {
  readonly #node: Node;
  readonly #height: number;

  constructor(node: Node, height: number) {
    super();
    this.#node = node;
    this.#height = height;
  }

  expand(cont: Cont, into: Threads): void {
    if (cont.depth + this.#height <= deepestNesting) this.#node.expand(cont, into);
  }
}

/** Any of the options; none is an error of the caller. */
export function alt(options: readonly Node[]): Node {
  return options.length === 1 ? (options[0] as Node) : new Alt(options);
}

export function seq(...parts: readonly Node[]): Node {
  const real = parts.filter((part) => part !== empty);
  return real.length === 0 ? empty : real.reduceRight((rest, part) => new Seq(part, rest));
}

export function lazy(make: () => Node): Node {
  return new Lazy(make);
}

/** A value in a frame of its own, itself counted in `height`. */
export function frame(body: Node, height: number): Node {
  return new Frame(body, height);
}

/** A way that is open only where `height` frames have room. */
export function guard(node: Node, height: number): Node {
  return height <= 0 ? node : new Guard(node, height);
}

/** Reads these bytes, then `next`. */
export function literal(text: string, next: Node = empty): Node {
  return [...Buffer.from(text)].reduceRight((rest: Node, byte) => new Step([byte, byte], rest), next);
}

/** A text, what follows it, and the frames that needs. */
export interface Branch {
  readonly text: string;
  readonly next: Node;
  readonly height: number;
}

/** One of several texts, each with its own sequel; shared beginnings are read once. */
export function branches(list: readonly Branch[]): Node {
  const entries = list.map(({ text, next, height }) => ({ bytes: Buffer.from(text), next, height }));
  entries.sort((a, b) => Buffer.compare(a.bytes, b.bytes));
  return branchesFrom(entries, 0);
}

interface Entry {
  readonly bytes: Buffer;
  readonly next: Node;
  readonly height: number;
}

/** `entries`: sorted, all the same up to `at`. */
function branchesFrom(entries: readonly Entry[], at: number): Node {
  const first = entries[0] as Entry;
  if (entries.length === 1) {
    const tail = [...first.bytes.subarray(at)];
    return tail.reduceRight((rest: Node, byte) => new Step([byte, byte], rest), first.next);
  }
  const options: Node[] = [];
  for (let i = 0; i < entries.length; ) {
    const entry = entries[i] as Entry;
    if (entry.bytes.length === at) {
      options.push(guard(entry.next, entry.height));
      i++;
      continue;
    }
    const byte = entry.bytes[at] as number;
    let j = i + 1;
    while (j < entries.length && entries[j]?.bytes[at] === byte) j++;
    const group = entries.slice(i, j);
    const height = Math.min(...group.map((one) => one.height));
    options.push(guard(new Step([byte, byte], lazyBranches(group, at + 1)), height));
    i = j;
  }
  return alt(options);
}

function lazyBranches(entries: readonly Entry[], at: number): Node {
  return entries.length === 1 ? branchesFrom(entries, at) : lazy(() => branchesFrom(entries, at));
}
