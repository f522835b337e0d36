/** Whether nothing that is written for one alternative is valid for another: what oneOf asks for. */
import type { JsonObject } from '../chat/index.ts';
import { count } from './languages.ts';
import { type Flat, type Flattener, type Kind, kindsOf, listedValues, writtenKinds } from './schema-flat.ts';
import { isValid, propertySchemas } from './schema-judge.ts';
import type { Schema, SchemaSource } from './schema-source.ts';

const deepest = 4;

export class Apartness {
  readonly #source: SchemaSource;
  readonly #flattener: () => Flattener;
  #depth = 0;

  constructor(source: SchemaSource, flattener: () => Flattener) {
    this.#source = source;
    this.#flattener = flattener;
  }

  /** True only where it is sure. */
  apart(written: Flat, other: Flat): boolean {
    const kinds = kindsOf(other);
    return [...writtenKinds(written)].every((kind) => !kinds.has(kind) || this.apartIn(kind, written, other));
  }

  /** The same for values of one kind. */
  apartIn(kind: Kind, written: Flat, other: Flat): boolean {
    const listed = listedValues(written);
    const isIn = (flat: Flat) => (value: Parameters<typeof isValid>[1]) =>
      flat.schemas.every((schema) => isValid(this.#source, value, schema));
    if (listed !== null) return !listed.filter(isIn(written)).some(isIn(other));
    const excluded = listedValues(other);
    if (excluded !== null) return !excluded.filter(isIn(other)).some(isIn(written));
    if (this.#depth >= deepest) return false;
    this.#depth++;
    try {
      if (kind === 'object') return this.#objectsApart(written, other);
      return kind === 'array' && this.#listsApart(written, other);
    } finally {
      this.#depth--;
    }
  }

  #objectsApart(written: Flat, other: Flat): boolean {
    const { names, open } = writtenNames(written);
    const required = new Set(written.schemas.flatMap(requiredNames));
    if (!open && other.schemas.flatMap(requiredNames).some((name) => !names.has(name))) return true;
    return [...required].some((name) =>
      this.#valuesApart(valueSchemas(written, name), valueSchemas(other, name)),
    );
  }

  #listsApart(written: Flat, other: Flat): boolean {
    const least = Math.max(0, ...written.schemas.map((schema) => count(schema, 'minItems') ?? 0));
    const most = Math.min(
      ...other.schemas.map((schema) => count(schema, 'maxItems') ?? Number.POSITIVE_INFINITY),
    );
    if (least > most) return true;
    const first = ({ schemas }: Flat): Schema[] =>
      schemas.map(
        ({ prefixItems, items }) => (prefixItems as Schema[] | undefined)?.[0] ?? (items as Schema) ?? true,
      );
    return least > 0 && this.#valuesApart(first(written), first(other));
  }

  #valuesApart(written: readonly Schema[], other: readonly Schema[]): boolean {
    const others = this.#flattener().flatten(other);
    return this.#flattener()
      .flatten(written)
      .every((one) => others.every((two) => this.apart(one, two)));
  }
}

export function requiredNames(schema: JsonObject): readonly string[] {
  return (schema.required ?? []) as readonly string[];
}

/** What all schemas say of the value behind a key. */
export function valueSchemas({ schemas }: Flat, name: string): Schema[] {
  return schemas.flatMap((schema) => propertySchemas(schema, name));
}

/**
 * The keys that are written for objects of a flat schema. Objects are open to other keys where a schema says so, or
 * where none names any key.
 */
export function writtenNames({ schemas }: Flat): {
  readonly names: ReadonlySet<string>;
  readonly open: boolean;
} {
  const names = new Set<string>();
  let namesKeys = false;
  let opens = false;
  for (const schema of schemas) {
    for (const name of Object.keys((schema.properties ?? {}) as object)) names.add(name);
    for (const name of requiredNames(schema)) names.add(name);
    namesKeys ||= schema.properties !== undefined || schema.required !== undefined;
    opens ||= schema.patternProperties !== undefined;
    opens ||= schema.additionalProperties !== undefined && schema.additionalProperties !== false;
  }
  return { names, open: opens || !namesKeys };
}
