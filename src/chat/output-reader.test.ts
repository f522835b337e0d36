/** The reader of model output: every tolerance of the dialect, and that chunking never changes the message. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  collectEvents,
  type JsonValue,
  type OutputEnd,
  OutputReader,
  type OutputReaderOptions,
  type ReaderEvent,
  type ReadMessage,
  readAnswer,
} from './index.ts';

const tools: JsonValue[] = [
  {
    type: 'function',
    function: {
      name: 'f',
      parameters: {
        type: 'object',
        properties: {
          s: { type: 'string' },
          t: { type: 'string' },
          n: { type: 'integer' },
          x: { type: 'number' },
          b: { type: 'boolean' },
          o: { type: 'object' },
          a: { type: 'array', items: { type: 'string' } },
          maybe: { anyOf: [{ type: 'string' }, { type: 'null' }] },
          many: { type: ['null', 'integer', 'string'] },
          ref: { $ref: '#/$defs/Point' },
          level: { enum: [1, 2, 3] },
          loop: { $ref: '#/properties/loop' },
        },
        $defs: { Point: { type: 'object' } },
      },
    },
  },
  { type: 'function', function: { name: 'g' } },
];

function options(more: Partial<OutputReaderOptions> = {}): OutputReaderOptions {
  let count = 0;
  return { opensThinking: false, tools, newId: () => `call_${count++}`, ...more };
}

function read(text: string, more: Partial<OutputReaderOptions> = {}): ReadMessage {
  return readAnswer(text, options(more));
}

function call(name: string, ...parameters: (readonly [string, string])[]): string {
  const body = parameters.map(([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`).join('');
  return `<tool_call>\n<function=${name}>\n${body}</function>\n</tool_call>`;
}

/** The calls as [name, arguments]. */
function calls(text: string, more: Partial<OutputReaderOptions> = {}): [string, unknown][] {
  return read(text, more).toolCalls.map((c) => [c.name, JSON.parse(c.arguments)]);
}

function streamed(
  chunks: readonly string[],
  more: Partial<OutputReaderOptions> = {},
  end: OutputEnd = 'ended',
): ReaderEvent[] {
  const reader = new OutputReader(options(more));
  const events = chunks.flatMap((chunk) => reader.push(chunk));
  return [...events, ...reader.finish(end).events];
}

describe('a reader of calls that were held to the format', () => {
  const call = '<function=f>\n<parameter=s>\nx\n</parameter>\n</function>\n';
  const read = (text: string) =>
    readAnswer(text, { tools, opensThinking: false, ended: true, exactCalls: true });

  it('reads a call as it should be written', () => {
    const { content, toolCalls } = read(`Now.\n\n<tool_call>\n${call}</tool_call>`);
    expect(content).toBe('Now.');
    expect(toolCalls).toMatchObject([{ name: 'f', arguments: '{"s": "x"}', complete: true }]);
  });

  it.each([
    ['without its wrapper', call],
    ['in a wrapper that is misspelt', `<tool_call >\n${call}</tool_call>`],
  ])('leaves a call %s as text', (_, text) => {
    const { content, toolCalls } = read(text);
    expect([toolCalls, content]).toEqual([[], text]);
    expect(readAnswer(text, { tools, opensThinking: false, ended: true }).toolCalls).toHaveLength(1);
  });
});

