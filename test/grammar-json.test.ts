/** Answers under a JSON schema: everything that can be written is valid, and what can not be compiled is said. */
import { describe, expect, it } from 'vitest';
import { compileConstraint } from '../src/grammar/index.ts';
import { acceptsText, sample, stopId, validator, vocabulary } from './support/grammar-samples.ts';

const node = {
  type: 'object',
  properties: {
    value: { type: 'integer' },
    next: { anyOf: [{ $ref: '#/$defs/node' }, { type: 'null' }] },
  },
  required: ['value', 'next'],
};

const schemas: Record<string, unknown> = {
  'an object': {
    type: 'object',
    properties: {
      a: { type: 'string' },
      b: { type: 'integer', minimum: -5, maximum: 123 },
      c: { enum: ['x', 1, null, { q: [1, 2] }] },
    },
    required: ['a'],
  },
  'a map': { type: 'object', additionalProperties: { type: 'number', exclusiveMinimum: 0.5, maximum: 20 } },
  'a list of alternatives': {
    type: 'array',
    items: {
      anyOf: [{ type: 'boolean' }, { type: 'null' }, { type: 'string', pattern: '^a+b*$', maxLength: 5 }],
    },
    minItems: 2,
    maxItems: 4,
  },
  recursion: { $ref: '#/$defs/node', $defs: { node } },
  'a list of types': { type: ['string', 'null'], minLength: 3 },
  allOf: {
    allOf: [
      { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] },
      { properties: { a: { minimum: 3 }, b: { type: 'boolean' } }, required: ['b'] },
    ],
  },
  'oneOf with a tag': {
    oneOf: [
      { type: 'object', properties: { k: { const: 'a' }, x: { type: 'integer' } }, required: ['k', 'x'] },
      { type: 'object', properties: { k: { const: 'b' }, y: { type: 'string' } }, required: ['k'] },
    ],
  },
  'oneOf of integers and numbers': { oneOf: [{ type: 'integer' }, { type: 'number' }] },
  'oneOf of ranges that meet': {
    oneOf: [
      { type: 'integer', minimum: 0 },
      { type: 'integer', maximum: 10 },
    ],
  },
  'oneOf of patterns that meet': {
    oneOf: [
      { type: 'string', pattern: '^a', maxLength: 3 },
      { type: 'string', pattern: 'b$', maxLength: 4 },
    ],
  },
  not: { type: 'string', not: { enum: ['a', 'b'] }, maxLength: 1 },
  'patterns of keys': {
    type: 'object',
    patternProperties: { '^x-': { type: 'integer' }, '-y$': { minimum: 3 } },
    additionalProperties: { type: 'boolean' },
    properties: { name: { type: 'string' } },
    minProperties: 1,
    maxProperties: 3,
  },
  'names of keys': {
    type: 'object',
    propertyNames: { pattern: '^[a-z]{2,4}$' },
    additionalProperties: { type: 'integer' },
  },
  'distinct items': { type: 'array', items: { enum: ['a', 'b', 'c'] }, uniqueItems: true, minItems: 2 },
  multiples: { type: 'integer', multipleOf: 7, minimum: 10, maximum: 100 },
  'a tuple': {
    type: 'array',
    prefixItems: [{ type: 'string' }, { type: 'integer' }],
    items: false,
    minItems: 1,
  },
  'negative numbers': { type: 'number', minimum: -1.25, maximum: -0.5 },
  'numbers between bounds': { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 1 },
  'large integers': { type: 'integer', minimum: 9007199254740900, maximum: 9007199254740990 },
  'no keys': { type: 'object', properties: {}, additionalProperties: false },
  'any object': { type: 'object' },
  'any value': {},
  'a long string': { type: 'string', minLength: 2, maxLength: 500 },
  'a pattern with lengths': { type: 'string', pattern: '^(ab|cde)*$', minLength: 4, maxLength: 7 },
  'a pattern of Unicode': { type: 'string', pattern: '^\\p{Lu}\\p{Ll}*[\\u{1F600}-\\u{1F64F}]?\\W"\\\\$' },
};
const formats = [
  'date',
  'time',
  'date-time',
  'duration',
  'email',
  'hostname',
  'ipv4',
  'ipv6',
  'uuid',
  'uri',
  'uri-reference',
  'url',
  'json-pointer',
  'relative-json-pointer',
  'byte',
];
for (const format of formats) schemas[`the format ${format}`] = { type: 'string', format };

