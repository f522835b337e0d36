/**
 * The prefix tree over token ids: it owns the pages and the snapshots of everything that was computed and may be asked again.
 *
 * A node covers the tokens [start, end) below its parent and holds a page for every page index that overlaps them. Where two
 * nodes of a path share a page index, the deeper node's page holds the tokens of both (it is the same page, or a copy made
 * when a sequence branched off inside it). Snapshots sit at token counts in (start, end].
 */
import { assert, present } from '../util/index.ts';
import type { CacheMemory } from './memory.ts';

export interface Snapshot {
  readonly id: number;
  /** Clock of its making or its last restore. */
  lastUse: number;
}

export class Node {
  parent: Node | null;
  start: number;
  tokens: Int32Array;
  /** By page index, from floor(start / pageTokens) on. */
  pages: number[];
  readonly children = new Map<number, Node>();
  snapshots = new Map<number, Snapshot>();
  /** Leases that rest on this node or on one below it. */
  pins = 0;
  lastUse = 0;

  constructor(parent: Node | null, start: number, tokens: Int32Array, pages: number[]) {
    this.parent = parent;
    this.start = start;
    this.tokens = tokens;
    this.pages = pages;
  }

  get end(): number {
    return this.start + this.tokens.length;
  }
}

export interface Match {
  /** Nodes from below the root down, each matched in at least one token. */
  readonly path: readonly Node[];
  readonly len: number;
}

export class PrefixTree {
  readonly root = new Node(null, 0, new Int32Array(0), []);
  readonly #memory: CacheMemory;
  readonly #pageTokens: number;

  constructor(memory: CacheMemory, pageTokens: number) {
    this.#memory = memory;
    this.#pageTokens = pageTokens;
  }

  match(ids: Int32Array): Match {
    const path: Node[] = [];
    let node = this.root;
    let len = 0;
    while (len < ids.length) {
      const child = node.children.get(ids[len] as number);
      if (child === undefined) break;
      path.push(child);
      const agreed = agreement(child.tokens, ids, len);
      len += agreed;
      if (agreed < child.tokens.length) break;
      node = child;
    }
    return { path, len };
  }

