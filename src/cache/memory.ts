/**
 * Pages and snapshots by id under one budget of bytes.
 *
 *   used: held by the tree or a lease · idle: free, but its memory is still resident · clean: never touched, or given back
 *
 * used + idle bytes never exceed the budget: before a clean id is taken, idle ones of the other kind are given back.
 */
import { assert } from '../util/index.ts';

export type Kind = 'page' | 'snapshot';

class IdPool {
  readonly bytes: number;
  readonly #refs: Int32Array;
  readonly #idle: number[] = [];
  readonly #clean: number[];
  #used = 0;

  constructor(count: number, bytes: number) {
    this.bytes = bytes;
    this.#refs = new Int32Array(count);
    this.#clean = Array.from({ length: count }, (_, i) => count - 1 - i);
  }

  get used(): number {
    return this.#used;
  }

  get residentBytes(): number {
    return (this.#used + this.#idle.length) * this.bytes;
  }

  get hasIdle(): boolean {
    return this.#idle.length > 0;
  }

  get hasClean(): boolean {
    return this.#clean.length > 0;
  }

  take(): number | null {
    const id = this.#idle.pop() ?? this.#clean.pop();
    if (id === undefined) return null;
    this.#refs[id] = 1;
    this.#used++;
    return id;
  }

  ref(id: number): void {
    assert((this.#refs[id] ?? 0) > 0, `id ${id} is in use`);
    this.#refs[id] = (this.#refs[id] as number) + 1;
  }

  unref(id: number): void {
    assert((this.#refs[id] ?? 0) > 0, `id ${id} is in use`);
    const left = (this.#refs[id] as number) - 1;
    this.#refs[id] = left;
    if (left > 0) return;
    this.#used--;
    this.#idle.push(id);
  }

  /** An idle id whose memory may go. */
  giveBack(): number {
    const id = this.#idle.pop();
    assert(id !== undefined, 'an idle id is there');
    this.#clean.push(id);
    return id;
  }

  /** References must equal what the holders say. */
  check(expected: ReadonlyMap<number, number>, kind: Kind): void {
    this.#refs.forEach((refs, id) => {
      assert(
        refs === (expected.get(id) ?? 0),
        `${kind} ${id} has ${refs} references, its holders have ${expected.get(id) ?? 0}`,
      );
    });
    const inUse = this.#refs.reduce((sum, refs) => sum + (refs > 0 ? 1 : 0), 0);
    assert(inUse === this.#used, `${kind}s in use: ${inUse} counted, ${this.#used} noted`);
    assert(inUse + this.#idle.length + this.#clean.length === this.#refs.length, `no ${kind} is lost`);
  }
}

export interface MemoryLimits {
  readonly budgetBytes: number;
  readonly pageBytes: number;
  readonly snapshotBytes: number;
  readonly maxPages: number;
  readonly maxSnapshots: number;
}

export class CacheMemory {
  readonly limits: MemoryLimits;
  readonly pages: IdPool;
  readonly snapshots: IdPool;
  #discardedPages: number[] = [];
  #discardedSnapshots: number[] = [];

  constructor(limits: MemoryLimits) {
    this.limits = limits;
    this.pages = new IdPool(limits.maxPages, limits.pageBytes);
    this.snapshots = new IdPool(limits.maxSnapshots, limits.snapshotBytes);
  }

  get usedBytes(): number {
    return this.pages.used * this.pages.bytes + this.snapshots.used * this.snapshots.bytes;
  }

  /** An id of this kind, or null when the budget is full of things in use. */
  take(kind: Kind): number | null {
    const [own, other] = kind === 'page' ? [this.pages, this.snapshots] : [this.snapshots, this.pages];
    if (this.usedBytes + own.bytes > this.limits.budgetBytes) return null;
    if (!own.hasIdle) {
      if (!own.hasClean) return null;
      while (own.residentBytes + other.residentBytes + own.bytes > this.limits.budgetBytes) {
        if (!other.hasIdle) return null;
        const gone = other.giveBack();
        if (kind === 'page') this.#discardedSnapshots.push(gone);
        else this.#discardedPages.push(gone);
      }
    }
    const id = own.take();
    // A clean id that is taken again before the discard was carried out keeps its memory.
    if (id !== null && kind === 'page')
      this.#discardedPages = this.#discardedPages.filter((page) => page !== id);
    if (id !== null && kind === 'snapshot')
      this.#discardedSnapshots = this.#discardedSnapshots.filter((other) => other !== id);
    return id;
  }

  takeDiscards(): { pages: Int32Array; snapshots: Int32Array } {
    const discards = {
      pages: Int32Array.from(this.#discardedPages),
      snapshots: Int32Array.from(this.#discardedSnapshots),
    };
    this.#discardedPages = [];
    this.#discardedSnapshots = [];
    return discards;
  }

  checkBudget(): void {
    const resident = this.pages.residentBytes + this.snapshots.residentBytes;
    assert(
      resident <= this.limits.budgetBytes,
      `${resident} resident bytes, the budget is ${this.limits.budgetBytes}`,
    );
  }
}