function json(schema: unknown): { kind: 'json'; schema: string } {
  return { kind: 'json', schema: JSON.stringify(schema) };
}

describe('answers under a JSON schema', () => {
  it.each(Object.entries(schemas))('are valid with %s, whatever tokens are drawn', (_, schema) => {
    const isValid = validator(schema);
    let whole = 0;
    for (let seed = 1; seed <= 25; seed++) {
      const text = sample(json(schema), { seed, mostTokens: 200 });
      if (text === null) continue;
      whole++;
      expect(isValid(JSON.parse(text)), `${text} ${JSON.stringify(isValid.errors)}`).toBe(true);
    }
    expect(whole).toBeGreaterThan(2);
  });

  it('takes the layouts that models write, and no endless blanks', () => {
    const schema = json({ type: 'object', properties: { a: { type: 'array' }, b: { type: 'string' } } });
    for (const text of [
      '{"a":[1,2],"b":"x"}',
      '{"a": [1, 2], "b": "x"}',
      '{\n  "a": [\n    1,\n    2\n  ],\n  "b": "x"\n}',
      '{ "b": "\\u00e9\\ud83d\\ude00é😀" }',
      '{}',
    ])
      expect(acceptsText(schema, text), text).toBe(true);
    for (const text of [
      '{"a":  []}',
      '{"a":[1,\n\n2]}',
      '{"b":"\\ud83d"}',
      '{"b":"\\x"}',
      '{"b":"\n"}',
      '{"b":"x"} ',
      '{"b":"x","a":[]}',
      '{"c":1}',
    ])
      expect(acceptsText(schema, text), text).toBe(false);
  });

  it('counts characters, not bytes or escapes', () => {
    const schema = json({ type: 'string', minLength: 2, maxLength: 2 });
    for (const text of ['"ab"', '"é😀"', '"\\n\\ud83d\\ude00"'])
      expect(acceptsText(schema, text), text).toBe(true);
    for (const text of ['"a"', '"😀"', '"abc"']) expect(acceptsText(schema, text), text).toBe(false);
  });
});

