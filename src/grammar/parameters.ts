/** The parameters of a tool call, up to `</function>`. */
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  orderedKeys,
  parseLossless,
  propertyType,
} from '../chat/index.ts';
import {
  anyValue,
  heldTexts,
  holdsTag,
  isName,
  jsonInTags,
  keyTexts,
  looseValue,
  valueEnd,
  valueTexts,
} from './call-text.ts';
import { both, type Dfa, without } from './dfa.ts';
import type { TextLanguage } from './languages.ts';
import { alt, branches, empty, frame, lazy, literal, type Node, seq } from './node.ts';
import type { ObjectStyle } from './object-shape.ts';
import { patternDfa } from './pattern-dfa.ts';
import { plainShape, type Rule, type Shape } from './rule.ts';
import { SchemaCompiler } from './schema-compiler.ts';
import { type Flat, type Kind, kindsOf, listedValues, writtenKinds } from './schema-flat.ts';
import { type Schema, SchemaSource } from './schema-source.ts';
import { textNode } from './text.ts';
import type { CallableTool } from './types.ts';

const noParameters = '{"type":"object","properties":{}}';
/** No tag can hold this key. */
const unnamed = '\n';
const longestKey = 128;
const mostNamed = 1_000;
const mostOthers = 64;

const style: ObjectStyle = {
  open: empty,
  lead: empty,
  between: empty,
  behindKey: empty,
  close: empty,
  closeBehind: empty,
};

/** Values hold to the schema: keys in its order, each once, required ones present. Throws UserError. */
export function strictParameters({ name, parameters }: CallableTool): Node {
  const what = `tool ${name}: parameters`;
  const source = new SchemaSource(parameters ?? noParameters, what);
  const compiler = new SchemaCompiler(source, jsonInTags);
  const values = new ParameterValues(source, compiler);
  return compiler.settle(what, () => compiler.ruleOf('call', (rule) => values.fillCall(rule))).node;
}

class ParameterValues {
  readonly #source: SchemaSource;
  readonly #compiler: SchemaCompiler;

  constructor(source: SchemaSource, compiler: SchemaCompiler) {
    this.#source = source;
    this.#compiler = compiler;
  }

  fillCall(rule: Rule): void {
    const form = {
      style,
      key: (name: string) => (isName(name) ? `<parameter=${name}>\n` : null),
      keys: (dfa: Dfa) => keysOf(dfa),
      value: (schemas: readonly Schema[], name: string | null) => this.#value(schemas, name),
    };
    for (const flat of this.#compiler.flattener.flatten([this.#source.root])) {
      if (kindsOf(flat).has('object')) rule.shapes.push(this.#compiler.objectShape(flat, form));
      else rule.notes.push('its type is no object, which arguments are');
    }
    if (rule.shapes.length === 0) rule.notes.push('it leaves no object');
  }

  #value(schemas: readonly Schema[], name: string | null): Rule {
    const kinds = this.#readKinds(name);
    const parts = schemas.filter((schema) => typeof schema !== 'boolean');
    const ids = schemas.includes(false)
      ? 'none'
      : parts
          .map((schema) => this.#source.id(schema))
          .sort()
          .join();
    const key = `value:${ids}:${kinds === null ? 'any' : [...kinds].sort().join()}`;
    return this.#compiler.ruleOf(key, (rule) =>
      this.#fill(rule, key, this.#compiler.flattener.flatten(schemas), kinds),
    );
  }

  #fill(rule: Rule, key: string, flats: readonly Flat[], kinds: ReadonlySet<string> | null): void {
    const others = this.#compiler.ruleOf(`json:${key}`, (inner) => {
      for (const flat of flats) this.#compiler.addOthers(inner, flat, jsonKinds(flat));
    });
    for (const flat of flats) {
      const listed = this.#compiler.listed(flat);
      if (listed !== null) rule.shapes.push(...this.#listedShapes(listed));
      else if (flat.schemas.length === 0) rule.shapes.push(plainShape(anyValue));
      else if (writtenKinds(flat).has('string'))
        this.#addText(rule, this.#compiler.languages.texts(flat), kinds);
    }
    rule.shapes.push({
      needs: [others],
      height: () => others.height,
      node: () => seq(others.node, valueEnd),
    });
    rule.notes.push('it leaves no value');
  }

  #listedShapes(values: readonly JsonValue[]): Shape[] {
    const texts = values.flatMap((value) =>
      typeof value !== 'string' ? this.#compiler.jsonTexts(value) : isRaw(value) ? [value] : [],
    );
    if (texts.length === 0) return [];
    const node = branches([...new Set(texts)].map((text) => ({ text, next: valueEnd, height: 0 })));
    return [plainShape(node)];
  }

  #addText(rule: Rule, language: TextLanguage | null, kinds: ReadonlySet<string> | null): void {
    if (language === null) return;
    const { dfa, lengths } = language;
    const isHeld = dfa !== null || lengths.min > 0 || lengths.max < Number.POSITIVE_INFINITY;
    const raw = isHeld ? heldTexts : valueTexts;
    const readAsOther = otherTexts(kinds);
    const met = dfa === null ? raw : both(dfa, raw);
    const left = met === null || readAsOther === null ? met : without(met, readAsOther);
    const node = left === valueTexts ? anyValue : left === null ? null : textNode(left, 'raw', lengths);
    if (node !== null) rule.shapes.push(plainShape(node === anyValue ? node : seq(node, valueEnd)));
  }

  /** The kinds that the reader of the call knows for a parameter: what looks like one of them becomes it. */
  #readKinds(name: string | null): ReadonlySet<string> | null {
    const { root } = this.#source;
    return isJsonObject(root) ? propertyType(root, name ?? unnamed).kinds : null;
  }
}