describe('reasoning and content', () => {
  it('parts at the closing tag', () => {
    const message = read('I think.\n</think>\n\nHello \n', { opensThinking: true });
    expect(message).toEqual({ reasoning: 'I think.', content: 'Hello \n', toolCalls: [] });
  });

  it.each([
    ['content alone', 'Hi <b> a < b\n', false, '', 'Hi <b> a < b\n'],
    ['an empty block', '\n</think>\n\nHi', true, '', 'Hi'],
    ['a block that never closes', 'still thinking </thin', true, 'still thinking </thin', ''],
    ['the slip </thinking>', 'a</thinking>b', true, 'a', 'b'],
    ['a repeated opening tag', '<think>\na</think>b', true, 'a', 'b'],
    ['a block that the model opened itself', '\n<think>a</think>\n\nb', false, 'a', 'b'],
    ['an opening tag later in the text', 'say <think> and </think>', false, '', 'say <think> and </think>'],
    ['a second closing tag', 'a</think>b</think>c', true, 'a', 'b</think>c'],
    [
      'talk of tool calls while thinking',
      'use <tool_call> and <function=f>?</think>ok',
      true,
      'use <tool_call> and <function=f>?',
      'ok',
    ],
    ['indented first line', 'a</think>\n\n  b', true, 'a', '  b'],
    ['nothing', '', true, '', ''],
  ])('reads %s', (_, text, opensThinking, reasoning, content) => {
    expect(read(text, { opensThinking })).toEqual({ reasoning, content, toolCalls: [] });
  });
});

