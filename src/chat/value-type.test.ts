/** What a schema makes of the text of a parameter. */
import { describe, expect, it } from 'vitest';
import { type JsonObject, type JsonValue, readAnswer } from './index.ts';

function argumentOf(schema: JsonValue, text: string, more: JsonObject = {}): unknown {
  const parameters = { type: 'object', properties: { x: schema }, ...more };
  const output = `<tool_call>\n<function=f>\n<parameter=x>\n${text}\n</parameter>\n</function>\n</tool_call>`;
  const options = {
    opensThinking: false,
    tools: [{ type: 'function', function: { name: 'f', parameters } }],
  };
  return JSON.parse(readAnswer(output, options).toolCalls[0]?.arguments ?? '').x;
}

const text = { type: 'string' };
const integer = { type: 'integer' };
const boolean = { type: 'boolean' };

describe('a value becomes what its schema allows', () => {
  it.each<[string, JsonValue, string, unknown]>([
    ['the second branch of allOf', { allOf: [{ description: 'd' }, integer] }, '5', 5],
    ['what all of allOf allow', { allOf: [{ type: ['string', 'integer'] }, { type: 'number' }] }, '5', 5],
    ['text in anyOf beside boolean', { anyOf: [boolean, text] }, 'auto', 'auto'],
    ['a boolean in anyOf beside text', { anyOf: [text, boolean] }, 'True', true],
    ['a boolean in oneOf behind text', { oneOf: [text, boolean] }, 'false', false],
    ['a boolean that is none', boolean, 'maybe', 'maybe'],
    ['0 for a boolean', boolean, '0', '0'],
    ['a number of a mixed enum', { enum: [1, 2, 'auto'] }, '2', 2],
    ['a word of a mixed enum', { enum: [1, 2, 'auto'] }, 'auto', 'auto'],
    ['the text of an enum beside a number', { enum: [1, '2'] }, '2', '2'],
    ['the number of an enum beside its text', { enum: [1, '1'] }, '1', 1],
    ['a constant', { const: 7 }, '7', 7],
    ['an integer with a fraction of zeros', integer, '140.0', 140],
    ['an integer with an exponent', integer, '1e3', 1000],
    ['a fraction for an integer', integer, '1.5', '1.5'],
    ['zeros in front', integer, '007', 7],
    ['zeros in front beside text', { anyOf: [integer, text] }, '007', '007'],
    ['a version beside text', { type: ['string', 'integer'] }, '1.0', '1.0'],
    ['an integer of a type list behind text', { type: ['string', 'integer'] }, '12', 12],
    ['a number beside text', { anyOf: [{ type: 'number' }, text] }, '-1.5e2', -150],
    ['null of a type list', { type: ['string', 'null'] }, 'null', null],
    ['an untyped object', { description: 'any JSON' }, '{"a": [1, 2]}', { a: [1, 2] }],
    ['an untyped list', {}, '[1, "a"]', [1, 'a']],
    ['an untyped number', {}, '12', '12'],
    ['an untyped brace that is no JSON', {}, '{oops', '{oops'],
    ['a schema that is true', true, '{"a": 1}', { a: 1 }],
    ['a list beside text', { anyOf: [text, { type: 'array' }] }, '["a"]', ['a']],
    ['text that begins like a list', { anyOf: [text, { type: 'array' }] }, '[a] b', '[a] b'],
    ['JSON for plain text', text, '{"a": 1}', '{"a": 1}'],
    ['an object where a list is due', { type: 'array' }, '{"a": 1}', '{"a": 1}'],
    ['a Python list', { type: 'array' }, "['a', None]", ['a', null]],
    ['a Python list beside text', { type: ['array', 'string'] }, "['a']", "['a']"],
    ['nullable', { type: 'integer', nullable: true }, 'null', null],
    ['a branch in a branch', { anyOf: [{ anyOf: [text, { type: 'null' }] }, integer] }, '3', 3],
    ['a list item', { items: text }, '["a"]', ['a']],
  ])('%s', (_, schema, written, expected) => {
    expect(argumentOf(schema, written)).toEqual(expected);
  });

  it('follows references beside other keywords, and into lists', () => {
    const more = { $defs: { N: { anyOf: [{ type: 'null' }, integer] } } };
    expect(argumentOf({ $ref: '#/$defs/N', description: 'd' }, '3', more)).toBe(3);
    expect(argumentOf({ $ref: '#/$defs/N/anyOf/1' }, '3', more)).toBe(3);
    expect(argumentOf({ $ref: '#/$defs/missing' }, '3', more)).toBe('3');
  });

  it('finds properties in the branches of the parameters', () => {
    expect(argumentOf(text, '3', { properties: {}, allOf: [{ properties: { x: integer } }] })).toBe(3);
    expect(
      argumentOf(text, '3', {
        properties: {},
        $ref: '#/$defs/P',
        $defs: { P: { properties: { x: integer } } },
      }),
    ).toBe(3);
    expect(argumentOf(text, '3', { properties: {}, additionalProperties: integer })).toBe(3);
  });

  it('ends for schemas that refer to themselves over and over', () => {
    const self = { $ref: '#/$defs/T' };
    const more = { $defs: { T: { anyOf: [self, self, self, self], allOf: [self, self] } } };
    expect(argumentOf(self, 'word', more)).toBe('word');
    expect(argumentOf(text, 'word', { properties: {}, ...more, ...self })).toBe('word');
  });
});
