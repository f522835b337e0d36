/** Lists: items one after the other, counted where their number is limited. */
import { comma, gap } from './layout.ts';
import { alt, type Branch, branches, empty, guard, lazy, literal, type Node, seq } from './node.ts';
import { highest, type Rule, type Shape } from './rule.ts';

export interface ArrayParts {
  /** Values of the first items. */
  readonly first: readonly Rule[];
  /** Values of all others. */
  readonly rest: Rule;
  readonly min: number;
  readonly max: number;
}

const mostKept = 5_000;

export class ArrayShape implements Shape {
  readonly needs: readonly Rule[];
  readonly #parts: ArrayParts;
  #max = 0;
  #kept = new Map<string, Node>();

  constructor(parts: ArrayParts) {
    const { first, rest, min } = parts;
    this.#parts = parts;
    this.needs = min > first.length ? [...first, rest] : first.slice(0, min);
  }

  height(): number {
    const { min, max } = this.#parts;
    return min > max ? Number.POSITIVE_INFINITY : highest(this.needs);
  }

  node(): Node {
    const { first, rest, min, max } = this.#parts;
    const impossible = first.findIndex((rule) => !rule.isPossible);
    const possible = impossible >= 0 ? impossible : rest.isPossible ? Number.POSITIVE_INFINITY : first.length;
    this.#max = Math.min(max, possible);
    const close = seq(gap, literal(']'));
    if (this.#max === 0) return seq(literal('['), close);
    const item = this.#item(0);
    const more = guard(seq(item.node, this.#behind(1)), item.height);
    return seq(literal('['), gap, alt(min <= 0 ? [more, literal(']')] : [more]));
  }

  #item(index: number): Rule {
    return this.#parts.first[index] ?? this.#parts.rest;
  }

  /** What follows `count` items. */
  #behind(count: number): Node {
    const { first, min } = this.#parts;
    const needed = Math.max(first.length, min);
    // Without a limit all counts are the same once there are enough.
    const at = this.#max === Number.POSITIVE_INFINITY ? Math.min(count, needed) : count;
    const key = String(at);
    let node = this.#kept.get(key);
    if (node === undefined) {
      node = lazy(() => this.#makeBehind(at));
      if (this.#kept.size >= mostKept) this.#kept = new Map();
      this.#kept.set(key, node);
    }
    return node;
  }

  #makeBehind(count: number): Node {
    const options: Node[] = [];
    if (count < this.#max) {
      const item = this.#item(count);
      options.push(guard(seq(comma, item.node, this.#behind(count + 1)), item.height));
    }
    if (count >= this.#parts.min) options.push(seq(gap, literal(']')));
    return alt(options);
  }
}

/** Lists of texts that are all different. */
export function distinctItems(texts: readonly string[], min: number, max: number): Node {
  const most = Math.min(max, texts.length);
  const behind = (used: ReadonlySet<string>): Node =>
    lazy(() => {
      const more = used.size < most ? [seq(comma, next(used))] : [];
      return alt(used.size >= min ? [...more, seq(gap, literal(']'))] : more);
    });
  const next = (used: ReadonlySet<string>): Node => {
    const left = texts.filter((text) => !used.has(text));
    return branches(left.map((text): Branch => ({ text, next: behind(new Set(used).add(text)), height: 0 })));
  };
  const close = min <= 0 ? [literal(']')] : [];
  const items = most > 0 ? [next(new Set())] : [];
  return seq(literal('['), gap, alt([...items, ...close]), empty);
}
