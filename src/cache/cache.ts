/**
 * Who owns memory. A request asks with its whole prompt and gets a lease: the longest prefix that can be restored, a page
 * table to grow, and the right to publish what it computes. Device memory is never touched here; ids go out, copies are asked for.
 *
 * What goes first when the budget is full: snapshots, by age, those in the middle of a line before the others; pages go with the
 * last snapshot that needs them. What a lease rests on stays.
 */
import type { ReuseLimit } from '../engine/index.ts';
import { assert, present } from '../util/index.ts';
import { CacheMemory, type Kind, type MemoryLimits } from './memory.ts';
import { type Match, type Node, PrefixTree, type Snapshot } from './tree.ts';

export interface CacheOptions extends MemoryLimits {
  readonly pageTokens: number;
}

export interface Reuse {
  readonly cachedLen: number;
  readonly matchedLen: number;
  /** Snapshot to restore at cachedLen; null when nothing is reused. */
  readonly snapshot: number | null;
  readonly limit: ReuseLimit;
}

export interface CacheStats {
  readonly budgetBytes: number;
  readonly usedBytes: number;
  readonly pages: number;
  readonly snapshots: number;
  readonly evictedPages: number;
  readonly evictedSnapshots: number;
}

/** A snapshot that deeper ones make less useful counts as this much older, in acquisitions. */
const dominatedHandicap = 1000;
/**
 * The deepest ones of a line are where its conversation goes on: behind the answer if it comes back as it was generated, behind
 * the last message if it does not, behind the one before it if that message was edited.
 */
const resumePoints = 3;
/** More than any clock. */
const pinnedBonus = 2 ** 50;

export class PrefixCache {
  readonly #options: CacheOptions;
  readonly #memory: CacheMemory;
  readonly #tree: PrefixTree;
  readonly #leases = new Set<Lease>();
  #clock = 0;
  #evictedPages = 0;
  #evictedSnapshots = 0;

  constructor(options: CacheOptions) {
    this.#options = options;
    this.#memory = new CacheMemory(options);
    this.#tree = new PrefixTree(this.#memory, options.pageTokens);
  }