describe('tool calls', () => {
  it('come with the content in front of them and behind them', () => {
    const message = read(`Let me look. \n\n${call('f', ['s', 'x'])}\n${call('g')}\nDone!`);
    expect(message.content).toBe('Let me look.\nDone!');
    expect(message.toolCalls).toEqual([
      { name: 'f', arguments: '{"s": "x"}', complete: true },
      { name: 'g', arguments: '{}', complete: true },
    ]);
    expect(read(`${call('g')}\n\nDone!\n`).content).toBe('Done!');
    expect(read(`a ${call('g')}b`).content).toBe('a\nb');
  });

  it.each([
    ['exactly one newline at each end', '<parameter=s>\n\n x \n\n</parameter>', { s: '\n x \n' }],
    ['no newline', '<parameter=s>x</parameter>', { s: 'x' }],
    ['an empty value', '<parameter=s>\n\n</parameter><parameter=t></parameter>', { s: '', t: '' }],
    ['several lines', '<parameter=s>\na\n\nb\n</parameter>', { s: 'a\n\nb' }],
    [
      'quotes, controls and emoji',
      '<parameter=s>\n"\\\t\u0001😀\u2028\n</parameter>',
      { s: '"\\\t\u0001😀\u2028' },
    ],
    [
      'the first of repeated parameters',
      '<parameter=n>\n1\n</parameter><parameter=n>\n2\n</parameter>',
      { n: 1 },
    ],
    ['an unknown parameter as text', '<parameter=zz>\n12\n</parameter>', { zz: '12' }],
    ['null as text for a plain string', '<parameter=s>\nnull\n</parameter>', { s: 'null' }],
    ['null for a nullable string', '<parameter=maybe>\nnull\n</parameter>', { maybe: null }],
    ['text for a nullable string', '<parameter=maybe>\nnullable\n</parameter>', { maybe: 'nullable' }],
    [
      'None for any other type',
      '<parameter=n>\nNone\n</parameter><parameter=o>null</parameter>',
      { n: null, o: null },
    ],
    ['integers', '<parameter=n>\n -007 \n</parameter>', { n: -7 }],
    ['an integer that is none as text', '<parameter=n>\n1.5\n</parameter>', { n: '1.5' }],
    ['the first type that is not null', '<parameter=many>\n5\n</parameter>', { many: 5 }],
    ['numbers', '<parameter=x>\n.5\n</parameter>', { x: 0.5 }],
    ['a number that is none as text', '<parameter=x>\nNaN\n</parameter>', { x: 'NaN' }],
    ['booleans of any case', '<parameter=b>\nTRUE\n</parameter>', { b: true }],
    ['a boolean that is none as text', '<parameter=b>\nyes\n</parameter>', { b: 'yes' }],
    ['objects', '<parameter=o>\n{"k": [1, null]}\n</parameter>', { o: { k: [1, null] } }],
    [
      'Python literals',
      "<parameter=o>\n{'k': (True, None, 'it\\'s', \"q\\n\",), 'e': -1.5e3,}\n</parameter>",
      { o: { k: [true, null, "it's", 'q\n'], e: -1500 } },
    ],
    ['an object that is none as text', '<parameter=o>\n{oops\n</parameter>', { o: '{oops' }],
    ['a type behind a reference', '<parameter=ref>\n{"x": 1}\n</parameter>', { ref: { x: 1 } }],
    ['a reference to itself as text', '<parameter=loop>\n1\n</parameter>', { loop: '1' }],
    ['the type of an enumeration', '<parameter=level>\n2\n</parameter>', { level: 2 }],
    ['a key named __proto__', '<parameter=__proto__>\nx\n</parameter>', JSON.parse('{"__proto__": "x"}')],
  ])('read %s', (_, body, expected) => {
    expect(calls(`<tool_call>\n<function=f>\n${body}\n</function>\n</tool_call>`)).toEqual([['f', expected]]);
  });

  it('keep number lexemes', () => {
    const text = call(
      'f',
      ['x', '1.0'],
      ['n', '12345678901234567890'],
      ['o', '{"a": 1.0, "2": 1e5, "1": 0}'],
    );
    expect(read(text).toolCalls[0]?.arguments).toBe(
      '{"x": 1.0, "n": 12345678901234567890, "o": {"a": 1.0, "2": 1e5, "1": 0}}',
    );
  });

  it.each([
    ['the wrapper', '<function=f>\n<parameter=s>\nx\n</parameter>\n</function>'],
    ['the closing wrapper', '<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</function>'],
    ['the closing function', '<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>\n</tool_call>'],
    ['both at the end of output', '<tool_call>\n<function=f>\n<parameter=s>\nx\n</parameter>'],
    [
      'the closing parameter before the function',
      '<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>',
    ],
    ['the closing parameter and function', '<tool_call><function=f><parameter=s>x</tool_call>'],
    ['all blanks', '<tool_call><function=f><parameter=s>x</parameter></function></tool_call>'],
  ])('are read without %s', (_, text) => {
    expect(calls(text)).toEqual([['f', { s: 'x' }]]);
    const next = calls(`${text}\n${call('g')}`).map(([name]) => name);
    expect(next).toEqual(['f', 'g']);
  });

  it('end a value at the next parameter when its closing tag is missing', () => {
    expect(calls('<function=f>\n<parameter=s>\nx\n<parameter=n>\n1\n</parameter>\n</function>')).toEqual([
      ['f', { s: 'x', n: 1 }],
    ]);
  });

  it.each([
    'see </parameter> here',
    '</function> is a tag',
    '</tool_call> too',
    '<parameter=s>\ninner\n</parameter> not the end',
    '<parameter=other>',
    '<tool_call>\n<function=f>',
    'a </parameter>\n and </function>\n b',
    '<parameter=',
  ])('take %j inside a value as text', (value) => {
    expect(calls(call('f', ['s', value], ['n', '1']))).toEqual([['f', { s: value, n: 1 }]]);
  });

  it('close a think block that is still open', () => {
    const message = read(`hm\n${call('f', ['s', 'x'])}`, { opensThinking: true });
    expect(message.reasoning).toBe('hm');
    expect(message.toolCalls).toHaveLength(1);
  });

  it.each([
    ['Hermes JSON', '<tool_call>\n{"name": "f", "arguments": {"x": 1.0}}\n</tool_call>', '{"x": 1.0}'],
    [
      'arguments as JSON text',
      '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1.0}"}</tool_call>',
      '{"x": 1.0}',
    ],
    [
      'parameters for arguments',
      '<tool_call>{"name": "f", "parameters": {"s": "</tool_call>"}}</tool_call>',
      '{"s": "</tool_call>"}',
    ],
    ['no arguments', '<tool_call>{"name": "f"}', '{}'],
    ['a Python dict', "<tool_call>{'name': 'f', 'arguments': {'b': True}}</tool_call>", '{"b": true}'],
    [
      'an envelope',
      '<tool_call>{"type": "function", "function": {"name": "f", "arguments": {}}}</tool_call>',
      '{}',
    ],
    ['a forgotten bracket', '<tool_call>\n{"name": "f", "arguments": {"s": "x"}\n</tool_call>', '{"s": "x"}'],
    [
      'JSON inside the function',
      '<tool_call><function=f>\n{"s": "x"}\n</function></tool_call>',
      '{"s": "x"}',
    ],
    ['empty JSON inside the function', '<tool_call><function=f>\n{}\n</function></tool_call>', '{}'],
  ])('are read from %s', (_, text, expected) => {
    const message = read(`${text}\n${call('g')}`);
    expect(message.toolCalls.map(({ name }) => name)).toEqual(['f', 'g']);
    expect(message.toolCalls[0]?.arguments).toBe(expected);
    expect(message.content).toBe('');
  });

  it.each([
    'use <tool_call> like this',
    '<tool_call>\n<function=bad name>\n</function>\n</tool_call>',
    '<function=>x</function>',
    'see <function=f>',
    'see "<tool_call>\n<function=f>\n</function>\n</tool_call>"',
    '<tool_call>\n<function=unknown>\n<parameter=s>\nx\n</parameter>\n</function>\n</tool_call>',
    '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"nom": "f"}\n</tool_call>',
    '<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>',
    '<tool_call>{"name": "a b"}</tool_call>',
    '<tool_call>{"name": "f',
    `<function=${'n'.repeat(300)}>`,
    '</tool_call>',
    '<tool_call>',
  ])('that cannot be read stay content: %j', (text) => {
    expect(read(text)).toEqual({ reasoning: '', content: text, toolCalls: [] });
    const after = read(`${call('g')}\n${text}`);
    expect(after.toolCalls).toHaveLength(1);
    if (text !== '</tool_call>') expect(after.content).toBe(text);
    expect(read(`${text} ${call('g')}`).toolCalls).toHaveLength(1);
  });

  it('need a whole name', () => {
    for (const text of ['<tool_call>\n<function=f', '<tool_call>\n<function=', '<function=f'])
      expect(read(text)).toEqual({ reasoning: '', content: text, toolCalls: [] });
  });

  it('may follow what only looked like a call', () => {
    const message = read(`${call('f')}<tool_call>a\n${call('g')}`);
    expect(message.toolCalls.map(({ name }) => name)).toEqual(['f', 'g']);
    expect(message.content).toBe('<tool_call>a');
  });

  it('say what belongs to no parameter as content', () => {
    const message = read(
      '<tool_call>\n<function=f>\nstray words\n<parameter=n>\n1\n</parameter>\n</function>',
    );
    expect(message.toolCalls[0]?.arguments).toBe('{"n": 1}');
    expect(message.content).toBe('stray words');
  });

  it('are content when tools are off', () => {
    const text = `a ${call('f')}`;
    expect(read(text, { toolCalls: 'text' })).toEqual({ reasoning: '', content: text, toolCalls: [] });
  });

  it('survive values nested too deep to be JSON for us', () => {
    const deep = '['.repeat(2000) + ']'.repeat(2000);
    expect(calls(call('f', ['o', deep]))).toEqual([['f', { o: deep }]]);
  });
});