describe('a schema that can not be compiled', () => {
  const cases: [string, unknown, RegExp][] = [
    ['if', { type: 'object', properties: { a: { if: {} } } }, /if at #\/properties\/a\/if is not supported/],
    ['contains', { type: 'array', contains: {} }, /contains at #\/contains/],
    ['$dynamicRef', { $dynamicRef: '#x' }, /\$dynamicRef at/],
    ['a reference to elsewhere', { $ref: 'https://example.com/x' }, /\$ref at #\/\$ref .*example/],
    ['a reference to nothing', { items: { $ref: '#/$defs/x' } }, /\$ref at #\/items\/\$ref/],
    ['a pattern with look-ahead', { type: 'string', pattern: '^(?=a)' }, /pattern at #\/pattern .*\(\?=/],
    ['a pattern that is none', { type: 'string', pattern: '(' }, /pattern at #\/pattern is no regular/],
    ['a type that is none', { type: 'text' }, /type at #\/type "text"/],
    ['a count that is none', { type: 'string', minLength: -1 }, /minLength at #\/minLength is -1/],
    ['a fraction as step', { type: 'number', multipleOf: 0.01 }, /multipleOf at #\/multipleOf/],
    [
      'overlapping objects',
      { oneOf: [{ type: 'object', properties: { a: {} } }, { type: 'object' }] },
      /oneOf at #\/oneOf has branches that may both hold for an object/,
    ],
    ['limits that contradict', { type: 'string', minLength: 5, maxLength: 2 }, /no value.*minLength at/],
    ['an enum without a fitting value', { type: 'integer', enum: ['a'] }, /no value.*enum at #\/enum/],
    [
      'a required key that can not be',
      { type: 'object', properties: { a: { enum: [1], type: 'string' } }, required: ['a'] },
      /no value.*enum at #\/properties\/a\/enum/,
    ],
    [
      'recursion without an end',
      { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] },
      /no value.*\$ref/,
    ],
    ['a reference to itself', { $ref: '#', type: 'object', properties: {}, minProperties: 1 }, /no value/],
    ['false', false, /no value/],
  ];
  it.each(cases)('is refused by name: %s', (_, schema, message) => {
    expect(() => compileConstraint(json(schema))).toThrow(
      expect.objectContaining({ code: 'invalid_request', message: expect.stringMatching(message) }),
    );
  });

  it('is refused when its text is no JSON or no schema', () => {
    expect(() => compileConstraint({ kind: 'json', schema: '{' })).toThrow(/not valid JSON/);
    expect(() => compileConstraint({ kind: 'json', schema: '3' })).toThrow(/3 is no schema/);
  });
});

describe('masks', () => {
  it('are what accept says, token by token', () => {
    for (const [seed, schema] of [
      schemas['an object'],
      schemas['patterns of keys'],
      schemas.recursion,
    ].entries())
      sample(json(schema), {
        seed,
        mostTokens: 40,
        visit: (matcher, allowed) => {
          const accepted: number[] = [];
          for (let id = 0; id < vocabulary.size; id++) if (matcher.clone().accept(id)) accepted.push(id);
          expect(allowed).toEqual(accepted);
          expect(matcher.ended).toBe(allowed.every((id) => id === stopId));
        },
      });
  });

  it('allow every forced token behind the ones before it', () => {
    let forced = 0;
    for (let seed = 0; seed < 5; seed++)
      sample(json(schemas['an object']), {
        seed,
        visit: (matcher) => {
          const copy = matcher.clone();
          const ids = matcher.forced(8);
          expect(ids.length).toBeLessThanOrEqual(8);
          for (const id of ids) expect(copy.accept(id)).toBe(true);
          forced += ids.length;
        },
      });
    expect(forced).toBeGreaterThan(20);
  });

  it('of a clone do not move with the original', () => {
    const matcher = compileConstraint({ kind: 'choice', options: ['ab', 'ac'] }).matcher(vocabulary);
    const before = new Uint32Array(vocabulary.words);
    matcher.mask(before);
    const copy = matcher.clone();
    expect(matcher.accept(matcher.forced(1)[0] as number)).toBe(true);
    const after = new Uint32Array(vocabulary.words);
    copy.mask(after);
    expect(after).toEqual(before);
  });
});

describe('patterns and choices', () => {
  it('hold the whole answer', () => {
    const regex = { kind: 'regex', pattern: '\\d{3}-[a-c]+|é' } as const;
    for (const text of ['123-abc', 'é']) expect(acceptsText(regex, text), text).toBe(true);
    for (const text of ['x123-a', '123-ad', '12-a', '']) expect(acceptsText(regex, text), text).toBe(false);
    const choice = { kind: 'choice', options: ['yes', 'no', 'yes please'] } as const;
    for (const text of ['yes', 'no', 'yes please']) expect(acceptsText(choice, text), text).toBe(true);
    for (const text of ['ye', 'yes p', 'nope']) expect(acceptsText(choice, text), text).toBe(false);
  });

  it('are refused where nothing matches', () => {
    expect(() => compileConstraint({ kind: 'choice', options: [] })).toThrow(/nothing to choose/);
    expect(() => compileConstraint({ kind: 'regex', pattern: 'a^b' })).toThrow(/matches no text/);
    expect(() => compileConstraint({ kind: 'regex', pattern: '(a)\\1' })).toThrow(/refers back/);
  });
});
