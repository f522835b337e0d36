import { describe, expect, it } from 'vitest';
import { defaultSampling, Sampler } from '../sampling/index.ts';
import { emptyTree } from './draft-tree.ts';
import { planStep } from './scheduler.ts';
import { Sequence } from './sequence.ts';

function sequence(promptLen: number, computed: number, snapshotsDue: number[] = []): Sequence {
  const ids = new Int32Array(promptLen);
  const request = {
    ids,
    maxTokens: 10,
    sampling: defaultSampling,
    stopIds: [],
    boundaries: [],
    constraint: null,
    topLogprobs: null,
    tenant: '',
  };
  const made = new Sequence(request, { sampler: new Sampler(defaultSampling, ids), guide: null }, 4096);
  made.setComputed(Math.min(computed, promptLen));
  made.snapshotsDue = snapshotsDue;
  if (computed >= promptLen) made.addToken(1);
  return made;
}

const budget = { prefillTokens: 100, maxRows: 400 };
const plan = (...running: Sequence[]) =>
  planStep(running, () => emptyTree, budget).map(({ sequence: of, chainLen, choosesToken }) => [
    running.indexOf(of),
    chainLen,
    choosesToken,
  ]);

describe('the plan of a step', () => {
  it('decodes before it prefills, and keeps slices short beside decoding', () => {
    expect(plan(sequence(300, 0), sequence(5, 5))).toEqual([
      [1, 1, true],
      [0, 25, false],
    ]);
  });

  it('prefills first come first served within the budget', () => {
    expect(plan(sequence(60, 0), sequence(90, 0))).toEqual([
      [0, 60, true],
      [1, 40, false],
    ]);
  });

  it('ends a slice where a snapshot is due', () => {
    expect(plan(sequence(300, 30, [20, 50, 70]))).toEqual([[0, 20, false]]);
    expect(plan(sequence(300, 50, [20, 50, 70]))).toEqual([[0, 20, false]]);
    expect(plan(sequence(300, 70, [20, 50, 70]))).toEqual([[0, 100, false]]);
  });

  it('leaves a draft tree out when its rows do not fit', () => {
    const tree = { ids: new Int32Array(50), parents: new Int32Array(50).fill(-1) };
    const works = planStep([sequence(4, 4), sequence(4, 4)], () => tree, { prefillTokens: 10, maxRows: 60 });
    expect(works.map(({ tree: taken }) => taken.ids.length)).toEqual([50, 0]);
  });
});