/** Kinds that stand as JSON, with what lists values left out. */
function jsonKinds(flat: Flat): ReadonlySet<Kind> {
  if (listedValues(flat) !== null || flat.schemas.length === 0) return new Set();
  const kinds = writtenKinds(flat);
  kinds.delete('string');
  return kinds;
}

/** The reader gives back exactly this text. */
function isRaw(text: string): boolean {
  return !holdsTag(text) && !text.endsWith('\r') && !/\p{Surrogate}/u.test(text);
}

const readings: readonly (readonly [kinds: readonly string[], pattern: string])[] = [
  [['null'], 'null|None|Null|NULL'],
  [['boolean'], '\\s*(?:[tT][rR][uU][eE]|[fF][aA][lL][sS][eE])\\s*'],
  [['integer', 'number'], '\\s*-?\\d[\\d.eE+-]*\\s*'],
  [['object', 'array'], '\\s*[[{][^]*'],
];

/** Texts that the reader would make something else of than a string; null: none. `kinds` null: it knows of no kind. */
function otherTexts(kinds: ReadonlySet<string> | null): Dfa | null {
  const known = kinds ?? new Set(['object', 'array']);
  const patterns = readings
    .filter(([names]) => names.some((name) => known.has(name)))
    .map(([, pattern]) => pattern);
  return patterns.length === 0 ? null : patternDfa(patterns.join('|'), 'whole');
}

function keysOf(dfa: Dfa): Node | null {
  const keys = both(dfa, keyTexts);
  const node = keys === null ? null : textNode(keys, 'raw', { min: 1, max: longestKey });
  return node === null ? null : seq(literal('<parameter='), node, literal('>\n'));
}

let loose: { readonly key: Node; readonly value: Node } | null = null;

/** One parameter with any key, and any value, each in its frame. */
function looseParts(): { readonly key: Node; readonly value: Node } {
  loose ??= {
    key: frame(seq(textNode(keyTexts, 'raw', { min: 1, max: longestKey }) as Node, literal('>')), 1),
    value: frame(looseValue(), 1),
  };
  return loose;
}

/**
 * Values are free text. The names that the schema gives, in any order, each once, required ones present; other names
 * where it gives none or allows them. A schema that is not understood asks for nothing.
 */
export function freeParameters({ parameters }: CallableTool): Node {
  const schema = readLoosely(parameters ?? noParameters);
  const properties = isJsonObject(schema.properties) ? schema.properties : null;
  const names = properties === null ? [] : orderedKeys(properties).filter(isName);
  const { additionalProperties: others } = schema;
  const isOpen =
    properties === null || (others !== undefined && others !== false) || names.length > mostNamed;
  const required = Array.isArray(schema.required) ? new Set<unknown>(schema.required) : new Set();
  const { key, value } = looseParts();
  const behind = (left: readonly string[], count: number): Node =>
    lazy(() => {
      const next = left.map((name) => {
        const rest = behind(
          left.filter((other) => other !== name),
          count,
        );
        return { text: `<parameter=${name}>`, next: seq(value, rest), height: 0 };
      });
      const options = next.length > 0 ? [branches(next)] : [];
      if (isOpen && count < mostOthers)
        options.push(seq(literal('<parameter='), key, value, behind(left, count + 1)));
      return alt(left.some((name) => required.has(name)) ? options : [...options, empty]);
    });
  return behind(names.length > mostNamed ? [] : names, 0);
}

function readLoosely(text: string): JsonObject {
  try {
    const schema = parseLossless(text);
    return isJsonObject(schema) ? schema : {};
  } catch {
    return {};
  }
}
