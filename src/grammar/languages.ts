/** The texts and numbers that a flat schema allows, as automata; what must not hold is taken out of them. */
import type { JsonObject } from '../chat/index.ts';
import { anyChar } from './char-set.ts';
import { decimalOf, isWhole, wholeOf } from './decimal.ts';
import { both, type Dfa, explore, ofTexts, textOf, without } from './dfa.ts';
import { formatDfa, longestHost } from './formats.ts';
import { type Bound, fractionsDfa, numberDfa, plainNumbers, tighter } from './numbers.ts';
import { patternDfa } from './pattern-dfa.ts';
import { PatternError } from './regex.ts';
import { type Exclusion, type Flat, type Flattener, kindsOf, listedValues } from './schema-flat.ts';
import type { SchemaSource } from './schema-source.ts';
import type { Lengths } from './text.ts';

/** Texts: those of an automaton (null: any) that have these lengths. */
export interface TextLanguage {
  readonly dfa: Dfa | null;
  readonly lengths: Lengths;
}

export const anyTexts: Dfa = textOf(anyChar);
const longestCount = 2_000;
const largestStep = 2_000;
const mostNeeded = 1_000_000;

export class Languages {
  readonly #source: SchemaSource;
  readonly #flattener: Flattener;

  constructor(source: SchemaSource, flattener: Flattener) {
    this.#source = source;
    this.#flattener = flattener;
  }

  /** Decoded texts; null when there is none. Throws UserError. */
  texts(flat: Flat): TextLanguage | null {
    let dfa: Dfa | null = null;
    let empty = false;
    let min = 0;
    let max = Number.POSITIVE_INFINITY;
    const meet = (other: Dfa | null): void => {
      dfa = other === null || dfa === null ? (dfa ?? other) : both(dfa, other);
      empty ||= dfa === null;
    };
    for (const schema of flat.schemas) {
      min = Math.max(min, count(schema, 'minLength') ?? 0);
      max = Math.min(max, count(schema, 'maxLength') ?? Number.POSITIVE_INFINITY);
      if (min > mostNeeded) throw this.#source.error(schema, 'minLength', `is more than ${mostNeeded}`);
      if (typeof schema.pattern === 'string')
        meet(this.attempt(schema, 'pattern', () => patternDfa(schema.pattern as string, 'search')));
      if (schema.format === 'hostname') max = Math.min(max, longestHost);
      const format = typeof schema.format === 'string' ? formatDfa(schema.format) : null;
      if (format !== null) this.attempt(schema, 'format', () => meet(format));
      if (empty || min > max) return null;
    }
    for (const exclusion of flat.exclusions) {
      const { from, keyword } = exclusion;
      const left = this.attempt(from, keyword, () =>
        this.#withoutTexts({ dfa, lengths: { min, max } }, exclusion),
      );
      if (left === null) return null;
      dfa = left;
    }
    return { dfa, lengths: { min, max } };
  }

  #withoutTexts({ dfa, lengths }: TextLanguage, exclusion: Exclusion): Dfa | null {
    let left: Dfa | null = dfa ?? anyTexts;
    for (const other of this.#flattener.flatten([exclusion.schema])) {
      if (left === null || !kindsOf(other).has('string')) continue;
      left = without(left, this.#excludedTexts(other, lengths));
    }
    return left;
  }