  /** Pages that fit the budget when nothing else is in it. */
  get maxPages(): number {
    return Math.min(this.#options.maxPages, Math.floor(this.#options.budgetBytes / this.#options.pageBytes));
  }

  /** A lease on the deepest restorable prefix shorter than the prompt; null when not even its first page can be had. */
  acquire(ids: Int32Array): Lease | null {
    this.#clock++;
    const match = this.#tree.match(ids);
    const found = this.#deepestSnapshot(match, Math.min(match.len, ids.length - 1));
    const cachedLen = found?.position ?? 0;
    const reuse: Reuse = {
      cachedLen,
      matchedLen: match.len,
      snapshot: found?.snapshot.id ?? null,
      limit: limitOf(cachedLen, match.len, ids.length),
    };
    if (found !== null) found.snapshot.lastUse = this.#clock;
    for (const node of match.path) node.lastUse = this.#clock;
    const lease = new Lease(this.#host(), reuse, ids.subarray(0, cachedLen));
    // Only what the lease rests on is pinned: what lies beyond may still go.
    const rest = found === null ? null : this.#tree.splitAt(found.node, cachedLen);
    if (!lease.begin(rest)) {
      lease.release();
      return null;
    }
    this.#leases.add(lease);
    return lease;
  }

  takeDiscards(): { pages: Int32Array; snapshots: Int32Array } {
    return this.#memory.takeDiscards();
  }

  stats(): CacheStats {
    return {
      budgetBytes: this.#options.budgetBytes,
      usedBytes: this.#memory.usedBytes,
      pages: this.#memory.pages.used,
      snapshots: this.#memory.snapshots.used,
      evictedPages: this.#evictedPages,
      evictedSnapshots: this.#evictedSnapshots,
    };
  }

  /** Drops all snapshots, and all pages that no lease holds. */
  clear(): void {
    while (this.#evictOne());
  }

  /** Verifies all invariants; throws when one is broken. */
  check(): void {
    const pages = new Map<number, number>();
    const snapshots = new Map<number, number>();
    this.#tree.check(pages, snapshots);
    for (const lease of this.#leases) lease.count(pages, snapshots);
    this.#memory.pages.check(pages, 'page');
    this.#memory.snapshots.check(snapshots, 'snapshot');
    this.#memory.checkBudget();
  }

  #deepestSnapshot({ path }: Match, limit: number): Found | null {
    for (let i = path.length - 1; i >= 0; i--) {
      const node = present(path[i], 'node');
      let best: Found | null = null;
      for (const [position, snapshot] of node.snapshots)
        if (position <= limit && position > (best?.position ?? 0)) best = { node, position, snapshot };
      if (best !== null) return best;
    }
    return null;
  }

  #host(): LeaseHost {
    return {
      pageTokens: this.#options.pageTokens,
      tree: this.#tree,
      memory: this.#memory,
      take: (kind) => this.#take(kind),
      publish: (lease, len, snapshot) => this.#publish(lease, len, snapshot),
      forget: (lease) => {
        this.#leases.delete(lease);
      },
    };
  }

  #take(kind: Kind): number | null {
    while (true) {
      const id = this.#memory.take(kind);
      if (id !== null || !this.#evictOne()) return id;
    }
  }

  #publish(lease: Lease, len: number, snapshot: number | null): void {
    const node = this.#tree.insert(lease.tokens, len, lease.pages, this.#clock);
    const known = node.snapshots.get(len);
    if (known !== undefined) {
      known.lastUse = this.#clock;
      if (snapshot !== null) this.#memory.snapshots.unref(snapshot);
    } else if (snapshot !== null) node.snapshots.set(len, { id: snapshot, lastUse: this.#clock });
    else this.#evictedPages += this.#tree.trim(node);
  }

  /** Lets the least useful snapshot go, and the pages that only it could bring back. False when there is none. */
  #evictOne(): boolean {
    let worst: { node: Node; position: number; age: number } | null = null;
    for (const line of linesOf(this.#tree)) {
      for (const [position, snapshot] of line.node.snapshots) {
        const age = usefulness(line, position, snapshot);
        if (worst === null || age < worst.age) worst = { node: line.node, position, age };
      }
    }
    if (worst === null) return false;
    const { node, position } = worst;
    this.#memory.snapshots.unref(present(node.snapshots.get(position), 'snapshot').id);
    node.snapshots.delete(position);
    this.#evictedSnapshots++;
    this.#evictedPages += this.#tree.trim(node);
    return true;
  }
}

interface Found {
  readonly node: Node;
  readonly position: number;
  readonly snapshot: Snapshot;
}

/** A node and the snapshots on its line: between the root and it, and below it where most are. */
interface OnLine {
  readonly node: Node;
  readonly above: number;
  below: number;
}

function linesOf(tree: PrefixTree): OnLine[] {
  const byNode = new Map<Node, OnLine>();
  for (const node of tree.nodes()) {
    const parent = node.parent === null ? undefined : byNode.get(node.parent);
    const above = parent === undefined ? 0 : parent.above + parent.node.snapshots.size;
    byNode.set(node, { node, above, below: 0 });
  }
  const lines = [...byNode.values()];
  for (const { node, below } of lines.reverse()) {
    const parent = node.parent === null ? undefined : byNode.get(node.parent);
    if (parent !== undefined) parent.below = Math.max(parent.below, below + node.snapshots.size);
  }
  return lines;
}

/**
 * The lower, the sooner it goes. Branch points and the first snapshot of a line, behind the system block, are as young as what
 * passes through them. What a lease rests on goes last: the lease itself was restored from it and keeps its pages.
 */
function usefulness({ node, above, below }: OnLine, position: number, snapshot: Snapshot): number {
  const pinned = node.pins > 0 ? pinnedBonus : 0;
  const others = [...node.snapshots.keys()];
  const isBranch = position === node.end && node.children.size > 1;
  const isFirst = above === 0 && others.every((other) => other >= position);
  if (isBranch || isFirst) return pinned + Math.max(snapshot.lastUse, node.lastUse);
  const deeper = below + others.filter((other) => other > position).length;
  return pinned + snapshot.lastUse - (deeper < resumePoints ? 0 : dominatedHandicap);
}

function limitOf(cachedLen: number, matchedLen: number, promptLen: number): ReuseLimit {
  if (matchedLen === 0) return 'cold';
  if (cachedLen < Math.min(matchedLen, promptLen - 1)) return 'no-snapshot';
  return matchedLen >= promptLen - 1 ? 'whole-prompt' : 'tokens-differ';
}

/** What a lease needs of its cache. */
interface LeaseHost {
  readonly pageTokens: number;
  readonly tree: PrefixTree;
  readonly memory: CacheMemory;
  take(kind: Kind): number | null;
  publish(lease: Lease, len: number, snapshot: number | null): void;
  forget(lease: Lease): void;
}

/**
 * One sequence's hold on memory. Its pages: | shared with the tree | own: the page of token cachedLen - 1, then new ones |.
 * The page of the last reused token is always a copy: the MTP layer rewrites that token's slot for the token that follows.
 */
export class Lease {
  readonly reuse: Reuse;
  /** Page copies to be made before the first forward; `copiesDone` ends the hold on their sources. */
  copies: readonly { readonly src: number; readonly dst: number }[] = [];
  readonly #host: LeaseHost;
  #tokens: Int32Array;
  #len: number;
  #pages = new Int32Array(16);
  #pageCount = 0;
  #pinned: Node | null = null;
  #reserved: number | null = null;
  #released = false;

  constructor(host: LeaseHost, reuse: Reuse, prefix: Int32Array) {
    this.#host = host;
    this.reuse = reuse;
    this.#tokens = new Int32Array(Math.max(64, 2 * prefix.length));
    this.#tokens.set(prefix);
    this.#len = prefix.length;
  }

  /** Page ids by page index. The array is replaced when the table grows. */
  get pages(): Int32Array {
    return this.#pages.subarray(0, this.#pageCount);
  }

  /** Tokens committed so far. */
  get tokens(): Int32Array {
    return this.#tokens.subarray(0, this.#len);
  }

  /** Called once by the cache: takes hold of the reused prefix. */
  begin(rest: Node | null): boolean {
    const { cachedLen } = this.reuse;
    const { tree, memory, pageTokens } = this.#host;
    if (cachedLen === 0) return this.ensure(1);
    const last = Math.floor((cachedLen - 1) / pageTokens);
    const used: Node[] = [];
    for (let node = rest; node?.parent; node = node.parent) used.unshift(node);
    const shared = Array.from({ length: last + 1 }, (_, index) => tree.pageOf(used, index, cachedLen));
    for (const page of shared) memory.pages.ref(page);
    for (const page of shared.slice(0, last)) this.#addPage(page);
    this.#pinned = rest;
    for (let node = this.#pinned; node !== null; node = node.parent) node.pins++;
    const src = present(shared[last], 'last shared page');
    const dst = this.#host.take('page');
    if (dst === null) {
      memory.pages.unref(src);
      return false;
    }
    this.#addPage(dst);
    this.copies = [{ src, dst }];
    return true;
  }

  copiesDone(): void {
    for (const { src } of this.copies) this.#host.memory.pages.unref(src);
    this.copies = [];
  }

  /** Pages for that many tokens; false when the memory for them can not be had. */
  ensure(tokens: number): boolean {
    this.#assertLive();
    while (this.#pageCount * this.#host.pageTokens < tokens) {
      const page = this.#host.take('page');
      if (page === null) return false;
      this.#addPage(page);
    }
    return true;
  }

  /** Tokens whose pages and state are computed now. */
  append(ids: Int32Array): void {
    this.#assertLive();
    const len = this.#len + ids.length;
    assert(len <= this.#pageCount * this.#host.pageTokens, `${len} tokens have pages`);
    if (len > this.#tokens.length) {
      const grown = new Int32Array(2 * len);
      grown.set(this.tokens);
      this.#tokens = grown;
    }
    this.#tokens.set(ids, this.#len);
    this.#len = len;
  }

  /** A snapshot to be saved and then published; null when the memory for one can not be had. */
  reserveSnapshot(): number | null {
    this.#assertLive();
    assert(this.#reserved === null, 'the snapshot before was published');
    this.#reserved = this.#host.take('snapshot');
    return this.#reserved;
  }

  /** Others may reuse the first `len` tokens from now on, restored from the snapshot reserved before. */
  publish(len: number, snapshot: number | null): void {
    this.#assertLive();
    assert(len > 0 && len <= this.#len, `${len} of ${this.#len} tokens are published`);
    assert(snapshot === this.#reserved, 'the reserved snapshot is published');
    this.#reserved = null;
    this.#host.publish(this, len, snapshot);
  }

  /** Ends the hold. Idempotent. */
  release(): void {
    if (this.#released) return;
    this.copiesDone();
    this.#released = true;
    const { memory, tree } = this.#host;
    for (const page of this.pages) memory.pages.unref(page);
    if (this.#reserved !== null) memory.snapshots.unref(this.#reserved);
    for (let node = this.#pinned; node !== null; node = node.parent) node.pins--;
    if (this.#pinned !== null) tree.trim(this.#pinned);
    this.#host.forget(this);
  }

  /** Adds this lease's references to the counts of `check`. */
  count(pages: Map<number, number>, snapshots: Map<number, number>): void {
    for (const page of [...this.pages, ...this.copies.map(({ src }) => src)])
      pages.set(page, (pages.get(page) ?? 0) + 1);
    if (this.#reserved !== null) snapshots.set(this.#reserved, (snapshots.get(this.#reserved) ?? 0) + 1);
  }

  #assertLive(): void {
    assert(!this.#released, 'the lease is not released');
  }

  #addPage(page: number): void {
    if (this.#pageCount === this.#pages.length) {
      const grown = new Int32Array(2 * this.#pages.length);
      grown.set(this.#pages);
      this.#pages = grown;
    }
    this.#pages[this.#pageCount++] = page;
  }
}
