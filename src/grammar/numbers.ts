/** JSON numbers within bounds as automata: digits are compared with those of the bounds while they are written. */
import { compareDecimals, type Decimal, isZero } from './decimal.ts';
import { type Dfa, explore } from './dfa.ts';
import { patternDfa } from './pattern-dfa.ts';

export interface Bound {
  readonly value: Decimal;
  readonly exclusive: boolean;
}

export interface NumberRange {
  readonly min: Bound | null;
  readonly max: Bound | null;
  readonly integer: boolean;
  /** Multiples of this only; null: of anything. */
  readonly step: number | null;
}

/** Digits of a number without bounds: a double is always finite, and nobody counts on for ever. */
const anyInteger = '0|-?[1-9]\\d{0,19}';
const anyNumber = '-?(?:0|[1-9]\\d{0,19})(?:\\.\\d{1,20})?(?:[eE][+-]?\\d{1,2})?';
/** Doubles tell decimals with so many digits apart. */
const exactDigits = 15;
const longestInteger = 20;

/** The numbers of a range in JSON; null when there is none. With bounds or a step, no exponents. */
export function numberDfa(range: NumberRange): Dfa | null {
  const { min, max, integer, step } = range;
  if (min === null && max === null && step === null)
    return patternDfa(integer ? anyInteger : anyNumber, 'whole');
  return plainNumbers(range);
}

/** The same, never with an exponent. */
export function plainNumbers(range: NumberRange): Dfa | null {
  return explore(new RangeDescription(range));
}

/** Numbers that are no integers, whatever a double makes of them. */
export function fractionsDfa(): Dfa | null {
  return patternDfa('-?(?:0|[1-9]\\d{0,8})\\.\\d{0,5}[1-9]', 'whole');
}

/** How what is written compares with the digits of a bound so far: -1, 0, 1. */
type Order = number;

interface Place {
  readonly phase: 'begin' | 'minus' | 'zero' | 'int' | 'point' | 'frac';
  readonly negative: boolean;
  /** Digits before the point, and behind it. */
  readonly ints: number;
  readonly fracs: number;
  /** Compared with the bounds of the size. */
  readonly low: Order;
  readonly high: Order;
  /** What was written modulo the step. */
  readonly rest: number;
}

interface Sizes {
  /** Bounds of the size of numbers with one sign; null: that sign has none. */
  readonly low: Bound;
  readonly high: Bound | null;
}

const zero: Decimal = { negative: false, int: '0', frac: '' };

class RangeDescription {
  readonly start: Place = { phase: 'begin', negative: false, ints: 0, fracs: 0, low: 0, high: 0, rest: 0 };
  readonly #range: NumberRange;
  readonly #positive: Sizes | null;
  readonly #negative: Sizes | null;
  readonly #mostInts: number;
  readonly #mostDigits: number;

  constructor(range: NumberRange) {
    const { min, max, integer } = range;
    this.#range = range;
    this.#positive = sizes(min, max, false);
    this.#negative = sizes(max === null ? null : flip(max), min === null ? null : flip(min), true);
    const bounds = [min, max].flatMap((bound) => (bound === null ? [] : [bound.value]));
    const ints = Math.max(0, ...bounds.map(({ int }) => int.length));
    const digits = Math.max(0, ...bounds.map(({ int, frac }) => int.length + frac.length));
    this.#mostInts = Math.max(integer ? longestInteger : exactDigits, ints);
    this.#mostDigits = Math.max(exactDigits, digits);
  }

  key(place: Place): string {
    return Object.values(place).join();
  }

  accepts({ phase, negative, ints, fracs, low, high, rest }: Place): boolean {
    const sizesHere = negative ? this.#negative : this.#positive;
    if (sizesHere === null || rest !== 0) return false;
    if (phase !== 'zero' && phase !== 'int' && phase !== 'frac') return false;
    const above = ended(sizesHere.low, low, ints, fracs);
    if (above < 0 || (above === 0 && sizesHere.low.exclusive)) return false;
    if (sizesHere.high === null) return true;
    const below = ended(sizesHere.high, high, ints, fracs);
    return below < 0 || (below === 0 && !sizesHere.high.exclusive);
  }