describe('the stream', () => {
  it('names a call at once, then sends its arguments while they are written', () => {
    const reader = new OutputReader(options());
    expect(reader.push('Hi.\n<tool_call>\n<function=f')).toEqual([{ type: 'content', text: 'Hi.' }]);
    expect(reader.push('>')).toEqual([{ type: 'tool-start', index: 0, id: 'call_0', name: 'f' }]);
    expect(reader.callCount).toBe(1);
    expect(reader.push('\n<parameter=s>\nsome')).toEqual([
      { type: 'tool-args', index: 0, fragment: '{"s": "some' },
    ]);
    expect(reader.push(' "text"\n')).toEqual([{ type: 'tool-args', index: 0, fragment: ' \\"text\\"' }]);
    expect(reader.push('more</para')).toEqual([{ type: 'tool-args', index: 0, fragment: '\\nmore' }]);
    expect(reader.push('meter>\n<parameter=n>\n4')).toEqual([
      { type: 'tool-args', index: 0, fragment: '", "n": ' },
    ]);
    expect(reader.push('2\n</parameter>\n</function>\n</tool_call>')).toEqual([
      { type: 'tool-args', index: 0, fragment: '42}' },
      { type: 'tool-end', index: 0, complete: true },
    ]);
    expect(reader.finish('ended')).toEqual({ events: [], calledTools: true });
  });

  it('holds back only what may become a tag', () => {
    const reader = new OutputReader(options({ opensThinking: true }));
    expect(reader.push('a <')).toEqual([{ type: 'reasoning', text: 'a' }]);
    expect(reader.push('b')).toEqual([{ type: 'reasoning', text: ' <b' }]);
    expect(reader.push('</think')).toEqual([]);
    expect(reader.push('>')).toEqual([]);
    expect(reader.push('\n\nc')).toEqual([{ type: 'content', text: 'c' }]);
    expect(reader.finish('ended')).toEqual({ events: [], calledTools: false });
  });

  it('reads a megabyte in small chunks without slowing down', () => {
    const started = performance.now();
    const body = 'line of < code\n'.repeat(70_000);
    const chunks =
      call('f', ['s', body], ['o', `{"k": "${'v'.repeat(30_000)}"}`]).match(/[\s\S]{1,20}/g) ?? [];
    const message = collectEvents(streamed(chunks));
    expect(JSON.parse(message.toolCalls[0]?.arguments ?? '').s).toBe(body);
    expect(performance.now() - started).toBeLessThan(5000);
  });
});

