/** From the parts of a schema to rules: every set of schemas that a value has to meet becomes one rule. */
import { type JsonObject, type JsonValue, stringifyCompact, stringifySpaced } from '../chat/index.ts';
import { UserError } from '../util/index.ts';
import { Apartness, requiredNames, valueSchemas, writtenNames } from './apart.ts';
import { ArrayShape, distinctItems } from './array-shape.ts';
import { both, type Dfa, matches, ofTexts, without } from './dfa.ts';
import { anyTexts, count, Languages, type TextLanguage } from './languages.ts';
import { branches, empty, literal, type Node, seq } from './node.ts';
import { type Extra, jsonStyle, ObjectShape, type ObjectStyle } from './object-shape.ts';
import { patternDfa } from './pattern-dfa.ts';
import { causeOf, plainShape, Rule, type Shape } from './rule.ts';
import { type Flat, Flattener, type Kind, kindsOf, listedValues, writtenKinds } from './schema-flat.ts';
import { canonical, isValid, kindOf } from './schema-judge.ts';
import type { Schema, SchemaSource } from './schema-source.ts';
import { anyLength, textNode } from './text.ts';

/** How the values are written. */
export interface Writing {
  /** Texts that no string may contain, where JSON stands inside other text; null: any may. */
  readonly texts: Dfa | null;
  /** A value's JSON text as it is written there. */
  readonly literal: (text: string) => string;
}

export const plainJson: Writing = { texts: null, literal: (text) => text };

/** How the keys and values of an object are written. */
export interface ObjectForm {
  readonly style: ObjectStyle;
  /** A key as it is written; null where it can not be. */
  key(name: string): string | null;
  /** Keys of a language. */
  keys(dfa: Dfa): Node | null;
  /** The values of a property that meet these schemas; `name` is null for a key that no schema names. */
  value(schemas: readonly Schema[], name: string | null): Rule;
}

const quote = literal('"');
/** Any string; one node for all grammars, so that they share its masks. */
const anyString = seq(quote, textNode(anyTexts, 'free') as Node, quote);

const mostRules = 20_000;
const mostHeight = 64;
const mostRounds = 300;
const mostPatterns = 4;
const mostItems = 100_000;

export class SchemaCompiler {
  readonly source: SchemaSource;
  readonly flattener: Flattener;
  readonly languages: Languages;
  readonly writing: Writing;
  readonly #apartness: Apartness;
  readonly #rules = new Map<string, Rule>();
  readonly #todo: (() => void)[] = [];

