import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Lease, PrefixCache, snapshotPositions } from './index.ts';

const pageTokens = 4;
const options = {
  pageTokens,
  pageBytes: 10,
  snapshotBytes: 25,
  budgetBytes: 100_000,
  maxPages: 500,
  maxSnapshots: 100,
};

/** What a device would hold: tokens by page, and by snapshot the whole text it stands for. */
class Device {
  readonly pages = new Map<number, number[]>();
  readonly snapshots = new Map<number, number[]>();
  readonly cache: PrefixCache;

  constructor(limits: Partial<typeof options> = {}) {
    this.cache = new PrefixCache({ ...options, ...limits });
  }

  start(ids: number[]): Lease | null {
    const lease = this.cache.acquire(Int32Array.from(ids));
    if (lease === null) return null;
    for (const { src, dst } of lease.copies) this.pages.set(dst, [...(this.pages.get(src) ?? [])]);
    lease.copiesDone();
    this.#expectRestored(lease, ids);
    return lease;
  }

  /** Nothing is ever restored from another prefix. */
  #expectRestored({ reuse, pages }: Lease, ids: number[]): void {
    const { cachedLen, snapshot } = reuse;
    const held = [...pages].flatMap((page) =>
      [...(this.pages.get(page) ?? []), ...Array(4)].slice(0, pageTokens),
    );
    expect(held.slice(0, cachedLen)).toEqual(ids.slice(0, cachedLen));
    expect(snapshot === null ? [] : this.snapshots.get(snapshot)).toEqual(ids.slice(0, cachedLen));
  }

  compute(lease: Lease, ids: number[]): boolean {
    const from = lease.tokens.length;
    if (!lease.ensure(from + ids.length)) return false;
    for (const [i, id] of ids.entries()) {
      const position = from + i;
      const page = lease.pages[Math.floor(position / pageTokens)] as number;
      const content = this.pages.get(page) ?? [];
      content[position % pageTokens] = id;
      this.pages.set(page, content);
    }
    lease.append(Int32Array.from(ids));
    return true;
  }

  publish(lease: Lease): void {
    const snapshot = lease.reserveSnapshot();
    if (snapshot !== null) this.snapshots.set(snapshot, [...lease.tokens]);
    lease.publish(lease.tokens.length, snapshot);
  }

  /** A whole request: snapshots at the boundaries and at the end. */
  run(ids: number[], boundaries: number[] = []): number {
    const lease = this.start([...ids, -1]);
    if (lease === null) throw new Error('no memory');
    const { cachedLen } = lease.reuse;
    for (const at of [...boundaries.filter((b) => b > cachedLen), ids.length]) {
      if (at <= lease.tokens.length) continue;
      this.compute(lease, ids.slice(lease.tokens.length, at));
      this.publish(lease);
    }
    lease.release();
    this.cache.check();
    return cachedLen;
  }
}

const text = (length: number, salt = 0): number[] => Array.from({ length }, (_, i) => i * 7 + salt);