describe('hostile output', () => {
  it.each([
    ['tags without end', '<tool_call>'.repeat(5000)],
    ['JSON that never closes', '<tool_call>{'.repeat(5000)],
    ['parameters without end', `<function=f>${'<parameter=zz>'.repeat(5000)}`],
    ['blanks after a tag', `<tool_call>${' '.repeat(20_000)}`],
  ])('%s is read in bounded time and kept', (_, text) => {
    const started = performance.now();
    const message = collectEvents(streamed(text.match(/.{1,4}/g) ?? []));
    expect(message.content.length + message.toolCalls.length).toBeGreaterThan(0);
    expect(performance.now() - started).toBeLessThan(5000);
  });
});

const piece = fc.constantFrom(
  'a',
  ' ',
  '\n',
  '\n\n',
  '<',
  '>',
  '{',
  '}',
  '"',
  '\\',
  '😀',
  'é',
  'null',
  '1',
  '1.0',
  ',',
  '<think>',
  '</think>',
  '</thinking>',
  '<tool_call>',
  '</tool_call>',
  '<tool_call>\n<function=f>\n',
  '<function=f>',
  '<function=g>',
  '</function>',
  '<parameter=s>',
  '<parameter=n>',
  '<parameter=o>',
  '<parameter=maybe>',
  '<parameter=zz>',
  '<parameter=bad key>',
  '<parameter="t">',
  '<parameter=t\n',
  '</parameter1>',
  '\n```\n',
  '`',
  '\r\n',
  '</parameter>',
  '\n</parameter>\n',
  '<tool_call>{"name": "f", "arguments": {"s": "',
  '"}}</tool_call>',
  '</func',
  '<para',
  "{'k': True}",
  '{"k": 1.0}',
);
const outputEnd = fc.constantFrom<OutputEnd>('ended', 'cut');
const modelText = fc.array(piece, { maxLength: 25 }).map((pieces) => pieces.join(''));

