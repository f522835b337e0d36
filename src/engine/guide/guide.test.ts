import { describe, expect, it } from 'vitest';
import { type Matcher, Vocabulary } from '../../grammar/index.ts';
import { CandidateTree } from '../draft/candidate-tree.ts';
import { addForced, allowedList, allowedTree } from '../draft/forced-source.ts';
import { allows, Guide } from './guide.ts';
import { ThinkingTags } from './thinking.ts';

/** A few letters and some longer tokens. */
const texts = [
  'a',
  'b',
  'c',
  '<',
  '/',
  'think',
  '>',
  '</think>',
  '>a',
  '</',
  'ing>',
  'nk>a',
  '</think>b',
  '!',
];
const idOf = (text: string): number => texts.indexOf(text);
const idsOf = (...words: string[]): number[] => words.map(idOf);
const stop = idOf('!');
const vocabulary = new Vocabulary(
  {
    size: texts.length,
    bytes: (id) => Buffer.from(texts[id] ?? ''),
    isControl: () => false,
    encode: (text) => [...text].map(idOf),
  },
  [stop],
);
const context = { vocabulary, thinking: new ThinkingTags(vocabulary) };

/** The answer is one of these texts, one letter per token. */
class OneOf implements Matcher {
  #left: readonly string[];

  constructor(left: readonly string[]) {
    this.#left = left;
  }

  get ended(): boolean {
    return this.#left.every((text) => text === '');
  }

  mask(out: Uint32Array): void {
    out.fill(0);
    for (const text of this.#left) {
      const id = text === '' ? stop : idOf(text.charAt(0));
      out[0] = (out[0] ?? 0) | (1 << id);
    }
  }

  accept(id: number): boolean {
    const rest = this.#left.filter((text) => text !== '' && text.charAt(0) === texts[id]);
    if (rest.length > 0) this.#left = rest.map((text) => text.slice(1));
    return rest.length > 0;
  }

