/**
 * Where a constrained answer stands: what may follow, what must. While the model thinks everything may, but for what
 * would end the answer; behind the closing tag comes what the template puts there, then the form.
 *
 * Text without a choice is written as the tokenizer writes it, and no other way. Its last token is left to the model, as
 * what follows may be part of the same token, unless nothing follows. So the tokens of such text are known, not guessed.
 */
import type { Matcher, Vocabulary } from '../../grammar/index.ts';
import { assert } from '../../util/index.ts';
import type { ThinkingTags } from './thinking.ts';

/** Tokens that are settled at once. */
const longestSettled = 256;

/** What all guides of an engine share. */
export interface GuideContext {
  readonly vocabulary: Vocabulary;
  readonly thinking: ThinkingTags;
}

/** The part before the form; `tail` is the end of what was thought. */
interface Before {
  readonly tail: Buffer | null;
  /** Tokens that come before the form, next first. */
  readonly lead: readonly number[];
}

export class Guide {
  readonly #context: GuideContext;
  #before: Before | null;
  /** The forms that the answer may still have. */
  #forms: Matcher[];
  /** Tokens that come next and no others; null = not looked for yet. */
  #settled: readonly number[] | null = null;

  /** `before`: null when the form begins at once. `forms`: at least one. */
  constructor(context: GuideContext, before: Before | null, forms: Matcher[]) {
    this.#context = context;
    this.#before = before;
    this.#forms = forms;
  }

  /** The form is complete and nothing may follow: the answer is over. */
  get ended(): boolean {
    return this.#before === null && this.#forms.every((form) => form.ended);
  }

  /** A bit per token that may follow, stop tokens among them where the answer may end here. A new array. */
  mask(): Uint32Array {
    const { vocabulary, thinking } = this.#context;
    const mask = new Uint32Array(vocabulary.words);
    const { tail = null } = this.#before ?? {};
    if (tail !== null) {
      mask.fill(0xffffffff);
      for (const id of [...vocabulary.stopIds, ...thinking.ruledOut(tail)]) unset(mask, id);
    } else if (this.only !== null) set(mask, this.only);
    else this.#formMask(mask);
    return mask;
  }

  /** The one token that comes next; null where there is a choice. */
  get only(): number | null {
    if (this.#before !== null) return this.#before.tail === null ? (this.#before.lead[0] ?? null) : null;
    this.#settled ??= this.#settle();
    return this.#settled[0] ?? null;
  }

  #settle(): readonly number[] {
    const [form] = this.#forms;
    if (this.#forms.length > 1 || form === undefined) return [];
    const ids = form.forced(longestSettled);
    if (ids.length === 0) return ids;
    const behind = form.clone();
    const isWhole = ids.every((id) => behind.accept(id)) && behind.ended;
    return isWhole ? ids : ids.slice(0, -1);
  }

  #formMask(mask: Uint32Array): void {
    const [first, ...others] = this.#forms;
    first?.mask(mask);
    const one = new Uint32Array(others.length > 0 ? mask.length : 0);
    for (const form of others) {
      form.mask(one);
      for (let i = 0; i < mask.length; i++) mask[i] = (mask[i] as number) | (one[i] as number);
    }
  }

  /** Goes on behind a token; false, and as before, when it may not follow. */
  accept(id: number): boolean {
    if (this.#context.vocabulary.isStop(id)) return false;
    if (this.#before !== null) return this.#acceptBefore(this.#before, id);
    if (this.only !== null && this.only !== id) return false;
    const left = this.#forms.filter((form) => form.accept(id));
    if (left.length === 0) return false;
    this.#forms = left;
    this.#settled = this.#settled !== null && this.#settled.length > 1 ? this.#settled.slice(1) : null;
    return true;
  }

  #acceptBefore({ tail, lead }: Before, id: number): boolean {
    if (tail === null) {
      if (lead[0] !== id) return false;
      this.#before = lead.length > 1 ? { tail, lead: lead.slice(1) } : null;
      return true;
    }
    const { thinking } = this.#context;
    if (thinking.ruledOut(tail).includes(id)) return false;
    const rest = thinking.after(tail, id);
    this.#before = rest === null && lead.length === 0 ? null : { tail: rest, lead };
    return true;
  }

  /** A guide of its own behind a token; null when that may not follow. */
  after(id: number): Guide | null {
    const next = new Guide(
      this.#context,
      this.#before,
      this.#forms.map((form) => form.clone()),
    );
    next.#settled = this.#settled;
    return next.accept(id) ? next : null;
  }

  /** Tokens that will follow, at most `most`; only the last of them may come otherwise. */
  forced(most: number): readonly number[] {
    if (this.#before !== null && this.#before.tail !== null) return [];
    const lead = this.#before?.lead ?? [];
    const [form] = this.#forms;
    if (this.#forms.length > 1 || form === undefined) return lead.slice(0, most);
    const settled = lead.length === 0 && this.only !== null ? (this.#settled ?? []) : [];
    const ids = [...lead, ...settled].slice(0, most);
    const behind = form.clone();
    for (const id of settled) behind.accept(id);
    return ids.length < most ? [...ids, ...behind.forced(most - ids.length)] : ids;
  }
}

function set(mask: Uint32Array, id: number): void {
  assert(id >> 5 < mask.length, `token ${id} of ${32 * mask.length}`);
  mask[id >> 5] = (mask[id >> 5] as number) | (1 << (id & 31));
}

function unset(mask: Uint32Array, id: number): void {
  if (id >> 5 < mask.length) mask[id >> 5] = (mask[id >> 5] as number) & ~(1 << (id & 31));
}

export function allows(mask: Uint32Array, id: number): boolean {
  return (((mask[id >> 5] ?? 0) >>> (id & 31)) & 1) === 1;
}