function chunked(text: string, cuts: readonly number[]): string[] {
  const at = [...new Set([0, ...cuts.map((cut) => cut % (text.length + 1)), text.length])].sort(
    (a, b) => a - b,
  );
  return at.slice(1).map((end, i) => text.slice(at[i], end));
}

describe('invariants', () => {
  it('the message is the same however the text is cut', () => {
    fc.assert(
      fc.property(
        modelText,
        fc.boolean(),
        fc.array(fc.nat(400), { maxLength: 12 }),
        outputEnd,
        (text, opensThinking, cuts, end) => {
          const whole = readAnswer(text, { ...options({ opensThinking }), ended: end === 'ended' });
          expect(collectEvents(streamed(chunked(text, cuts), { opensThinking }, end))).toEqual(whole);
          expect(collectEvents(streamed(text.split(''), { opensThinking }, end))).toEqual(whole);
        },
      ),
      { numRuns: 4000 },
    );
  });

  it('fragments join to a JSON object, and starts, fragments and ends come in order', () => {
    fc.assert(
      fc.property(modelText, fc.boolean(), outputEnd, (text, opensThinking, end) => {
        const events = streamed(text.split(''), { opensThinking }, end);
        const open: string[] = [];
        const done: number[] = [];
        for (const event of events) {
          if (event.type === 'tool-start') {
            expect(event.index).toBe(open.length);
            expect(done).toHaveLength(open.length);
            open.push('');
          } else if (event.type === 'tool-args') open[event.index] += event.fragment;
          else if (event.type === 'tool-end') {
            done.push(event.index);
            const text = open[event.index] ?? '';
            if (event.complete) expect(JSON.parse(text)).toBeTypeOf('object');
            else expect(() => JSON.parse(text)).toThrow();
          }
        }
        expect(done).toEqual(open.map((_, i) => i));
      }),
      { numRuns: 2000 },
    );
  });

  it('text without a call is never lost', () => {
    fc.assert(
      fc.property(modelText, (text) => {
        const message = read(text);
        if (message.toolCalls.length > 0 || message.reasoning !== '' || /<\/?think/.test(text)) return;
        expect(message.content).toBe(text);
      }),
      { numRuns: 2000 },
    );
  });

  it('no word is lost, wherever the output ends', () => {
    let made = 0;
    const word = fc.nat().map(() => `w${made++}z`);
    const part = fc.oneof({ weight: 2, arbitrary: word }, { weight: 3, arbitrary: piece });
    const output = fc.array(part, { maxLength: 20 }).map((parts) => parts.join(''));
    fc.assert(
      fc.property(output, fc.boolean(), outputEnd, (text, opensThinking, end) => {
        for (let length = 0; length <= text.length; length += 3) {
          const prefix = text.slice(0, length);
          const message = readAnswer(prefix, { ...options({ opensThinking }), ended: end === 'ended' });
          const told = [message.reasoning, message.content, ...message.toolCalls.map((c) => c.arguments)];
          // A word in a tag is part of its name or of what stands around it.
          const free = prefix.replaceAll(/<[^<>\n]*>?/g, ' ');
          for (const [found] of free.matchAll(/w\d+z/g)) expect(told.join(' ')).toContain(found);
        }
      }),
      { numRuns: 1000 },
    );
  });

  it('what the template writes is read back', () => {
    const value = fc
      .array(fc.constantFrom('a', '\n', ' ', '"', '\\', '<', 'é', '😀', '</b>', 'null'), { maxLength: 8 })
      .map((p) => p.join(''));
    fc.assert(
      fc.property(value, value, fc.integer(), fc.jsonValue(), (s, t, n, o) => {
        const text = call('f', ['s', s], ['t', t], ['n', String(n)], ['a', JSON.stringify([o])]);
        expect(calls(text)).toEqual([['f', { s, t, n, a: JSON.parse(JSON.stringify([o])) }]]);
      }),
      { numRuns: 500 },
    );
  });
});