  /** At least the texts that are valid: formats are left out, ours are narrower than what validators take. */
  #excludedTexts(flat: Flat, lengths: Lengths): Dfa | null {
    const listed = listedValues(flat);
    if (listed !== null) return ofTexts(listed.filter((value) => typeof value === 'string'));
    const schemas = flat.schemas.map(({ format: _, ...rest }) => rest as JsonObject);
    const language = this.texts({ schemas, exclusions: [] });
    if (language === null) return null;
    const { min, max } = language.lengths;
    return min <= lengths.min && max >= lengths.max ? (language.dfa ?? anyTexts) : this.whole(language);
  }

  /** The same language as an automaton alone. Throws PatternError. */
  whole({ dfa, lengths }: TextLanguage): Dfa | null {
    const { min, max } = lengths;
    if (min === 0 && max === Number.POSITIVE_INFINITY) return dfa ?? anyTexts;
    if (min > longestCount || (max > longestCount && max < Number.POSITIVE_INFINITY))
      throw new PatternError(`counts more than ${longestCount} characters`);
    return counted({ dfa, lengths });
  }

  /** Numbers of these kinds; null when there is none. Throws UserError. */
  numbers(flat: Flat, kinds: ReadonlySet<string>): Dfa | null {
    const hasFractions = kinds.has('fraction');
    if (!hasFractions && !kinds.has('integer')) return null;
    let min: Bound | null = null;
    let max: Bound | null = null;
    let step: number | null = null;
    for (const schema of flat.schemas) {
      min = tighter(min, this.#bound(schema, 'minimum', !hasFractions), 1);
      min = tighter(min, this.#bound(schema, 'exclusiveMinimum', !hasFractions), 1);
      max = tighter(max, this.#bound(schema, 'maximum', !hasFractions), -1);
      max = tighter(max, this.#bound(schema, 'exclusiveMaximum', !hasFractions), -1);
      step = this.#step(schema, step);
      if (schema.format === 'int32') {
        min = tighter(min, { value: int32Min, exclusive: false }, 1);
        max = tighter(max, { value: int32Max, exclusive: false }, -1);
      }
    }
    const integer = !kinds.has('fraction') || step !== null || flat.schemas.some(isIntegerFormat);
    const where = flat.schemas.find((schema) => 'multipleOf' in schema) ?? flat.schemas[0] ?? {};
    return this.attempt(where, 'multipleOf', () => {
      const range = { min, max, integer, step };
      if (flat.exclusions.length === 0) return numberDfa(range);
      return this.#withoutNumbers(plainNumbers(range), flat.exclusions, integer);
    });
  }

  #withoutNumbers(from: Dfa | null, exclusions: readonly Exclusion[], integer: boolean): Dfa | null {
    let left = from;
    for (const { schema } of exclusions)
      for (const other of this.#flattener.flatten([schema])) {
        const kinds = kindsOf(other);
        if (left === null || !(kinds.has('integer') || kinds.has('fraction'))) continue;
        const fractions = fractionsDfa();
        if (!kinds.has('fraction') && !integer && fractions !== null) left = both(left, fractions);
        else left = without(left, this.#excludedNumbers(other, integer));
      }
    return left;
  }

  /** At least the numbers that are valid, in the spelling of `plainNumbers`. */
  #excludedNumbers(flat: Flat, integer: boolean): Dfa | null {
    const listed = listedValues(flat);
    const zero = { value: { negative: false, int: '0', frac: '' }, exclusive: false };
    const wide = { min: zero, max: zero, integer, step: null };
    if (listed !== null) {
      const values = listed.flatMap((value) => decimalOf(value) ?? []);
      return values.reduce<Dfa | null>((sum, value) => {
        const bound = { value, exclusive: false };
        return union(sum, plainNumbers({ ...wide, min: bound, max: bound }));
      }, null);
    }
    const schemas = flat.schemas.map(({ multipleOf: _, format: __, ...rest }) => rest as JsonObject);
    return this.#plain(schemas, integer);
  }

  #plain(schemas: readonly JsonObject[], integer: boolean): Dfa | null {
    let min: Bound | null = null;
    let max: Bound | null = null;
    for (const schema of schemas) {
      min = tighter(min, this.#bound(schema, 'minimum', integer), 1);
      min = tighter(min, this.#bound(schema, 'exclusiveMinimum', integer), 1);
      max = tighter(max, this.#bound(schema, 'maximum', integer), -1);
      max = tighter(max, this.#bound(schema, 'exclusiveMaximum', integer), -1);
    }
    return plainNumbers({ min, max, integer, step: null });
  }

  #bound(schema: JsonObject, keyword: string, integer: boolean): Bound | null {
    if (schema[keyword] === undefined) return null;
    const value = decimalOf(schema[keyword]);
    if (value === null) throw this.#source.error(schema, keyword, 'has more than 60 digits');
    const exclusive = keyword.startsWith('exclusive');
    if (!integer || isWhole(value)) return { value, exclusive };
    // The next integer inside the bound.
    const isMin = keyword.endsWith('inimum');
    const away = wholeOf(value) + (isMin === value.negative ? 0n : isMin ? 1n : -1n);
    return {
      value: { negative: away < 0n, int: String(away < 0n ? -away : away), frac: '' },
      exclusive: false,
    };
  }

  #step(schema: JsonObject, known: number | null): number | null {
    if (schema.multipleOf === undefined) return known;
    const value = decimalOf(schema.multipleOf);
    const step = value !== null && isWhole(value) ? Number(wholeOf(value)) : 0;
    if (step < 1 || step > largestStep)
      throw this.#source.error(schema, 'multipleOf', `is supported for integers from 1 to ${largestStep}`);
    const both = known === null ? step : (known * step) / divisor(known, step);
    if (both > largestStep)
      throw this.#source.error(schema, 'multipleOf', `makes steps of ${both}: more than ${largestStep}`);
    return both;
  }

  /** Says which keyword a language was too much for. */
  attempt<T>(schema: JsonObject, keyword: string, make: () => T): T {
    try {
      return make();
    } catch (error) {
      if (error instanceof PatternError) throw this.#source.error(schema, keyword, error.message);
      throw error;
    }
  }
}

const int32Max = { negative: false, int: '2147483647', frac: '' };
const int32Min = { negative: true, int: '2147483648', frac: '' };

function isIntegerFormat({ format }: JsonObject): boolean {
  return format === 'int32' || format === 'int64';
}

function divisor(a: number, b: number): number {
  return b === 0 ? a : divisor(b, a % b);
}

export function count(schema: JsonObject, keyword: string): number | null {
  return schema[keyword] === undefined ? null : Number(schema[keyword]);
}

/** The same language with its lengths in the states. */
function counted({ dfa, lengths }: TextLanguage): Dfa | null {
  const { min, max } = lengths;
  const inner = dfa ?? anyTexts;
  const top = max === Number.POSITIVE_INFINITY ? min : max;
  return explore<readonly [number, number]>({
    start: [0, 0],
    key: ([state, length]) => `${state},${length}`,
    accepts: ([state, length]) => inner.accepts[state] === true && length >= min && length <= max,
    edges: ([state, length]) =>
      length >= max
        ? []
        : (inner.edges[state] ?? []).map(({ lo, hi, to }) => ({
            lo,
            hi,
            to: [to, Math.min(length + 1, top)] as const,
          })),
  });
}

/** What either accepts. */
function union(a: Dfa | null, b: Dfa | null): Dfa | null {
  if (a === null || b === null) return a ?? b;
  // Everything that is not outside both.
  const outside = without(anyTexts, a);
  const neither = outside === null ? null : without(outside, b);
  return without(anyTexts, neither);
}
