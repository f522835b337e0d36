/** Objects: the declared keys in the order of the schema, then others where they are allowed. */
import { colon, comma, gap } from './layout.ts';
import { alt, type Branch, branches, frame, guard, lazy, literal, type Node, seq } from './node.ts';
import { highest, type Rule, type Shape } from './rule.ts';

/** What stands around keys and values. */
export interface ObjectStyle {
  readonly open: Node;
  /** Before the first key, or before the end where there is none. */
  readonly lead: Node;
  readonly between: Node;
  readonly behindKey: Node;
  /** Right behind the lead. */
  readonly close: Node;
  /** Behind a value. */
  readonly closeBehind: Node;
}

const bracket = literal('}');

export const jsonStyle: ObjectStyle = {
  open: literal('{'),
  lead: gap,
  between: comma,
  behindKey: colon,
  close: bracket,
  closeBehind: seq(gap, bracket),
};

export interface Property {
  /** The key as it is written. */
  readonly key: string;
  readonly rule: Rule;
  readonly required: boolean;
}

/** Keys that no property has, and their values. */
export interface Extra {
  /** Reads a key as it is written. */
  readonly key: Node;
  readonly rule: Rule;
}

export interface ObjectParts {
  readonly style: ObjectStyle;
  readonly properties: readonly Property[];
  readonly extras: readonly Extra[];
  readonly min: number;
  readonly max: number;
}

/** Where an object stands. */
interface Place {
  /** The first property that may come. */
  readonly at: number;
  readonly first: boolean;
  /** How many more keys there must be at least, and may be at most. */
  readonly least: number;
  readonly most: number;
}

const keyFrame = 1;

export class ObjectShape implements Shape {
  readonly needs: readonly Rule[];
  readonly #parts: ObjectParts;
  readonly #rests = new Map<string, Node>();
  #properties: readonly Property[] = [];
  #extras: readonly Extra[] = [];
  /** By property: how many from it on are required. */
  #requiredFrom: readonly number[] = [0];

  constructor(parts: ObjectParts) {
    this.#parts = parts;
    this.needs = parts.properties.filter(({ required }) => required).map(({ rule }) => rule);
  }

  height(): number {
    const { properties, extras, min, max } = this.#parts;
    if (this.needs.length > max) return Number.POSITIVE_INFINITY;
    const needed = highest(this.needs);
    if (min <= this.needs.length) return needed;
    const possible = properties.map(({ rule }) => rule).filter((rule) => rule.isPossible);
    const others = extras.map(({ rule }) => rule).filter((rule) => rule.isPossible);
    if (possible.length + Math.min(1, others.length) < min) return Number.POSITIVE_INFINITY;
    return Math.max(needed, keyFrame, highest([...possible, ...others]));
  }

  node(): Node {
    const { properties, extras, min, max } = this.#parts;
    this.#properties = properties.filter(({ rule }) => rule.isPossible);
    this.#extras = extras.filter(({ rule }) => rule.isPossible);
    const counts = [0];
    for (const { required } of this.#properties.toReversed())
      counts.push((counts.at(-1) ?? 0) + Number(required));
    this.#requiredFrom = counts.reverse();
    return seq(this.#parts.style.open, this.#rest({ at: 0, first: true, least: min, most: max }));
  }

  #rest(place: Place): Node {
    const key = Object.values(place).join();
    let node = this.#rests.get(key);
    if (node === undefined) {
      node = lazy(() => this.#makeRest(place));
      this.#rests.set(key, node);
    }
    return node;
  }

  #makeRest(place: Place): Node {
    const { at, first, least } = place;
    const mayEnd = least <= 0 && this.#requiredLeft(at) === 0;
    const { lead, between, close, closeBehind } = this.#parts.style;
    const keys = this.#keys(place);
    const others = this.#otherKeys(place);
    const ways =
      keys.length === 0
        ? others.map(({ node }) => node)
        : [branches(keys), ...others.map(({ node }) => node)];
    const height = Math.min(...keys.map((key) => key.height), ...others.map((other) => other.height));
    if (first) return seq(lead, alt(mayEnd ? [...ways, close] : ways));
    const more = ways.length === 0 ? [] : [guard(seq(between, alt(ways)), height)];
    return alt(mayEnd ? [...more, closeBehind] : more);
  }

  /** The properties that may come next. */
  #keys({ at, least, most }: Place): Branch[] {
    const out: Branch[] = [];
    if (most <= 0) return out;
    for (let i = at; i < this.#properties.length; i++) {
      const { key, rule, required } = this.#properties[i] as Property;
      const left = this.#properties.length - i - 1;
      const canBeEnough = left + Math.min(1, this.#extras.length) >= least - 1;
      const hasRoom = most - 1 >= this.#requiredLeft(i + 1);
      if (canBeEnough && hasRoom) {
        const rest = this.#rest({ at: i + 1, first: false, least: Math.max(0, least - 1), most: most - 1 });
        out.push({ text: key, next: seq(this.#parts.style.behindKey, rule.node, rest), height: rule.height });
      }
      if (required) break;
    }
    return out;
  }

  /** Keys that no property has. Two of them may be the same, so they count as one where there must be some. */
  #otherKeys({ at, least, most }: Place): { node: Node; height: number }[] {
    if (most <= 0 || least > 1 || this.#requiredLeft(at) > 0) return [];
    const rest = this.#rest({ at: this.#properties.length, first: false, least: 0, most: most - 1 });
    return this.#extras.map(({ key, rule }) => {
      const height = Math.max(keyFrame, rule.height);
      return {
        node: guard(seq(frame(key, keyFrame), this.#parts.style.behindKey, rule.node, rest), height),
        height,
      };
    });
  }

  #requiredLeft(at: number): number {
    return this.#requiredFrom[at] ?? 0;
  }
}
