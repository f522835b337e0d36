import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { childOf, nodeDepths } from '../draft-tree.ts';
import { Calibration } from './calibration.ts';
import { CandidateTree } from './candidate-tree.ts';
import { bestNodeCount, CostModel, mtpPays } from './cost-model.ts';
import { DraftFigures, meanAcceptedLength } from './figures.ts';
import { DraftHistory } from './history.ts';
import { type Occurrence, SuffixIndex } from './suffix-index.ts';
import { addSuffixDrafts } from './suffix-source.ts';

const asClaimed = (_source: string, _depth: number, claim: number): number => claim;

describe('suffix index', () => {
  it('finds exactly the earlier places where the last tokens occurred, newest first', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 120 }), (text) => {
        const index = new SuffixIndex({ gram: 2, maxLinks: 1000, maxMatch: 8, capacity: 128 });
        index.append(text);
        const expected: { next: number; matchLen: number }[] = [];
        for (let at = text.length - 2; at >= 1; at--) {
          let n = 0;
          while (n < 8 && at - n >= 0 && text[at - n] === text[text.length - 1 - n]) n++;
          if (n >= 2) expected.push({ next: at + 1, matchLen: n });
        }
        const figures = ({ next, matchLen }: Occurrence) => ({ next, matchLen });
        expect(index.find().map(figures)).toEqual(expected);
        // The same place by place for a text of somebody else that ends alike, but for the end itself.
        const other = new SuffixIndex({ gram: 2, maxLinks: 1000, maxMatch: 8, capacity: 128 });
        other.append(text.slice(0, -1));
        const atEnd = expected.filter(({ next }) => next < text.length);
        expect(other.findEndOf(Int32Array.from(text)).map(figures)).toEqual(atEnd);
      }),
    );
  });

  it('never looks over the end of a text', () => {
    const index = new SuffixIndex({ gram: 2 });
    index.append([1, 2, 3]);
    index.separate();
    index.append([4, 5]);
    expect(index.findEndOf(Int32Array.of(3, 4))).toEqual([]);
    const [found] = index.findEndOf(Int32Array.of(9, 2, 3));
    expect(found).toMatchObject({ next: 3, matchLen: 2 });
    const tree = new CandidateTree(asClaimed, { maxDepth: 8, guide: null });
    addSuffixDrafts(
      tree,
      { source: 'history', found: found === undefined ? [] : [found] },
      { steps: 8, nodes: 8 },
    );
    expect(tree.nodes).toEqual([]);
  });

  it('forgets what lies further back than its capacity', () => {
    const index = new SuffixIndex({ gram: 2, maxMatch: 4, capacity: 16 });
    index.append([7, 8, 9, ...Array.from({ length: 30 }, (_, i) => 100 + i), 7, 8]);
    expect(index.find()).toEqual([]);
    expect(() => index.token(0)).toThrow(/remembered/);
  });
});

describe('suffix drafts', () => {
  it('continue a copied text over many tokens, and branch where the text once went on differently', () => {
    const index = new SuffixIndex();
    const line = Array.from({ length: 40 }, (_, i) => 10 + i);
    index.append([...line, 1, 2, 3, ...line.slice(0, 8), 99, 98, 97, ...line.slice(0, 8)]);
    const tree = new CandidateTree(asClaimed, { maxDepth: 32, guide: null });
    addSuffixDrafts(tree, { source: 'suffix', found: index.find() }, { steps: 32, nodes: 64 });
    const { tree: drafts } = tree.best(64);
    const roots = [...drafts.ids].filter((_, node) => drafts.parents[node] === -1);
    expect(new Set(roots)).toEqual(new Set([18, 99]));
    expect(Math.max(...nodeDepths(drafts.parents))).toBe(31);
  });
});

describe('history', () => {
  it('knows a tenant by its own texts alone, and forgets the one that was silent for longest', () => {
    const history = new DraftHistory(100);
    history.add('a', Int32Array.of(1, 2, 3, 4));
    history.add('b', Int32Array.of(1, 2, 3, 5));
    const next = (tenant: string): (number | undefined)[] =>
      (history.of(tenant)?.findEndOf(Int32Array.of(1, 2, 3)) ?? []).map(({ index, next: at }) =>
        index.token(at),
      );
    expect([next('a'), next('b'), next('c')]).toEqual([[4], [5], []]);
    for (let i = 0; i < 15; i++) history.add(`t${i}`, Int32Array.of(i));
    expect(history.tenants).toBe(16);
    expect([history.of('a'), history.of('b')?.length]).toEqual([null, 5]);
  });
});