describe('prefix cache', () => {
  it('reuses the prefix up to the last snapshot', () => {
    const device = new Device();
    expect(device.run(text(21), [6, 13])).toBe(0);
    expect(device.run([...text(21), 5, 5])).toBe(21);
    expect(device.run([...text(15), 1, 2, 3])).toBe(13);
    expect(device.run([...text(6), 9, 9])).toBe(6);
    expect(device.run([...text(5), 9, 9])).toBe(0);
    expect(device.run(text(21, 1))).toBe(0);
  });

  it('says why the reuse was not longer', () => {
    const device = new Device();
    device.run(text(20), [8]);
    const limit = (ids: number[]) => {
      const lease = device.start(ids);
      const found = lease?.reuse;
      lease?.release();
      return [found?.cachedLen, found?.matchedLen, found?.limit];
    };
    expect(limit(text(30, 3))).toEqual([0, 0, 'cold']);
    expect(limit([...text(12), 1])).toEqual([8, 12, 'no-snapshot']);
    expect(limit([...text(8), 1, 1])).toEqual([8, 8, 'tokens-differ']);
    expect(limit([...text(20), 1])).toEqual([20, 20, 'whole-prompt']);
    expect(limit(text(20))).toEqual([8, 20, 'no-snapshot']);
  });

  it('lets two sequences compute the same text and keeps it once', () => {
    const device = new Device();
    const [a, b] = [device.start(text(20)), device.start(text(20))] as [Lease, Lease];
    for (const lease of [a, b]) device.compute(lease, text(19));
    for (const lease of [a, b]) device.publish(lease);
    const { pages, snapshots } = device.cache.stats();
    expect([pages, snapshots]).toEqual([10, 1]);
    for (const lease of [a, b]) lease.release();
    device.cache.check();
    expect(device.cache.stats()).toMatchObject({ pages: 5, snapshots: 1 });
  });

  it('copies the page of the last reused token even where a page ends there', () => {
    const device = new Device();
    device.run(text(8), [8]);
    const lease = device.cache.acquire(Int32Array.from([...text(8), 1, 2]));
    expect(lease?.copies).toHaveLength(1);
    expect(lease?.pages).toHaveLength(2);
    lease?.release();
    device.cache.check();
  });

  it('never evicts what a lease rests on, and says when there is no memory', () => {
    const device = new Device({ budgetBytes: 25 + 5 * 10 });
    device.run(text(16), [16]);
    const lease = device.start([...text(16), 1, 2, 3]) as Lease;
    expect(lease.reuse.cachedLen).toBe(16);
    expect(lease.ensure(64)).toBe(false);
    device.cache.check();
    expect(device.cache.acquire(Int32Array.of(77, 78))).toBe(null);
    lease.release();
    device.cache.check();
    expect(device.run([77, 78])).toBe(0);
  });

  it('lets what lies beyond a short reused prefix go while the lease runs', () => {
    const device = new Device({ budgetBytes: 2 * 25 + 22 * 10 });
    device.run(text(80), [8]);
    const lease = device.start([...text(8), 1, 2]) as Lease;
    expect(lease.reuse.cachedLen).toBe(8);
    expect(lease.ensure(4 * 20)).toBe(true);
    device.cache.check();
    lease.release();
  });

  it('keeps where idle conversations go on, whatever answers and long prompts come between', () => {
    const device = new Device({ budgetBytes: 1_000_000, maxPages: 5000, maxSnapshots: 30 });
    const agents = [0, 1, 2, 3].map((salt) => ({ salt, history: text(9, salt), reused: [] as number[] }));
    const expected = agents.map((): number[] => []);
    let next = 10_000;
    const fresh = (length: number): number[] => Array.from({ length }, () => next++);
    for (let turn = 0; turn < 40; turn++) {
      for (const agent of agents) {
        const before = agent.history.length;
        // What the model wrote comes back in other words, as in a replay.
        if (turn > 0) agent.history.push(...fresh(3));
        const boundary = agent.history.length;
        agent.history.push(...fresh(5));
        const boundaries = [9, boundary, agent.history.length];
        agent.reused.push(device.run([...agent.history, ...fresh(4)], boundaries));
        expected[agent.salt]?.push(turn === 0 ? 0 : before);
      }
      if (turn % 10 === 9) {
        const long = fresh(400);
        device.run(
          long,
          Array.from({ length: 80 }, (_, i) => 5 * (i + 1)),
        );
      }
    }
    expect(agents.map(({ reused }) => reused)).toEqual(expected);
    // Another conversation under the same system block, and an edited last message.
    expect(device.run([...text(9, 2), ...fresh(3)])).toBe(9);
    const { history } = agents[3] as (typeof agents)[0];
    expect(device.run([...history.slice(0, -2), ...fresh(9)])).toBe(history.length - 5);
  });

  it('gives memory of one kind back before the other kind grows', () => {
    const device = new Device({ budgetBytes: 200, snapshotBytes: 50 });
    device.run(text(40));
    device.cache.clear();
    device.cache.takeDiscards();
    const lease = device.start([1, 2]) as Lease;
    device.compute(lease, [1]);
    expect([lease.reserveSnapshot() !== null, device.cache.takeDiscards().pages.length]).toEqual([true, 0]);
    expect(lease.ensure(4 * 15)).toBe(true);
    device.cache.check();
  });

  it('refuses misuse', () => {
    const device = new Device();
    const lease = device.start([1, 2, 3]) as Lease;
    expect(() => lease.append(Int32Array.from(text(5)))).toThrow(/have pages/);
    expect(() => lease.publish(1, null)).toThrow(/0 tokens/);
    lease.release();
    lease.release();
    expect(() => lease.ensure(3)).toThrow(/not released/);
  });

  it('agrees with a plain map of texts under random use and any budget', () => {
    const action = fc.tuple(fc.nat(5), fc.nat(3), fc.array(fc.nat(2), { minLength: 1, maxLength: 9 }));
    fc.assert(
      fc.property(
        fc.array(action, { maxLength: 60 }),
        fc.integer({ min: 60, max: 900 }),
        (actions, budgetBytes) => {
          const device = new Device({ budgetBytes, maxPages: 80, maxSnapshots: 30 });
          const live: Lease[] = [];
          for (const [what, which, ids] of actions) {
            const lease = live[which % Math.max(1, live.length)];
            if (what <= 1 || lease === undefined) {
              const base = lease === undefined || what === 0 ? [] : [...lease.tokens];
              const started = live.length < 4 ? device.start([...base, ...ids]) : null;
              if (started !== null) live.push(started);
            } else if (what <= 3) device.compute(lease, ids);
            else if (what === 4 && lease.tokens.length > 0) device.publish(lease);
            else {
              if (lease.tokens.length > 0) device.publish(lease);
              lease.release();
              live.splice(live.indexOf(lease), 1);
            }
            device.cache.check();
          }
          for (const lease of live) lease.release();
          device.cache.check();
          device.cache.clear();
          expect(device.cache.stats()).toMatchObject({ usedBytes: 0, pages: 0, snapshots: 0 });
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe('snapshot policy', () => {
  const shape = {
    boundaries: [100, 110, 120, 300, 310, 320],
    cachedLen: 0,
    matchedLen: 0,
    promptLen: 330,
    spacing: 64,
  };

  it('takes the system block, well spaced messages, the last message and the one before it', () => {
    expect(snapshotPositions(shape)).toEqual([100, 300, 310, 320]);
  });

  it('takes only what is computed now', () => {
    expect(snapshotPositions({ ...shape, cachedLen: 310, matchedLen: 310 })).toEqual([320]);
  });

  it('takes the deepest boundary that another prompt shares', () => {
    expect(snapshotPositions({ ...shape, cachedLen: 100, matchedLen: 115 })).toEqual([110, 300, 310, 320]);
  });

  it('leaves out a boundary at the end of the prompt: its last token must be computed', () => {
    expect(snapshotPositions({ ...shape, boundaries: [100, 330] })).toEqual([100]);
  });
});
