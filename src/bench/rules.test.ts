/** The rules that no end-to-end test pins: reading streams, merging, counting, rounding, refusals. */
import { describe, expect, it } from 'vitest';
import { smallConfig, smallDataset } from '../../test/support/oracle-dataset.ts';
import { UserError } from '../util/index.ts';
import { Answer, mergeCalls } from './run/answer.ts';
import { blake2bHex } from './run/blake2b.ts';
import { parseBenchConfig } from './run/config.ts';
import { parseConversations } from './run/dataset.ts';
import { byCodePoint, floatText, pythonRound, pythonSplit } from './run/python.ts';
import { readWhole, SseReader } from './run/sse.ts';
import { TokenCounter } from './run/token-count.ts';
import { turnsOf } from './run/wire.ts';
import { executablesOfCalls } from './score/executables.ts';
import { summarize } from './score/series.ts';

const event = (delta: unknown, finish: string | null = null): string =>
  `data: ${JSON.stringify({ choices: [{ delta, finish_reason: finish }] })}\n\n`;

/** The answer, and the batches (from 0) that had the first chunk. */
function read(...batches: (string | Uint8Array)[]): { answer: Answer; firsts: number[]; warnings: string[] } {
  const answer = new Answer();
  const warnings: string[] = [];
  const reader = new SseReader(answer, (message) => warnings.push(message));
  const firsts = batches.flatMap((batch, i) =>
    reader.push(typeof batch === 'string' ? new TextEncoder().encode(batch) : batch) ? [i] : [],
  );
  if (reader.finish()) firsts.push(batches.length);
  return { answer, firsts, warnings };
}

describe('a stream', () => {
  it('has its first chunk at the first delta that is not empty, whatever its kind', () => {
    const role = event({ role: 'assistant', content: '' });
    expect(read(role, event({ reasoning_content: 'r' }), event({ content: 'c' })).firsts).toEqual([1]);
    expect(read(role, event({ tool_calls: [{ index: 0 }] }), event({ content: 'c' })).firsts).toEqual([1]);
    expect(read(role, event({ content: null, reasoning: 'r' })).firsts).toEqual([1]);
    expect(read(role, event({ tool_calls: [] }), event({}, 'stop')).firsts).toEqual([]);
  });

  it('is split at blank lines only, wherever the bytes are cut', () => {
    const bytes = new TextEncoder().encode(event({ content: 'naïve\u2028🙂' }) + event({ content: '!' }));
    for (let cut = 0; cut <= bytes.length; cut++)
      expect(read(bytes.slice(0, cut), bytes.slice(cut)).answer.content.join('')).toBe('naïve\u2028🙂!');
    expect(read(event({ content: 'a' }).replaceAll('\n', '\r\n')).firsts).toEqual([0]);
    expect(read('data: {"choices":[{"delta":{"content":"no blank line"}}]}').answer.content).toEqual([
      'no blank line',
    ]);
  });

  it('ignores comments, the end mark, unknown fields, empty choices and errors', () => {
    const noise =
      ': ping\n\nid: 7\ndata:{"choices":[]}\n\ndata: {"error":{"message":"x"}}\n\ndata: [DONE]\n\n';
    const { answer, firsts, warnings } = read(noise, event({ content: 'a', extra: 1 }), noise);
    expect([answer.content, firsts, warnings]).toEqual([['a'], [1], []]);
  });

  it('drops the rest of a batch after a malformed document, and goes on', () => {
    const bad = [
      event({ content: 5 }),
      event({ tool_calls: {} }),
      event({ tool_calls: ['x'] }),
      'data: {"choices":[}\n\n',
      'data: {"choices":[null]}\n\n',
    ];
    for (const wrong of bad) {
      const { answer, warnings } = read(
        event({ content: 'a' }) + wrong + event({ content: 'lost' }),
        event({ content: 'b' }),
      );
      expect(answer.content).toEqual(['a', 'b']);
      expect(warnings).toHaveLength(1);
    }
  });

  it('keeps output as first chunk and rest, or joined where reasoning came', () => {
    const plain = read(
      event({ content: 'a' }),
      event({ content: 'b' }),
      event({ content: 'c' }, 'stop'),
    ).answer;
    expect([plain.eventData, plain.finishReason]).toEqual([
      ['TextModelOutput', ['a', 'bc'], null, null],
      'stop',
    ]);
    const both = read(event({ content: 'a', reasoning_content: 'hidden' }), event({ reasoning: 'r' })).answer;
    expect(both.eventData).toEqual(['TextModelOutput', 'a', ['r'], null]);
  });
});

describe('an answer as a whole', () => {
  it('keeps the calls as they are, each its own', () => {
    const calls = [1, 2].map((n) => ({
      id: `c${n}`,
      type: 'function',
      function: { name: 'bash', arguments: '{}' },
    }));
    const answer = new Answer();
    readWhole(
      answer,
      JSON.stringify({
        choices: [{ message: { content: null, tool_calls: calls }, finish_reason: 'tool_calls' }],
      }),
    );
    expect([answer.calls, answer.firstKind, answer.finishReason]).toEqual([calls, null, 'tool_calls']);
    expect(answer.eventData).toEqual(['TextModelOutput', '', null, calls]);
    expect(() => readWhole(new Answer(), '{"choices":[]}')).toThrow(/no choice/);
  });
});

