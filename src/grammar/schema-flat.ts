/**
 * From nested schemas to flat ones: references, allOf, anyOf and oneOf become a list of alternatives, each a set of
 * schemas whose own keywords all hold, and of schemas that must not hold.
 */
import type { JsonObject, JsonValue } from '../chat/index.ts';
import type { Schema, SchemaSource } from './schema-source.ts';

/** A schema that must not hold, and the keyword that says so. */
export interface Exclusion {
  readonly schema: Schema;
  readonly from: JsonObject;
  readonly keyword: 'oneOf' | 'not';
}

export interface Flat {
  readonly schemas: readonly JsonObject[];
  readonly exclusions: readonly Exclusion[];
}

const mostAlternatives = 2_000;
const mostWork = 50_000;

/** Whether nothing that an alternative writes fits another. */
export type Apart = (written: Flat, other: Flat) => boolean;

export class Flattener {
  readonly #source: SchemaSource;
  readonly #apart: Apart;
  #work = 0;

  /** `apart` spares oneOf the exclusion of branches that can not meet. */
  constructor(source: SchemaSource, apart: Apart) {
    this.#source = source;
    this.#apart = apart;
  }

  /** All ways to meet all of these; empty when there is none. Throws UserError. */
  flatten(schemas: readonly Schema[]): Flat[] {
    return this.#flatten(schemas, { schemas: [], exclusions: [] });
  }

  #flatten(list: readonly Schema[], base: Flat): Flat[] {
    const flat = new Set(base.schemas);
    const exclusions = [...base.exclusions];
    const choices: { schema: JsonObject; keyword: 'anyOf' | 'oneOf' }[] = [];
    const todo = [...list].reverse();
    for (let schema = todo.pop(); schema !== undefined; schema = todo.pop()) {
      if (schema === false) return [];
      if (schema === true || flat.has(schema)) continue;
      flat.add(schema);
      this.#source.check(schema);
      if (schema.$ref !== undefined) todo.push(this.#source.resolve(schema));
      if (schema.allOf !== undefined) todo.push(...[...(schema.allOf as Schema[])].reverse());
      if (schema.not !== undefined)
        exclusions.push({ schema: schema.not as Schema, from: schema, keyword: 'not' });
      for (const keyword of ['anyOf', 'oneOf'] as const)
        if (schema[keyword] !== undefined) choices.push({ schema, keyword });
    }
    let flats: Flat[] = [{ schemas: [...flat], exclusions }];
    for (const { schema, keyword } of choices) {
      flats = flats.flatMap((one) => this.#choose(one, schema, keyword));
      if (flats.length > mostAlternatives)
        throw this.#source.error(schema, keyword, `makes more than ${mostAlternatives} alternatives`);
    }
    return flats;
  }

  #choose(base: Flat, schema: JsonObject, keyword: 'anyOf' | 'oneOf'): Flat[] {
    const options = schema[keyword] as readonly Schema[];
    this.#work += options.length;
    if (this.#work > mostWork) throw this.#source.error(schema, keyword, 'makes too many alternatives');
    const ways = options.map((option) => this.#flatten([option], base));
    if (keyword === 'anyOf') return ways.flat();
    this.#work += options.length ** 2;
    return ways.flatMap((way, i) =>
      way.map((one) => {
        const others = options.filter(
          (_, j) => j !== i && !(ways[j] as Flat[]).every((other) => this.#apart(one, other)),
        );
        const exclusions = others.map((other) => ({ schema: other, from: schema, keyword }) as const);
        return { schemas: one.schemas, exclusions: [...one.exclusions, ...exclusions] };
      }),
    );
  }
}

/** The kinds of JSON values; a number that is no integer is a fraction. */
export type Kind = 'null' | 'boolean' | 'integer' | 'fraction' | 'string' | 'array' | 'object';

const allKinds: readonly Kind[] = ['null', 'boolean', 'integer', 'fraction', 'string', 'array', 'object'];

const keywordKinds: readonly (readonly [string, readonly Kind[]])[] = [
  ['properties', ['object']],
  ['required', ['object']],
  ['additionalProperties', ['object']],
  ['patternProperties', ['object']],
  ['items', ['array']],
  ['prefixItems', ['array']],
  ['pattern', ['string']],
  ['minLength', ['string']],
  ['maxLength', ['string']],
  ['minimum', ['integer', 'fraction']],
  ['maximum', ['integer', 'fraction']],
];

/** The kinds that all schemas allow. */
export function kindsOf({ schemas }: Flat): Set<Kind> {
  let kinds = new Set(allKinds);
  for (const schema of schemas) {
    if (schema.type === undefined) continue;
    const names = Array.isArray(schema.type) ? (schema.type as readonly string[]) : [schema.type as string];
    const own = new Set(names.flatMap((name) => (name === 'number' ? ['integer', 'fraction'] : [name])));
    if (schema.nullable === true) own.add('null');
    kinds = new Set([...kinds].filter((kind) => own.has(kind)));
  }
  return kinds;
}

/** The kinds that are written: where no type is given, those that the keywords speak of, if any does. */
export function writtenKinds(flat: Flat): Set<Kind> {
  if (flat.schemas.some(({ type }) => type !== undefined)) return kindsOf(flat);
  const told = keywordKinds.filter(([keyword]) =>
    flat.schemas.some((schema) => schema[keyword] !== undefined),
  );
  return new Set(told.length === 0 ? allKinds : told.flatMap(([, kinds]) => kinds));
}

/** The values that enum and const allow, still to be checked against the rest; null where there are neither. */
export function listedValues({ schemas }: Flat): readonly JsonValue[] | null {
  for (const schema of schemas) {
    if ('const' in schema) return [schema.const as JsonValue];
    if (schema.enum !== undefined) return schema.enum as readonly JsonValue[];
  }
  return null;
}