  edges(place: Place): { lo: number; hi: number; to: Place }[] {
    const { phase, negative, ints, fracs } = place;
    const mayGoOn = (negative ? this.#negative : this.#positive) !== null;
    const out: { lo: number; hi: number; to: Place }[] = [];
    if (phase === 'begin') {
      if (this.#negative !== null)
        out.push({ lo: 0x2d, hi: 0x2d, to: { ...place, phase: 'minus', negative: true } });
      if (!mayGoOn) return out;
    }
    const begins = phase === 'begin' || phase === 'minus';
    const isInt = begins || (phase === 'int' && ints < this.#mostInts);
    const isFrac = (phase === 'point' || phase === 'frac') && ints + fracs < this.#mostDigits;
    const mayHavePoint = !this.#range.integer && (phase === 'zero' || phase === 'int');
    if (mayHavePoint) out.push({ lo: 0x2e, hi: 0x2e, to: this.#atPoint(place) });
    for (let digit = 0; digit < 10 && (isInt || isFrac); digit++) {
      const to = this.#behind(place, digit);
      out.push({ lo: 0x30 + digit, hi: 0x30 + digit, to });
    }
    return out;
  }

  #atPoint(place: Place): Place {
    const { low, high } = this.#sizesOf(place);
    const order = (bound: Bound | null, at: Order): Order =>
      bound !== null && place.ints < bound.value.int.length ? -1 : at;
    return { ...place, phase: 'point', low: order(low, place.low), high: order(high, place.high) };
  }

  #behind(place: Place, digit: number): Place {
    const { phase, ints, fracs } = place;
    const { low, high } = this.#sizesOf(place);
    const step = this.#range.step ?? 1;
    const isFrac = phase === 'point' || phase === 'frac';
    const order = (bound: Bound | null, at: Order): Order => {
      if (bound === null) return 0;
      const { int, frac } = bound.value;
      if (isFrac) return at !== 0 ? at : Math.sign(digit - Number(frac[fracs] ?? 0));
      if (ints >= int.length) return 1;
      return at !== 0 ? at : Math.sign(digit - Number(int[ints]));
    };
    return {
      phase: isFrac ? 'frac' : ints === 0 && digit === 0 ? 'zero' : 'int',
      negative: place.negative,
      ints: ints + (isFrac ? 0 : 1),
      fracs: fracs + (isFrac ? 1 : 0),
      low: order(low, place.low),
      high: order(high, place.high),
      rest: step === 1 ? 0 : (place.rest * 10 + digit) % step,
    };
  }

  #sizesOf({ negative }: Place): { low: Bound | null; high: Bound | null } {
    return (negative ? this.#negative : this.#positive) ?? { low: null, high: null };
  }
}

/** How a number that ends here compares with a bound. */
function ended({ value }: Bound, order: Order, ints: number, fracs: number): Order {
  if (fracs === 0 && ints < value.int.length) return -1;
  if (order !== 0) return order;
  return value.frac.slice(fracs).replaceAll('0', '') === '' ? 0 : -1;
}

function flip({ value, exclusive }: Bound): Bound {
  return { value: { ...value, negative: !value.negative && !isZero(value) }, exclusive };
}

/** Bounds of the sizes of the numbers with one sign, given bounds that count in its direction. */
function sizes(min: Bound | null, max: Bound | null, aboveZero: boolean): Sizes | null {
  const least: Bound = { value: zero, exclusive: aboveZero };
  if (max !== null && compareDecimals(max.value, zero) < 0) return null;
  const low = min === null || compareDecimals(min.value, zero) < 0 ? least : stricter(min, least);
  return { low, high: max };
}

function stricter(a: Bound, b: Bound): Bound {
  const order = compareDecimals(a.value, b.value);
  if (order !== 0) return order > 0 ? a : b;
  return a.exclusive ? a : b;
}

/** The tighter of two bounds; `sign`: 1 for lower, -1 for upper ones. */
export function tighter(a: Bound | null, b: Bound | null, sign: 1 | -1): Bound | null {
  if (a === null || b === null) return a ?? b;
  const order = compareDecimals(a.value, b.value) * sign;
  if (order !== 0) return order > 0 ? a : b;
  return a.exclusive ? a : b;
}