describe('merging', () => {
  it('goes by index, joins arguments and keeps the official order of keys', () => {
    const merged = mergeCalls([
      { index: 1, id: 'b', function: { name: 'g', arguments: '{}' } },
      { index: 0, id: 'a', type: 'function', function: { name: 'f' } },
      { index: 0, id: '', function: { arguments: '{"x"' } },
      { function: { arguments: ':1}', name: null } },
    ]);
    expect(JSON.stringify(merged)).toBe(
      '[{"type":"function","function":{"arguments":"{\\"x\\":1}","name":"f"},"id":"a"},{"type":"function","function":{"arguments":"{}","name":"g"},"id":"b"}]',
    );
  });

  it('reads fragments of the wrong kind as nothing', () => {
    const hostile = JSON.parse('[{"index":0,"function":{"arguments":{"a":1}}},{"index":0,"function":"f"}]');
    expect(mergeCalls(hostile)).toEqual([{ type: 'function', function: { arguments: '' } }]);
  });
});

describe('token counts', () => {
  const counter = new TokenCounter('models/copse-tiny');
  const call = {
    index: 0,
    id: 'c',
    type: 'function',
    function: { name: 'bash', arguments: '{"command":"ls"}' },
  };
  const answered = (...deltas: Record<string, unknown>[]): Answer => {
    const answer = new Answer();
    for (const delta of deltas) answer.add(delta);
    return answer;
  };
  const [turn] = turnsOf(
    parseConversations(smallDataset, 'd')[0] as never,
    parseBenchConfig(smallConfig('http://h', {}), 'c'),
    0,
  );
  const count = (answer: Answer) => counter.count(turn as never, answer);

  it('count a rendered call, and the fallback text once its name is gone', () => {
    const { output, afterFirst } = count(
      answered(
        { tool_calls: [{ ...call, function: { name: 'bash', arguments: '' } }] },
        { tool_calls: [{ index: 0, function: { arguments: '{"command":"ls"}' } }] },
      ),
    );
    const fallback = '[{"type":"function","function":{"arguments":"{\\"command\\":\\"ls\\"}"}}]';
    expect(afterFirst).toBe(counter.text(fallback));
    expect(output).toBeGreaterThan(10);
    expect(count(answered({ tool_calls: [call] }))).toMatchObject({ output, afterFirst: 0 });
  });

  it('count plain text without the template, and nothing for nothing', () => {
    expect(count(answered({ content: 'Hello' }, { content: ' world' }))).toMatchObject({
      output: counter.text('Hello world'),
      afterFirst: counter.text(' world'),
    });
    expect(count(answered({ content: '' }))).toMatchObject({ output: null, afterFirst: 0 });
  });

  it('keep content and calls when the first chunk was reasoning', () => {
    const all = count(
      answered({ reasoning: 'Think' }, { reasoning: ' more' }, { content: 'Go' }, { tool_calls: [call] }),
    );
    const rest = count(answered({ reasoning: ' more' }, { content: 'Go' }, { tool_calls: [call] }));
    expect(all.afterFirst).toBe(rest.output);
    expect(all.output ?? 0).toBeGreaterThan(rest.output ?? 0);
  });

  it('fall back where arguments are no object', () => {
    const odd = { ...call, function: { name: 'bash', arguments: '[1' } };
    expect(count(answered({ content: 'a', tool_calls: [odd] })).output).toBe(
      counter.text('a\n[{"type":"function","function":{"arguments":"[1","name":"bash"},"id":"c"}]'),
    );
  });
});

describe('Python’s ways', () => {
  it('round exact decimal expansions, ties to even', () => {
    expect([0.00005, 0.00015, 0.12345, 5e-324, 0.99995].map((x) => pythonRound(x, 4))).toEqual([
      0.0001, 0.0001, 0.1235, 0, 1,
    ]);
    expect(Number.isNaN(pythonRound(Number.NaN, 4))).toBe(true);
  });

  it('split at every blank that Python knows, and no other', () => {
    expect(pythonSplit('\x1ca\x85b\u00a0c\u3000d\ufeffe\u200bf ')).toEqual([
      'a',
      'b',
      'c',
      'd\ufeffe\u200bf',
    ]);
  });

  it('write floats with a point and sort by code point', () => {
    expect([0, 1, -2, 0.5].map(floatText)).toEqual(['0.0', '1.0', '-2.0', '0.5']);
    expect(['\u{1f600}', '\uffff', 'a'].sort(byCodePoint)).toEqual(['a', '\uffff', '\u{1f600}']);
  });

  it('know which values are true, and NaN in JSON', () => {
    const bash = (args: string) => [{ function: { name: 'bash', arguments: args } }];
    expect(executablesOfCalls(bash('{"command":[],"cmd":"ls"}'))).toEqual(['ls']);
    expect(executablesOfCalls(bash('{"command":"ls # NaN","t":NaN,"u":-Infinity}'))).toEqual(['ls']);
    expect(executablesOfCalls(bash('{"command":{"a":1},"cmd":"ls"}'))).toEqual([]);
    expect(executablesOfCalls(bash('["ls"]'))).toEqual([]);
  });
});