  /** The page of a page index for the first `len` tokens of a path. */
  pageOf(path: readonly Node[], index: number, len: number): number {
    for (let i = path.length - 1; i >= 0; i--) {
      const node = present(path[i], 'node');
      const page = node.pages[index - Math.floor(node.start / this.#pageTokens)];
      if (node.start < len && page !== undefined && index >= Math.floor(node.start / this.#pageTokens))
        return page;
    }
    throw new Error(`invariant broken: page index ${index} has no page on the path of ${len} tokens`);
  }

  /** Adds the first `len` tokens of a sequence; what is there already stays. Returns the node that ends at or covers `len`. */
  insert(tokens: Int32Array, len: number, pages: Int32Array, clock: number): Node {
    const ids = tokens.subarray(0, len);
    const matched = this.match(ids);
    let node = matched.path.at(-1) ?? this.root;
    if (matched.len < len) {
      node = this.splitAt(node, matched.len);
      node = this.#addChild(node, ids.slice(matched.len), pages);
    }
    for (let at: Node | null = node; at !== null; at = at.parent) at.lastUse = clock;
    return node;
  }

  #addChild(parent: Node, tokens: Int32Array, pages: Int32Array): Node {
    const start = parent.end;
    const from = Math.floor(start / this.#pageTokens);
    const to = Math.ceil((start + tokens.length) / this.#pageTokens);
    const own = [...pages.subarray(from, to)];
    for (const page of own) this.#memory.pages.ref(page);
    const child = new Node(parent, start, tokens, own);
    parent.children.set(tokens[0] as number, child);
    return child;
  }

  /** Cuts a node in two at a token count inside it; returns the upper part, or the node itself when it ends there. */
  splitAt(node: Node, at: number): Node {
    if (node.end === at) return node;
    const parent = present(node.parent, 'parent');
    const cut = at - node.start;
    const first = Math.floor(node.start / this.#pageTokens);
    const upperPages = node.pages.slice(0, Math.ceil(at / this.#pageTokens) - first);
    const lowerFrom = Math.floor(at / this.#pageTokens) - first;
    if (at % this.#pageTokens !== 0) this.#memory.pages.ref(present(node.pages[lowerFrom], 'page'));
    const upper = new Node(parent, node.start, node.tokens.slice(0, cut), upperPages);
    upper.pins = node.pins;
    upper.lastUse = node.lastUse;
    for (const [position, snapshot] of [...node.snapshots]) {
      if (position > at) continue;
      upper.snapshots.set(position, snapshot);
      node.snapshots.delete(position);
    }
    parent.children.set(upper.tokens[0] as number, upper);
    node.parent = upper;
    node.start = at;
    node.tokens = node.tokens.slice(cut);
    node.pages = node.pages.slice(lowerFrom);
    upper.children.set(node.tokens[0] as number, node);
    return upper;
  }

  /**
   * Frees what no snapshot can bring back: the end of a leaf beyond its last snapshot, the whole leaf without one, and so on
   * upwards. Returns the number of pages let go. Pinned nodes stay.
   */
  trim(node: Node): number {
    let freed = 0;
    for (let at: Node | null = node; at?.parent && at.children.size === 0 && at.pins === 0; ) {
      const parent: Node = at.parent;
      const last = Math.max(0, ...at.snapshots.keys());
      if (last > 0) return freed + this.#shorten(at, last);
      freed += this.#unref(at.pages);
      parent.children.delete(at.tokens[0] as number);
      at.parent = null;
      at = parent;
    }
    return freed;
  }

  #shorten(node: Node, end: number): number {
    if (end === node.end) return 0;
    const keep = Math.ceil(end / this.#pageTokens) - Math.floor(node.start / this.#pageTokens);
    const gone = node.pages.splice(keep);
    node.tokens = node.tokens.slice(0, end - node.start);
    return this.#unref(gone);
  }

  #unref(pages: readonly number[]): number {
    for (const page of pages) this.#memory.pages.unref(page);
    return pages.length;
  }

  *nodes(): Generator<Node> {
    const stack = [...this.root.children.values()];
    while (stack.length > 0) {
      const node = stack.pop() as Node;
      yield node;
      stack.push(...node.children.values());
    }
  }

  /** Shape and ownership; adds the tree's references to the two counts. */
  check(pageRefs: Map<number, number>, snapshotRefs: Map<number, number>): void {
    const count = (refs: Map<number, number>, id: number): void => void refs.set(id, (refs.get(id) ?? 0) + 1);
    for (const node of this.nodes()) {
      const parent = present(node.parent, 'parent');
      assert(
        node.tokens.length > 0 && node.start === parent.end,
        `node [${node.start}, ${node.end}) continues its parent`,
      );
      assert(
        parent.children.get(node.tokens[0] as number) === node,
        'a child is filed under its first token',
      );
      const pages = Math.ceil(node.end / this.#pageTokens) - Math.floor(node.start / this.#pageTokens);
      assert(
        node.pages.length === pages,
        `node [${node.start}, ${node.end}) has ${node.pages.length} pages, expected ${pages}`,
      );
      const childPins = [...node.children.values()].reduce((sum, child) => sum + child.pins, 0);
      assert(node.pins >= childPins, 'a pinned node has pinned ancestors');
      for (const page of node.pages) count(pageRefs, page);
      for (const [position, { id }] of node.snapshots) {
        assert(
          position > node.start && position <= node.end,
          `snapshot at ${position} lies in [${node.start}, ${node.end}]`,
        );
        count(snapshotRefs, id);
      }
    }
  }
}

function agreement(edge: Int32Array, ids: Int32Array, from: number): number {
  const limit = Math.min(edge.length, ids.length - from);
  let n = 0;
  while (n < limit && edge[n] === ids[from + n]) n++;
  return n;
}