describe('figures', () => {
  it('count by source and depth, and the tokens that a step with a draft brought', () => {
    const figures = new DraftFigures();
    expect(meanAcceptedLength(figures.read())).toBeNull();
    figures.observe([]);
    figures.observe([
      { source: 'mtp', depth: 0, isRight: true },
      { source: 'suffix', depth: 2, isRight: true },
      { source: 'suffix', depth: 0, isRight: false },
    ]);
    figures.observeStep(3, 4);
    const read = figures.read();
    figures.observe([{ source: 'mtp', depth: 0, isRight: false }]);
    expect(read).toEqual({
      drafts: 1,
      bySource: { mtp: { drafted: 1, accepted: 1 }, suffix: { drafted: 2, accepted: 1 } },
      byDepth: [
        { drafted: 2, accepted: 1 },
        { drafted: 0, accepted: 0 },
        { drafted: 1, accepted: 1 },
      ],
      predictedMs: 3,
      measuredMs: 4,
    });
    expect(meanAcceptedLength(read)).toBe(3);
    expect(meanAcceptedLength(figures.read())).toBe(2);
  });
});

describe('candidate tree', () => {
  it('merges equal tokens under one parent and keeps the better figure', () => {
    const tree = new CandidateTree(asClaimed, { maxDepth: 8, guide: null });
    const first = tree.add(-1, 5, 'suffix', 0.4);
    expect(tree.add(-1, 5, 'mtp', 0.9)).toBe(first);
    expect(tree.nodes).toHaveLength(1);
    expect(tree.nodes[0]).toMatchObject({ source: 'both', probability: 0.9 });
  });

  it('chooses a prefix-closed tree of the best scores', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(20), fc.nat(3), fc.double({ min: 0.01, max: 0.99, noNaN: true })), {
          maxLength: 60,
        }),
        fc.nat(40),
        (adds, count) => {
          const tree = new CandidateTree(asClaimed, { maxDepth: 6, guide: null });
          for (const [parent, id, claim] of adds)
            tree.add(tree.nodes.length === 0 ? -1 : (parent % (tree.nodes.length + 1)) - 1, id, 'mtp', claim);
          const { tree: drafts, chosen } = tree.best(count);
          expect(drafts.ids.length).toBe(Math.min(count, tree.nodes.length));
          chosen.forEach((candidate, node) => {
            const parent = drafts.parents[node] as number;
            expect(parent).toBeLessThan(node);
            expect(parent < 0 ? -1 : chosen[parent]).toBe(tree.nodes[candidate]?.parent);
            expect(childOf(drafts, parent, drafts.ids[node] as number)).toBe(node);
          });
          const left = tree.scores().slice(count);
          const worst = Math.min(1, ...chosen.map((candidate) => tree.nodes[candidate]?.score ?? 1));
          expect(Math.max(0, ...left)).toBeLessThanOrEqual(worst);
        },
      ),
    );
  });
});

describe('calibration', () => {
  it('believes a claim until evidence says otherwise', () => {
    const calibration = new Calibration();
    expect(calibration.probability('suffix', 0, 0.75)).toBeCloseTo(0.75);
    for (let i = 0; i < 100; i++)
      calibration.observe({ source: 'suffix', depth: 0, claim: 0.75 }, i % 4 === 0 ? 1 : 0);
    expect(calibration.probability('suffix', 0, 0.75)).toBeCloseTo(0.25, 1);
    expect(calibration.probability('mtp', 0, 0.75)).toBeCloseTo(0.75);
  });
});

describe('cost model', () => {
  const model = new CostModel({
    key: 'k',
    rows: [1, 4, 8],
    contexts: [0, 1000],
    stepMs: [
      [1, 4, 8],
      [2, 5, 9],
    ],
    draftMs: [0.5, 0.7],
    fillMs: [0.1, 0.2],
  });

  it('goes through the measured points and is linear between and beyond them', () => {
    expect(model.step(4, 0)).toBe(4);
    expect(model.step(2, 500)).toBeCloseTo(2.5);
    expect(model.step(16, 0)).toBeCloseTo(16);
    expect(model.draft(500)).toBeCloseTo(0.6);
  });

  it('takes the MTP layer where what it saves in answers exceeds what it costs in prompts', () => {
    const of = (draft: number, fill: number): CostModel =>
      new CostModel({
        key: 'k',
        rows: [1, 8],
        contexts: [0],
        stepMs: [[10, 11]],
        draftMs: [draft],
        fillMs: [fill],
      });
    // Chains of four bring 2.8 tokens for 14.6 ms with draft steps of 1 ms: 4.7 ms saved per token.
    expect(mtpPays(of(1, 0.5))).toBe(true);
    expect(mtpPays(of(1, 1))).toBe(false);
    expect(mtpPays(of(9, 0.01))).toBe(false);
  });

  it('chooses the empty tree when rows cost as much as they gain, and a full one when they are free', () => {
    expect(bestNodeCount([0.9, 0.8], (rows) => rows, 0)).toBe(0);
    expect(bestNodeCount([0.9, 0.8], () => 1, 0)).toBe(2);
    expect(bestNodeCount([0.9, 0.01], (rows) => 1 + 0.1 * rows, 0)).toBe(1);
  });
});