describe('a salt', () => {
  it('is BLAKE2b of the digest length asked for', () => {
    expect([blake2bHex('1', 2), blake2bHex('django__django-16899', 2)]).toEqual(['4461', 'edc0']);
    expect(blake2bHex('a'.repeat(128), 32)).toBe(
      'ae2aa48507885c4c950fb809b2076f959cde9f8ea6da260d9a3587df33dac450',
    );
    expect(blake2bHex('é'.repeat(200), 20)).toBe('4ac4fd09666ec025044e432ac9f16182be727a48');
  });
});

describe('a series', () => {
  it('has percentiles without interpolation, sample deviation and closed outer buckets', () => {
    const series = summarize([4, 1, 3, 2], { estimates: true });
    expect(series).toMatchObject({
      total: 10,
      min: 1,
      max: 4,
      median: 2,
      avg: 2.5,
      percentiles: { '99.9': 3, '50.0': 2, '1.0': 1 },
      early_stopping_percentiles: { '50.0': null },
    });
    expect('std_dev' in series && series.std_dev).toBeCloseTo(1.2909944, 6);
    const { histogram } = series as { histogram: { buckets: number[][]; counts: number[] } };
    expect([histogram.buckets.length, histogram.buckets[0]?.[0], histogram.buckets[29]?.[1]]).toEqual([
      30, 1, 10,
    ]);
    expect(histogram.counts.reduce((a, b) => a + b, 0)).toBe(4);
  });

  it('is empty without values, but for the estimates that are null', () => {
    expect(summarize([], { estimates: false })).toEqual({});
    expect(Object.values(summarize([], { estimates: true }).early_stopping_percentiles ?? {})).toEqual(
      new Array(8).fill(null),
    );
  });
});

describe('a recording', () => {
  const lines = smallDataset.trimEnd().split('\n');
  const changed = (line: number, from: string | RegExp, to: string): string =>
    lines.map((text, i) => (i === line - 1 ? text.replace(from, to) : text)).join('\n');

  it.each<[string, string, RegExp]>([
    ['broken JSON', changed(2, '"turn"', 'turn'), /^d:2: is not JSON/],
    ['a list', changed(2, /.*/, '[]'), /^d:2: is not a JSON object/],
    ['an id that is not ASCII', changed(1, '"alpha"', '"älpha"'), /^d:1: conversation_id/],
    [
      'rows apart',
      [...lines, lines[0]].join('\n'),
      /^d:11: the rows of conversation 'alpha' are not together/,
    ],
    ['a gap', changed(3, '"turn":3', '"turn":4'), /^d:\d: turn is 4, expected 3/],
    ['a turn that is text', changed(3, '"turn":3', '"turn":"3"'), /^d:3: turn is "3"/],
    ['an unknown role', changed(3, '"tool"', '"robot"'), /^d:3: role is "robot"/],
    [
      'two assistants',
      changed(3, /.*/, (lines[1] ?? '').replace('"turn":2', '"turn":3')),
      /^d:3: a assistant row follows a assistant row|^d:3: an assistant row follows/,
    ],
    ['an empty user', changed(7, '"What changed?"', '""'), /^d:7: the content of a user row is empty/],
    [
      'an empty list of calls',
      changed(4, /"tool_calls":[^\n]*/, '"tool_calls":[]}'),
      /^d:4: tool_calls is not a filled list/,
    ],
    [
      'no calls and no content',
      changed(6, /,"tool_calls":[^\n]*/, '}'),
      /^d:6: an assistant row has neither/,
    ],
    [
      'a call without a name',
      changed(2, '"name":"bash"', '"name":""'),
      /^d:2: the function of call .* has no name/,
    ],
    [
      'arguments that are a number',
      changed(2, /"arguments":"[^}]*}"/, '"arguments":5'),
      /^d:2: the arguments of call/,
    ],
    [
      'a result without an id',
      changed(3, '"functions.bash:0"', '""'),
      /^d:3: a tool result has no tool_call_id/,
    ],
    [
      'a result without content',
      changed(3, '"content":"a.py"', '"text":"a.py"'),
      /^d:3: the result of .* has no content/,
    ],
    ['nothing', '\n\n', /holds no conversation/],
  ])('with %s is refused, its line named', (_, text, message) => {
    expect(() => parseConversations(text, 'd')).toThrow(UserError);
    expect(() => parseConversations(text, 'd')).toThrow(message);
  });

  it('may be out of order inside a conversation and carry metadata', () => {
    const shuffled = ['{"_type":"dataset_metadata","x":1}', lines[1], lines[0], ...lines.slice(2)].join('\n');
    expect(parseConversations(shuffled, 'd')[0]?.rows.map(({ turn }) => turn)).toEqual([1, 2, 3, 4, 5, 6]);
  });
});
