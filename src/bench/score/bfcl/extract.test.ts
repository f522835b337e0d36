import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { extractCalls, hasNativeCalls, writeJson } from './index.ts';

const found = (text: string): string[] =>
  extractCalls(text).map(({ name, arguments: given }) => `${name} ${writeJson(given)}`);

describe('native calls', () => {
  it.each([
    ['[{"type":"function","function":{"name":"f","arguments":"{\\"a\\":1.0}"}}]', ['f {"a":1.0}']],
    ['[{"function":{"arguments":"{}"}}]', [' {}']],
    ['[{"function":{"name":"f"}}]', ['f {}']],
    ['[{"function":{"name":"f","arguments":{"a":1}}}]', ['f {"a":1}']],
    ['[{"function":{"name":"f","arguments":"{broken"}}]', ['f {}']],
    ['[{"function":{"name":"f","arguments":"[1]"}}]', ['f [1]']],
    ['[{"function":{"name":"f","arguments":"null"}}]', ['f null']],
    [' \n[{"function":{"name":"f"}},{"function":{"name":"g"}}] ', ['f {}', 'g {}']],
  ])('are read from %s', (text, calls) => {
    expect(hasNativeCalls(text)).toBe(true);
    expect(found(text)).toEqual(calls);
  });

  it.each(['', '[]', '{}', '[1]', '[{"function":"f"}]', '[{"function":{}},{}]', 'f(a=1)'])(
    'are not in %j',
    (text) => {
      expect(hasNativeCalls(text)).toBe(false);
    },
  );
});

describe('a JSON list of calls', () => {
  it('counts where all items have a name', () => {
    expect(found('[{"name":"f","arguments":{"a":1}},{"name":"g"}]')).toEqual(['f {"a":1}', 'g {}']);
  });
  it('does not count where one has none', () => {
    expect(found('[{"name":"f"},{"nom":"g"}]')).toEqual([]);
  });
});

describe('calls written as text', () => {
  it.each([
    ['I call f(a=1, b="x, y").', ['f {"a":1,"b":"x, y"}']],
    ['f(a=[1, 2.0, (3, 4)], b={"k": None, 1: True})', ['f {"a":[1,2.0,[3,4]],"b":{"k":null,"1":true}}']],
    ['f (a=-1, b=+2.5e3, c=0x1F, d=1_000)', ['f {"a":-1,"b":2500.0,"c":31,"d":1000}']],
    [
      "f(a='it\\'s', b='a' \"b\", c=r'\\n', d='''x\ny''')",
      ['f {"a":"it\'s","b":"ab","c":"\\\\n","d":"x\\ny"}'],
    ],
    ['f(a=x, b=g(1), c=[1, y])', ['f {"a":"x","b":"g(1)","c":"[1, y]"}']],
    ['f("positional", a=1)', ['f {"a":1}']],
    ['f()', ['f {}']],
    ['f(a=1), g(b=2)', ['f {"a":1}', 'g {"b":2}']],
    ['f(a=g(b=1))', ['f {"a":"g(b=1)"}']],
    ['module.f(a=1)', ['f {"a":1}']],
    ['f(city=New York)', ['f {"_raw":"city=New York"}']],
    ['f(a=1, 2)', ['f {"_raw":"a=1, 2"}']],
    ['f(a=)', ['f {"_raw":"a="}']],
    ['f(a=1, a=2)', ['f {"_raw":"a=1, a=2"}']],
    ['f(a=1', []],
    ['print(a=1) and len(x=2)', []],
    ['f(a, b: int)', []],
    ['f(a=")")', ['f {"a":")"}']],
    ['none at all', []],
  ])('are read from %j', (text, calls) => {
    expect(found(text)).toEqual(calls);
  });

  it('are found whatever the text, or none is, but nothing is thrown', () => {
    const piece = fc.constantFrom(
      'f(',
      'a=',
      ')',
      '"',
      "'",
      '\\',
      ',',
      '[',
      ']',
      '{',
      '}',
      ':',
      '1',
      '-',
      'lambda ',
      ' ',
      '\n',
      '#',
      "'''",
      '*',
    );
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.array(piece, { maxLength: 40 }).map((parts) => parts.join('')),
    );
    fc.assert(
      fc.property(text, (source) => {
        for (const { name, arguments: given } of extractCalls(source))
          expect(name + writeJson(given)).not.toBe('');
      }),
      { numRuns: 500 },
    );
  });

  it('takes no time to speak of for hostile text', () => {
    const started = performance.now();
    for (const unit of ['f(', 'f(a=', 'f(a=[', "'", '"""', 'f(a=1)', '\\', 'f(a=-', '['])
      extractCalls(unit.repeat(4000 / unit.length));
    expect(performance.now() - started).toBeLessThan(3000);
  });
});
