/** Lossless JSON: equal to JSON.parse where JavaScript loses nothing, strict, bounded, and Python's style on output. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UserError } from '../util/index.ts';
import {
  JsonNumber,
  type JsonObject,
  jsonDepthLimit,
  orderedKeys,
  parseLossless,
  stringifyCompact,
  stringifyPython,
  stringifySpaced,
  toPlainJson,
} from './index.ts';

describe('parseLossless', () => {
  it('agrees with JSON.parse on any value', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.nat(3), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        expect(toPlainJson(parseLossless(text))).toEqual(JSON.parse(text));
        expect(JSON.parse(stringifyCompact(parseLossless(text)))).toEqual(JSON.parse(text));
        expect(JSON.parse(stringifyPython(parseLossless(text)))).toEqual(JSON.parse(text));
      }),
      { numRuns: 500 },
    );
  });

  it('accepts exactly what JSON.parse accepts', () => {
    const bit = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '"',
      '\\',
      'u00e9',
      'a',
      '1',
      '-',
      '.',
      'e',
      '+',
      '0',
      ' ',
      '\n',
      'true',
      'nul',
      'null',
      '\u0001',
      '\uFEFF',
      '"k":',
      'NaN',
    );
    fc.assert(
      fc.property(fc.array(bit, { maxLength: 8 }), (bits) => {
        const text = bits.join('');
        expect(outcome(() => toPlainJson(parseLossless(text)))).toEqual(outcome(() => JSON.parse(text)));
      }),
      { numRuns: 4000 },
    );
  });

  it('keeps number lexemes and still reads as a number', () => {
    const text = '[1.0,-0,1e5,12345678901234567890,0.1,7,1.50]';
    const value = parseLossless(text);
    expect(stringifyCompact(value)).toBe(text);
    expect(toPlainJson(value)).toEqual([1, -0, 1e5, 12345678901234567000, 0.1, 7, 1.5]);
    expect((value as unknown[])[5]).toBe(7);
    expect((value as unknown[])[0]).toBeInstanceOf(JsonNumber);
    expect(JSON.stringify(value)).toBe('[1,0,100000,12345678901234567000,0.1,7,1.5]');
  });

  it('keeps the order of keys, index-like and repeated ones too', () => {
    expect(stringifyCompact(parseLossless('{"b":1,"10":2,"2":3,"b":4,"a":5}'))).toBe(
      '{"b":4,"10":2,"2":3,"a":5}',
    );
    expect(orderedKeys(parseLossless('{"x":0,"0":0}') as JsonObject)).toEqual(['x', '0']);
  });

  it('takes __proto__ as a key like any other', () => {
    const value = parseLossless('{"__proto__":{"polluted":1},"a":2}') as JsonObject;
    expect(Object.keys(value)).toEqual(['__proto__', 'a']);
    expect(({} as { polluted?: number }).polluted).toBeUndefined();
    expect(stringifyCompact(value)).toBe('{"__proto__":{"polluted":1},"a":2}');
  });

  it('names line and column of what is wrong', () => {
    expect(() => parseLossless('{"a": 1,\n "b" 2}', { what: 'request body', param: 'body' })).toThrow(
      'request body is not valid JSON: expected ":" at line 2, column 6, found "2"',
    );
    expect(() => parseLossless('')).toThrow(/expected a value at line 1, column 1, found the end/);
    expect(() => parseLossless('"abc')).toThrow(/the end of the string/);
  });

  it('refuses depth beyond the limit by name, and takes depth up to it', () => {
    const nested = (n: number): string => '['.repeat(n) + ']'.repeat(n);
    expect(parseLossless(nested(jsonDepthLimit))).toBeInstanceOf(Array);
    expect(() => parseLossless(nested(jsonDepthLimit + 1))).toThrow(UserError);
    expect(() => parseLossless(nested(100_000))).toThrow(/nested more than 256 levels/);
    expect(() => parseLossless('{"a":'.repeat(1000))).toThrow(/nested more than 256 levels/);
  });

  it('refuses a megabyte of garbage quickly', () => {
    const started = performance.now();
    expect(() => parseLossless('"\\'.repeat(500_000))).toThrow(UserError);
    expect(() => parseLossless(`[${'1,'.repeat(500_000)}`)).toThrow(/expected a value/);
    expect(performance.now() - started).toBeLessThan(2000);
  });
});

function outcome(run: () => unknown): unknown {
  try {
    return { value: run() };
  } catch {
    return 'refused';
  }
}

describe('stringifyPython', () => {
  // Right column: what CPython's json.dumps(json.loads(text), ensure_ascii=False) prints.
  it.each([
    ['{"a":[1,2.50,{}],"b":[]}', '{"a": [1, 2.5, {}], "b": []}'],
    ['[1.0,1e5,1E+2,-0.0,-0,1e-7,0.0001,0.00001]', '[1.0, 100000.0, 100.0, -0.0, 0, 1e-07, 0.0001, 1e-05]'],
    [
      '[1e16,123456789012345678,9999999999999998.0,1e22,1e999]',
      '[1e+16, 123456789012345678, 9999999999999998.0, 1e+22, Infinity]',
    ],
    ['[100000000000000000000000000000001]', '[100000000000000000000000000000001]'],
    [
      '[1.7976931348623157e308,5e-324,0.1,123.456e-10]',
      '[1.7976931348623157e+308, 5e-324, 0.1, 1.23456e-08]',
    ],
    ['"é\\u2028\\u00e9<>&\'/"', '"é\u2028é<>&\'/"'],
    ['"\\u0000\\u001f\\u007f\\b\\f\\n\\r\\t\\"\\\\\\/"', '"\\u0000\\u001f\u007f\\b\\f\\n\\r\\t\\"\\\\/"'],
    ['"\\ud800 \\\\ud800 \\ud83d\\ude00"', '"\ud800 \\\\ud800 \ud83d\ude00"'],
    ['[true,false,null]', '[true, false, null]'],
  ])('writes %s as Python does', (text, expected) => {
    expect(stringifyPython(parseLossless(text))).toBe(expected);
  });

  it('takes plain JavaScript values', () => {
    expect(stringifyPython({ a: 1e21, b: [0.5, 3], c: 1e-7 })).toBe(
      '{"a": 1e+21, "b": [0.5, 3], "c": 1e-07}',
    );
  });

  it('leaves lexemes alone in the spaced style', () => {
    expect(stringifySpaced(parseLossless('{"a":1.50,"b":[1E5]}'))).toBe('{"a": 1.50, "b": [1E5]}');
  });

  it('refuses a value built deeper than the limit', () => {
    let value: JsonObject = {};
    for (let i = 0; i < 5000; i++) value = { a: value };
    expect(() => stringifyPython(value)).toThrow(/nested more than 256 levels/);
  });
});
