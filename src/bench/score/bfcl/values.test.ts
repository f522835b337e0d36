import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gridAtStart } from './convert-javascript.ts';
import {
  equal,
  fromJava,
  fromJavascript,
  readJson,
  tryJson,
  typeOf,
  type Value,
  writeJson,
} from './index.ts';
import { parseFloat64, parseInt10, pattern, strip } from './text.ts';

const scalar: fc.Arbitrary<Value> = fc.oneof(
  fc.constant(null),
  fc.boolean(),
  fc.bigInt({ min: -3n, max: 3n }),
  fc.constantFrom(0, 1, -1, 0.5, 2 ** 53),
  fc.constantFrom('', 'a', '1'),
);
const { value: anyValue } = fc.letrec<{ value: Value }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    scalar,
    fc.array(tie('value'), { maxLength: 3 }),
    fc
      .array(fc.tuple(fc.constantFrom('a', 'b', 'c'), tie('value')), { maxLength: 3 })
      .map((pairs) => new Map(pairs)),
  ),
}));

describe('JSON as Python reads it', () => {
  it.each([
    ['1', 'int'],
    ['1.0', 'float'],
    ['1e2', 'float'],
    ['-0', 'int'],
    ['true', 'bool'],
    ['NaN', 'float'],
    ['-Infinity', 'float'],
    [' [1] ', 'list'],
    ['{}', 'dict'],
    ['"\\ud800"', 'str'],
  ])('%s is of type %s', (text, type) => {
    expect(typeOf(readJson(text))).toBe(type);
  });

  it('keeps every digit of a whole number', () => {
    expect(readJson('12345678901234567890123')).toBe(12345678901234567890123n);
  });

  it('keeps the last of equal keys at the place of the first', () => {
    expect(writeJson(readJson('{"a":1,"b":2,"a":3.0}'))).toBe('{"a":3.0,"b":2}');
  });

  it('keeps a key named __proto__ as any other', () => {
    expect(writeJson(readJson('{"__proto__":{"x":1},"2":1,"1":2}'))).toBe(
      '{"__proto__":{"x":1},"2":1,"1":2}',
    );
  });

  it.each([
    '',
    '01',
    '1.',
    '.5',
    '+1',
    '[1,]',
    '{"a":1,}',
    "{'a':1}",
    '"\n"',
    '"\\x"',
    '"open',
    'nul',
    '1 2',
    '{"a"}',
    '['.repeat(5000),
    '9'.repeat(5000),
  ])('refuses %j', (text) => {
    expect(tryJson(text)).toBeUndefined();
  });

  it('reads again what it writes', () => {
    fc.assert(fc.property(anyValue, (value) => equal(readJson(writeJson(value)), value)));
  });

  it('agrees with JSON.parse on what that accepts', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        expect(JSON.parse(writeJson(readJson(text)))).toEqual(JSON.parse(text));
      }),
    );
  });
});

describe('equality', () => {
  it.each([
    ['1', '1.0', true],
    ['true', '1', true],
    ['false', '0.0', true],
    ['true', '2', false],
    ['"1"', '1', false],
    ['null', '0', false],
    ['null', '""', false],
    ['[1]', '[1.0]', true],
    ['[1,2]', '[2,1]', false],
    ['{"a":1,"b":2}', '{"b":2.0,"a":true}', true],
    ['{"a":1}', '{"a":1,"b":2}', false],
    ['[]', '{}', false],
    ['[]', 'false', false],
    ['9007199254740993', '9007199254740992.0', false],
    ['NaN', 'NaN', false],
  ])('of %s and %s is %s', (a, b, expected) => {
    expect(equal(readJson(a), readJson(b))).toBe(expected);
    expect(equal(readJson(b), readJson(a))).toBe(expected);
  });

  it('is reflexive and symmetric', () => {
    fc.assert(
      fc.property(anyValue, anyValue, (a, b) => {
        expect(equal(a, a)).toBe(true);
        expect(equal(a, b)).toBe(equal(b, a));
      }),
    );
  });
});

describe('numbers in text', () => {
  it.each([
    [' 1_000 ', 1000n],
    ['+5', 5n],
    ['-٣', -3n],
    ['𝟙𝟚', 12n],
    ['1__0', null],
    ['_1', null],
    ['1.0', null],
    ['', null],
    ['9'.repeat(5000), null],
  ])('int(%j)', (text, value) => {
    expect(parseInt10(text)).toBe(value);
  });

  it.each([
    ['1_0.5', 10.5],
    ['.5', 0.5],
    ['5.', 5],
    ['-INF', Number.NEGATIVE_INFINITY],
    ['1e3', 1000],
    ['0x10', null],
    ['.', null],
    ['1e', null],
  ])('float(%j)', (text, value) => {
    expect(parseFloat64(text)).toBe(value);
  });

  it('strips what Python takes for blanks, and no more', () => {
    expect(strip('\x1c\u00a0 a\u0085\n')).toBe('a');
    expect(strip('\ufeffa')).toBe('\ufeffa');
  });
});

describe('conversion of any text', () => {
  const javaTypes = ['byte', 'long', 'float', 'double', 'boolean', 'String', 'Array', 'ArrayList', 'HashMap'];
  const scriptTypes = ['String', 'integer', 'float', 'Bigint', 'Boolean', 'array', 'dict', 'any'];
  const sourceText = fc
    .array(
      fc.constantFrom(
        '[',
        ']',
        '{',
        '}',
        ',',
        ':',
        '"',
        "'",
        '1',
        'a',
        ' ',
        '\n',
        'new Array(',
        ')',
        'put("k", 1)',
      ),
    )
    .map((parts) => parts.join(''));

  it('finds lists of rows where the official pattern does', () => {
    const rows = '\\s*\\[.*?\\]\\s*(?:,\\s*\\[.*?\\]\\s*)*';
    const official = pattern(`^(?:\\[${rows}\\]|new\\s+Array\\(${rows}\\))`);
    const piece = fc.constantFrom('[', '[', ']', ']', ',', ' ', '\n', '1', ')', '[1],', ']]');
    const text = fc
      .tuple(fc.constantFrom('[', '[[', 'new Array([', ''), fc.array(piece, { maxLength: 12 }))
      .map(([start, rest]) => start + rest.join(''));
    fc.assert(
      fc.property(text, (code) => {
        expect(gridAtStart(code)).toBe(official.exec(code)?.[0] ?? null);
      }),
      { numRuns: 3000 },
    );
  });

  it('never throws', () => {
    fc.assert(
      fc.property(
        sourceText,
        fc.constantFrom(...javaTypes),
        fc.constantFrom(...scriptTypes),
        (text, java, script) => {
          fromJava(text, java, 'integer');
          fromJavascript(text, script, null);
        },
      ),
    );
  });

  it('takes no time to speak of for hostile text', () => {
    const started = performance.now();
    for (const text of [
      `[${'['.repeat(3000)}`,
      `{${'a:'.repeat(3000)}`,
      `[${'[1],'.repeat(3000)}`,
      'a('.repeat(3000),
    ])
      for (const type of ['array', 'dict']) fromJavascript(text, type, null);
    for (const text of [
      'new ArrayList<>(Arrays.asList('.repeat(500),
      'new HashMap<'.repeat(1000),
      `new HashMap<>() {${' '.repeat(9000)}`,
      `new ArrayList<>() {{${' '.repeat(9000)}`,
    ])
      for (const type of ['ArrayList', 'HashMap', 'Array']) fromJava(text, type, null);
    expect(performance.now() - started).toBeLessThan(3000);
  });
});