  clone(): OneOf {
    return new OneOf(this.#left);
  }

  forced(most: number): number[] {
    const [first = ''] = this.#left;
    let length = 0;
    while (length < first.length && this.#left.every((text) => text.charAt(length) === first.charAt(length)))
      length++;
    return [...first.slice(0, Math.min(length, most))].map(idOf);
  }
}

const allowedBy = (guide: Guide): string[] => {
  const mask = guide.mask();
  return texts.filter((_, id) => allows(mask, id));
};
const guideFor = (...forms: string[][]): Guide =>
  new Guide(
    context,
    null,
    forms.map((form) => new OneOf(form)),
  );
const takeAll = (guide: Guide, ...words: string[]): boolean[] =>
  words.map((word) => guide.accept(idOf(word)));

describe('a guide', () => {
  it('lets through what the form does, and the end where the form is complete', () => {
    const guide = guideFor(['ab', 'abc', 'b']);
    expect(allowedBy(guide)).toEqual(['a', 'b']);
    expect(takeAll(guide, 'c', '!', 'a', 'b')).toEqual([false, false, true, true]);
    expect(allowedBy(guide)).toEqual(['c', '!']);
    expect(guide.ended).toBe(false);
    expect(takeAll(guide, 'c')).toEqual([true]);
    expect(guide.ended).toBe(true);
    expect(allowedBy(guide)).toEqual(['!']);
  });

  it('keeps the forms that still fit', () => {
    const guide = guideFor(['aa'], ['ab']);
    expect(guide.forced(9)).toEqual([]);
    expect(takeAll(guide, 'a')).toEqual([true]);
    expect(allowedBy(guide)).toEqual(['a', 'b']);
    expect(takeAll(guide, 'c', 'b')).toEqual([false, true]);
    expect(guide.ended).toBe(true);
  });

  it('writes text without a choice as the tokenizer does, and leaves its last token to the model', () => {
    const guide = guideFor(['abca', 'abcb']);
    expect([guide.only, guide.forced(2), guide.forced(9)]).toEqual([
      idOf('a'),
      idsOf('a', 'b'),
      idsOf('a', 'b', 'c'),
    ]);
    expect(takeAll(guide, 'a', 'b')).toEqual([true, true]);
    expect([guide.only, guide.forced(9)]).toEqual([null, idsOf('c')]);
    takeAll(guide, 'c', 'b');
    expect(guide.ended).toBe(true);
    const whole = guideFor(['abc']);
    takeAll(whole, 'a', 'b');
    expect(whole.only).toBe(idOf('c'));
  });

  it('looks ahead without moving', () => {
    const guide = guideFor(['ab', 'ac']);
    const behind = guide.after(idOf('a'));
    expect(behind && allowedBy(behind)).toEqual(['b', 'c']);
    expect(guide.after(idOf('b'))).toBeNull();
    expect(allowedBy(guide)).toEqual(['a']);
  });
});

describe('a guide of an answer that thinks first', () => {
  const opened = (lead: number[] = idsOf('c')): Guide =>
    new Guide(context, { tail: Buffer.alloc(0), lead }, [new OneOf(['ab'])]);

  it('lets everything be thought, but never the end', () => {
    const guide = opened();
    expect(allowedBy(guide)).toEqual(texts.filter((text) => text !== '!' && text !== '</think>b'));
    expect(takeAll(guide, 'a', '!', 'c', '</think>b')).toEqual([true, false, true, false]);
    expect(guide.forced(9)).toEqual([]);
    expect(guide.ended).toBe(false);
  });

  it.each([
    ['one token', ['</think>']],
    ['several', ['<', '/', 'think', '>']],
    ['the other spelling', ['</', 'think', 'ing>']],
    ['behind other thoughts', ['a', '<', '<', '/', '</', 'think', '>']],
  ])('begins the form behind the closing tag in %s', (_, words) => {
    const guide = opened();
    expect(takeAll(guide, ...words)).toEqual(words.map(() => true));
    expect(allowedBy(guide)).toEqual(['c']);
    expect(guide.forced(9)).toEqual(idsOf('c', 'a', 'b'));
    expect(takeAll(guide, 'a', 'c', 'a', 'b')).toEqual([false, true, true, true]);
    expect(guide.ended).toBe(true);
  });

  it('rules out tokens that would close the thinking and say more', () => {
    const guide = opened();
    takeAll(guide, '</', 'think');
    expect(allowedBy(guide)).not.toContain('>a');
    expect(guide.after(idOf('>a'))).toBeNull();
    expect(takeAll(guide, 'a')).toEqual([true]);
    expect(allowedBy(guide)).toContain('>a');
  });

  it('begins the form at once where the template puts nothing behind the tag', () => {
    const guide = opened([]);
    takeAll(guide, '</think>');
    expect(allowedBy(guide)).toEqual(['a']);
  });
});

describe('drafts under a guide', () => {
  const probability = (): number => 0.5;

  it('hold the text that must follow, at no claim but its own', () => {
    const guide = guideFor(['abc']);
    const tree = new CandidateTree(probability, { maxDepth: 8, guide });
    expect(addForced(tree, guide, 2)).toBe(2);
    tree.add(0, idOf('b'), 'mtp', 0.2);
    expect(tree.nodes.map(({ id, source }) => [texts[id], source])).toEqual([
      ['a', 'grammar'],
      ['b', 'grammar'],
    ]);
    expect(tree.forcedChild(0)).toBe(1);
  });

  it('never hold what the form rules out, nor what would hang on it', () => {
    const guide = guideFor(['ab', 'ac']);
    const tree = new CandidateTree(probability, { maxDepth: 8, guide });
    expect(tree.add(-1, idOf('b'), 'suffix', 0.9)).toBe(-1);
    const a = tree.add(-1, idOf('a'), 'suffix', 0.9);
    expect([tree.add(a, idOf('a'), 'mtp', 0.9), tree.add(a, idOf('c'), 'mtp', 0.9)]).toEqual([-1, 1]);
    expect(tree.add(1, stop, 'mtp', 0.9)).toBe(-1);
  });

  it('lose the nodes of a finished tree, and candidates of a list, that are ruled out', () => {
    const guide = guideFor(['ab', 'ac']);
    const ids = Int32Array.from(idsOf('b', 'a', 'a', 'c', 'b', 'c'));
    const tree = allowedTree({ ids, parents: Int32Array.of(-1, 0, -1, 2, 2, 3) }, guide);
    expect([...tree.ids]).toEqual(idsOf('a', 'c', 'b'));
    expect([...tree.parents]).toEqual([-1, 0, 0]);
    const list = { ids: idsOf('c', 'a', 'b'), logProbs: [-1, -2, -3] };
    expect(allowedList(list, guide)).toEqual({ ids: idsOf('a'), logProbs: [-2] });
    expect(allowedList(list, null)).toBe(list);
  });
});