  readonly #jsonForm: ObjectForm = {
    style: jsonStyle,
    key: (name) => this.writing.literal(JSON.stringify(name)),
    keys: (dfa) => this.#quoted({ dfa, lengths: anyLength }),
    value: (schemas) => this.rule(schemas),
  };

  constructor(source: SchemaSource, writing: Writing) {
    this.source = source;
    this.writing = writing;
    this.#apartness = new Apartness(source, () => this.flattener);
    this.flattener = new Flattener(source, (written, other) => this.#apartness.apart(written, other));
    this.languages = new Languages(source, this.flattener);
  }

  /** The values that meet all of these schemas. Its shapes are there after `settle`. */
  rule(schemas: readonly Schema[]): Rule {
    const parts = schemas.filter((schema) => schema !== true);
    const ids = parts.map((part) => (part === false ? -1 : this.source.id(part as JsonObject)));
    const key = [...new Set(ids)].sort((a, b) => a - b).join();
    return this.ruleOf(key, (rule) => {
      for (const flat of this.flattener.flatten(parts)) this.#addShapes(rule, flat);
    });
  }

  /** One rule per key, filled in later. */
  ruleOf(key: string, fill: (rule: Rule) => void): Rule {
    let rule = this.#rules.get(key);
    if (rule === undefined) {
      if (this.#rules.size >= mostRules)
        throw new UserError('invalid_request', `schema: more than ${mostRules} kinds of values are too many`);
      const made = new Rule();
      rule = made;
      this.#rules.set(key, made);
      this.#todo.push(() => fill(made));
    }
    return rule;
  }

  /** Works out all rules that have been asked for. Throws UserError where `root` can not be met. */
  settle(what: string, root: () => Rule): Rule {
    const rule = root();
    for (let i = 0; i < this.#todo.length; i++) this.#todo[i]?.();
    this.#todo.length = 0;
    const rules = [...this.#rules.values()].reverse();
    let changes = true;
    for (let round = 0; changes && round < mostRounds; round++) {
      changes = false;
      for (const one of rules) changes = one.settle() || changes;
    }
    if (!rule.isPossible)
      throw new UserError('invalid_request', `${what}: no value can be valid: ${causeOf(rule)}`);
    if (rules.some((one) => one.isPossible && one.height > mostHeight))
      throw new UserError('invalid_request', `${what}: values nest more than ${mostHeight} levels deep`);
    return rule;
  }

  #addShapes(rule: Rule, flat: Flat): void {
    const listed = this.listed(flat);
    if (listed !== null) {
      const texts = listed.flatMap((value) => this.jsonTexts(value));
      if (texts.length > 0) rule.shapes.push(plainShape(branchesOf(texts)));
      else rule.notes.push(this.#note(flat, ['const', 'enum']));
      return;
    }
    const kinds = writtenKinds(flat);
    if (kinds.size === 0) rule.notes.push(this.#note(flat, ['type', 'allOf']));
    const before = rule.shapes.length;
    if (kinds.has('string')) this.#add(rule, this.#stringShape(flat));
    this.addOthers(rule, flat, kinds);
    if (rule.shapes.length === before) rule.notes.push(this.#note(flat, limitKeywords));
  }

  /** The shapes of all values but strings. */
  addOthers(rule: Rule, flat: Flat, kinds: ReadonlySet<Kind>): void {
    const words = [null, true, false].filter(
      (word) => kinds.has(kindOf(word)) && !this.#isExcluded(word, flat),
    );
    if (words.length > 0) rule.shapes.push(plainShape(branchesOf(words.map(String))));
    const numbers = this.languages.numbers(flat, kinds);
    const number = numbers === null ? null : textNode(numbers, 'raw');
    if (number !== null) rule.shapes.push(plainShape(number));
    if (kinds.has('array')) this.#add(rule, this.#arrayShape(flat));
    if (kinds.has('object')) this.#add(rule, this.objectShape(flat, this.#jsonForm));
  }

  #add(rule: Rule, shape: Shape | null): void {
    if (shape !== null) rule.shapes.push(shape);
  }

  /** The values of enum and const that meet everything else; null where there are neither. */
  listed(flat: Flat): JsonValue[] | null {
    const values = listedValues(flat);
    if (values === null) return null;
    const kinds = kindsOf(flat);
    const seen = new Set<string>();
    return values.filter((value) => {
      const text = canonical(value);
      if (seen.has(text) || !kinds.has(kindOf(value))) return false;
      seen.add(text);
      return (
        flat.schemas.every((schema) => isValid(this.source, value, schema)) && !this.#isExcluded(value, flat)
      );
    });
  }

  #isExcluded(value: JsonValue, { exclusions }: Flat): boolean {
    return exclusions.some(({ schema }) => isValid(this.source, value, schema));
  }

  /** How a value may be written; nothing for text that is no Unicode. */
  jsonTexts(value: JsonValue): string[] {
    const texts = [...new Set([stringifySpaced(value), stringifyCompact(value)])];
    return texts.filter((text) => !/\p{Surrogate}|\\ud[89a-f]/iu.test(text)).map(this.writing.literal);
  }

  #note(flat: Flat, keywords: readonly string[]): string {
    for (const keyword of keywords)
      for (const schema of flat.schemas)
        if (schema[keyword] !== undefined)
          return `${keyword} at ${this.source.place(schema, keyword)} leaves none`;
    return 'nothing is left of its types';
  }

  #stringShape(flat: Flat): Shape | null {
    const language = this.languages.texts(flat);
    const node = language === null ? null : this.#quoted(language);
    return node === null ? null : plainShape(node);
  }

  #quoted({ dfa, lengths }: TextLanguage): Node | null {
    const { texts } = this.writing;
    const met = dfa !== null && texts !== null ? both(dfa, texts) : (dfa ?? texts);
    if (met === null && dfa !== null) return null;
    if (met === null && lengths.min === 0 && lengths.max === Number.POSITIVE_INFINITY) return anyString;
    const node = textNode(met ?? anyTexts, met === null ? 'free' : 'json', lengths);
    return node === null ? null : seq(quote, node, quote);
  }

  #arrayShape(flat: Flat): Shape | null {
    this.#refuseOverlap(flat, 'array');
    const { schemas } = flat;
    const min = Math.max(0, ...schemas.map((schema) => count(schema, 'minItems') ?? 0));
    const max = Math.min(...schemas.map((schema) => count(schema, 'maxItems') ?? Number.POSITIVE_INFINITY));
    const large = schemas.find((schema) => (count(schema, 'minItems') ?? 0) > mostItems);
    if (large !== undefined) throw this.source.error(large, 'minItems', `is more than ${mostItems}`);
    const prefix = (schema: JsonObject): readonly Schema[] => (schema.prefixItems ?? []) as readonly Schema[];
    const at = (i: number): Schema[] =>
      schemas.map((schema) => prefix(schema)[i] ?? (schema.items as Schema | undefined) ?? true);
    const firsts = Math.max(0, ...schemas.map((schema) => prefix(schema).length));
    const distinct = schemas.find(({ uniqueItems }) => uniqueItems === true);
    if (distinct !== undefined && max > 1)
      return this.#distinctShape(distinct, firsts > 0 ? null : at(0), { min, max });
    const first = Array.from({ length: Math.min(firsts, max) }, (_, i) => this.rule(at(i)));
    return new ArrayShape({ first, rest: this.rule(at(firsts)), min, max });
  }

  #distinctShape(
    schema: JsonObject,
    items: Schema[] | null,
    { min, max }: { min: number; max: number },
  ): Shape | null {
    const lists = items === null ? null : this.flattener.flatten(items).map((flat) => this.listed(flat));
    if (lists === null || lists.some((list) => list === null))
      throw this.source.error(schema, 'uniqueItems', 'is supported where enum or const lists the items');
    const values = new Map(lists.flatMap((list) => list ?? []).map((value) => [canonical(value), value]));
    const texts = [...values.values()].flatMap((value) => this.jsonTexts(value)[0] ?? []);
    return texts.length < min ? null : plainShape(distinctItems(texts, min, max));
  }

  /** Throws UserError. */
  objectShape(flat: Flat, form: ObjectForm): Shape {
    this.#refuseOverlap(flat, 'object');
    const { schemas } = flat;
    const { names } = writtenNames(flat);
    const required = new Set(schemas.flatMap(requiredNames));
    const keyRules = schemas.flatMap(({ propertyNames }) =>
      propertyNames === undefined ? [] : [propertyNames as Schema],
    );
    const isName = (name: string): boolean => keyRules.every((schema) => isValid(this.source, name, schema));
    const properties = [...names].flatMap((name) => {
      const key = isName(name) && !/\p{Surrogate}/u.test(name) ? form.key(name) : null;
      if (key === null && !required.has(name)) return [];
      const rule = key === null ? this.rule([false]) : form.value(valueSchemas(flat, name), name);
      return [{ key: key ?? '', rule, required: required.has(name) }];
    });
    const bounds = schemas.map((schema) => [
      count(schema, 'minProperties') ?? 0,
      count(schema, 'maxProperties'),
    ]);
    const min = Math.max(0, ...bounds.map(([least]) => least ?? 0));
    const max = Math.min(...bounds.map(([, most]) => most ?? Number.POSITIVE_INFINITY));
    const extras = this.#extras(flat).flatMap(({ dfa, schemas: own }): Extra[] => {
      const key = form.keys(dfa);
      return key === null ? [] : [{ key, rule: form.value(own, null) }];
    });
    const large = schemas.find((schema) => (count(schema, 'minProperties') ?? 0) > properties.length + 1);
    if (large !== undefined && extras.length > 0)
      throw this.source.error(large, 'minProperties', `is supported up to ${properties.length + 1} here`);
    return new ObjectShape({ style: form.style, properties, extras, min, max });
  }

  /** The keys that are not declared, in groups with the same schemas for their values. */
  #extras(flat: Flat): { readonly dfa: Dfa; readonly schemas: Schema[] }[] {
    const { names, open } = writtenNames(flat);
    if (!open) return [];
    const patterns = [
      ...new Set(flat.schemas.flatMap(({ patternProperties }) => Object.keys(patternProperties ?? {}))),
    ];
    const owner = flat.schemas.find(({ patternProperties }) => patternProperties !== undefined) ?? {};
    if (patterns.length > mostPatterns)
      throw this.source.error(owner, 'patternProperties', `has more than ${mostPatterns} patterns`);
    return this.languages.attempt(owner, 'patternProperties', () => {
      const keys = without(this.#keyTexts(flat), ofTexts([...names]));
      let groups: Dfa[] = keys === null ? [] : [keys];
      for (const pattern of patterns) {
        const matching = patternDfa(pattern, 'search');
        groups = groups.flatMap((dfa) => {
          const parts = [matching === null ? null : both(dfa, matching), without(dfa, matching)];
          return parts.filter((part) => part !== null);
        });
      }
      const declared = names.size > 0;
      return groups.flatMap((dfa) => {
        const own = valueSchemas(flat, sampleOf(dfa));
        // Where properties are named, others need a schema that speaks of them.
        return own.includes(false) || (declared && own.length === 0) ? [] : [{ dfa, schemas: own }];
      });
    });
  }

  #keyTexts(flat: Flat): Dfa {
    const rules = flat.schemas.flatMap(({ propertyNames }) =>
      propertyNames === undefined ? [] : [propertyNames as Schema],
    );
    if (rules.length === 0) return anyTexts;
    const owner = flat.schemas.find(({ propertyNames }) => propertyNames !== undefined) ?? {};
    const dfas = this.flattener.flatten(rules).map((one) => this.#keysOf(owner, one));
    const [only] = dfas;
    if (dfas.length !== 1 || only === undefined || only === null)
      throw this.source.error(owner, 'propertyNames', 'is supported for one pattern, format, length or enum');
    return only;
  }

  #keysOf(owner: JsonObject, flat: Flat): Dfa | null {
    const listed = this.listed(flat);
    if (listed !== null) return ofTexts(listed.filter((value) => typeof value === 'string'));
    const language = kindsOf(flat).has('string') ? this.languages.texts(flat) : null;
    return language === null
      ? null
      : this.languages.attempt(owner, 'propertyNames', () => this.languages.whole(language));
  }

  /** Throws where an object or list of this alternative could be valid for what must not hold. */
  #refuseOverlap(flat: Flat, kind: Kind): void {
    for (const { schema, from, keyword } of flat.exclusions)
      for (const other of this.flattener.flatten([schema])) {
        if (!kindsOf(other).has(kind) || this.#apartness.apartIn(kind, flat, other)) continue;
        const what = kind === 'array' ? 'a list' : 'an object';
        const problem = keyword === 'oneOf' ? 'has branches that may both hold for' : 'is not supported for';
        throw this.source.error(from, keyword, `${problem} ${what}`);
      }
  }
}

const limitKeywords = [
  'pattern',
  'format',
  'minLength',
  'maxLength',
  'minimum',
  'maximum',
  'exclusiveMinimum',
  'exclusiveMaximum',
  'multipleOf',
  'uniqueItems',
  'not',
  'oneOf',
  'type',
];

function branchesOf(texts: readonly string[]): Node {
  return branches([...new Set(texts)].map((text) => ({ text, next: empty, height: 0 })));
}

/** A text of a language. */
function sampleOf(dfa: Dfa): string {
  const seen = new Set([0]);
  const todo: { state: number; text: string }[] = [{ state: 0, text: '' }];
  for (let at = todo.shift(); at !== undefined; at = todo.shift()) {
    if (matches(dfa, at.text)) return at.text;
    for (const { lo, to } of dfa.edges[at.state] ?? [])
      if (!seen.has(to)) {
        seen.add(to);
        todo.push({ state: to, text: at.text + String.fromCodePoint(lo) });
      }
  }
  return '';
}
