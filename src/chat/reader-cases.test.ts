/** Outputs that models were seen to write and that readers got wrong, by kind, each with what is right. */
import { describe, expect, it } from 'vitest';
import { type JsonValue, type ReadAnswerOptions, readAnswer } from './index.ts';

const tool = (name: string, ...keys: string[]): JsonValue => ({
  type: 'function',
  function: {
    name,
    parameters: {
      type: 'object',
      properties: Object.fromEntries(
        keys.map((key) => [key, { type: key === 'count' ? 'integer' : 'string' }]),
      ),
    },
  },
});
const tools = [
  tool('bash', 'command', 'count'),
  tool('write', 'path', 'content'),
  tool('Answer Tool', 'hobbies'),
];

const read = (text: string, more: Partial<ReadAnswerOptions> = {}) =>
  readAnswer(text, { tools, opensThinking: false, ...more });
const wrap = (body: string, name = 'bash'): string =>
  `<tool_call>\n<function=${name}>\n${body}\n</function>\n</tool_call>`;
const parameter = (value: string, key = 'command'): string => `<parameter=${key}>\n${value}\n</parameter>`;
/** The only call, as [name, arguments]; nothing else was said. */
function onlyCall(text: string, more: Partial<ReadAnswerOptions> = {}): [string, unknown] {
  const { content, toolCalls } = read(text, more);
  expect(content).toBe('');
  expect(toolCalls).toHaveLength(1);
  expect(toolCalls[0]?.complete).toBe(true);
  return [toolCalls[0]?.name ?? '', JSON.parse(toolCalls[0]?.arguments ?? '')];
}

describe('a call that was cut', () => {
  it.each([
    ['in a value', parameter('ls -la').slice(0, -17), '{"command": "ls'],
    ['in a closing tag', '<parameter=command>\nls -la\n</param', '{"command": "ls -la'],
    ['at the first character of a tag', '<parameter=command>\nls -la\n<', '{"command": "ls -la'],
    ['behind a value', parameter('ls -la'), '{"command": "ls -la"'],
    ['in the next opening tag', `${parameter('ls')}\n<parameter=cou`, '{"command": "ls"'],
    ['in a number', `${parameter('ls')}\n<parameter=count>\n12`, '{"command": "ls", "count": "12'],
    ['before any value', '', '{'],
    ['in the first opening tag', '<parameter=com', '{'],
    ['in its own closing tag', `${parameter('ls')}\n</func`, '{"command": "ls"'],
  ])('%s stays visibly incomplete', (_, body, expected) => {
    const text = `<tool_call>\n<function=bash>\n${body}`;
    const { content, toolCalls } = read(text, { ended: false });
    expect(toolCalls).toEqual([{ name: 'bash', arguments: expected, complete: false }]);
    expect(content).toBe('');
    expect(() => JSON.parse(expected)).toThrow();
  });

  it('in a value is incomplete even where the model ended the answer', () => {
    const text =
      '<tool_call>\n<function=write>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nline 1\nline 2 is cut he';
    for (const ended of [true, false])
      expect(read(text, { ended }).toolCalls).toEqual([
        { name: 'write', arguments: '{"path": "a", "content": "line 1\\nline 2 is cut he', complete: false },
      ]);
  });

  it('behind its end is complete', () => {
    const whole = wrap(parameter('ls'));
    for (const text of [whole, whole.slice(0, -5), whole.slice(0, -12)])
      expect(read(text, { ended: false }).toolCalls).toEqual([
        { name: 'bash', arguments: '{"command": "ls"}', complete: true },
      ]);
  });

  it('as JSON stays text', () => {
    const text = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls';
    expect(read(text, { ended: false })).toEqual({ reasoning: '', content: text, toolCalls: [] });
  });
});

describe('what only talks of calls is text', () => {
  it.each([
    ['prose', 'Docs mention </tool_call> and <function=name> together, see below.'],
    [
      'prose with a tool of the request',
      'Write <tool_call><function=bash></function></tool_call> to run it.',
    ],
    ['a bare function in a line', 'Use <function=bash> for that.'],
    ['a quotation', `He said "${wrap(parameter('ls'))}".`],
    ['inline code', `Write \`${wrap(parameter('ls'))}\`.`],
    ['a tool that was not declared', wrap(parameter('Paris', 'city'), 'get_weather')],
    [
      'a fenced example',
      `Example:\n\`\`\`xml\n${wrap(parameter('Paris', 'city'), 'get_weather')}\n\`\`\`\nThe end.`,
    ],
    [
      'a fenced example of a declared tool',
      `Example:\n\`\`\`xml\n${wrap(parameter('ls'))}\n\`\`\`\nThe end.`,
    ],
    ['a fence of tildes', `~~~~\n${wrap(parameter('ls'))}\n~~~~\n`],
    ['a fence with more behind the call', `\`\`\`\n${wrap(parameter('ls'))}\nand then`],
    [
      'two fenced examples',
      `\`\`\`\n${wrap(parameter('a'))}\n\`\`\`\nor\n\`\`\`\n${wrap(parameter('b'))}\n\`\`\``,
    ],
  ])('in %s', (_, text) => {
    expect(read(text)).toEqual({ reasoning: '', content: text, toolCalls: [] });
    expect(read(text, { ended: false }).toolCalls).toEqual([]);
  });

  it('in thinking', () => {
    const thought = `Maybe\n${wrap(parameter('ls'))}\nwould do.`;
    expect(read(`${thought}\n</think>\n\nDone.`, { opensThinking: true })).toEqual({
      reasoning: thought,
      content: 'Done.',
      toolCalls: [],
    });
    const last = `I will do\n${wrap(parameter('ls'))}`;
    expect(read(`${last}\n</think>\n\n${wrap(parameter('pwd'))}`, { opensThinking: true })).toEqual({
      reasoning: last,
      content: '',
      toolCalls: [{ name: 'bash', arguments: '{"command": "pwd"}', complete: true }],
    });
  });

  it('but a call that ends the output is one, in thinking and in a fence that stays open', () => {
    const made = [{ name: 'bash', arguments: '{"command": "ls"}', complete: true }];
    const call = wrap(parameter('ls'));
    expect(read(`So:\n${call}`, { opensThinking: true })).toEqual({
      reasoning: 'So:',
      content: '',
      toolCalls: made,
    });
    expect(read(`So:\n\`\`\`\nx\n${call}\n`)).toEqual({
      reasoning: '',
      content: 'So:\n```\nx',
      toolCalls: made,
    });
    const cut = `So:\n${call}`;
    expect(read(cut, { opensThinking: true, ended: false })).toEqual({
      reasoning: cut,
      content: '',
      toolCalls: [],
    });
  });

  it('and text behind a call is kept', () => {
    const message = read(`Before.\n\n${wrap(parameter('ls'))}\n\nBehind <b>it</b>.`);
    expect(message.content).toBe('Before.\n\nBehind <b>it</b>.');
    expect(message.toolCalls).toHaveLength(1);
  });
});

describe('the end of thinking is known', () => {
  it.each([
    ['in a line', 'a</think>b', true, 'a', 'b'],
    ['twice', 'a\n</think>\n</think>\n\nb', true, 'a', 'b'],
    ['without thinking', '</think>\n\nb', false, '', 'b'],
    ['after a line of content', 'a\n</think>\nb', false, '', 'a\n\nb'],
    ['in a fence of thinking', 'a\n```\nb\n</think>c', true, 'a\n```\nb', 'c'],
  ])('%s', (_, text, opensThinking, reasoning, content) => {
    expect(read(text, { opensThinking })).toEqual({ reasoning, content, toolCalls: [] });
  });

  it('inside a call', () => {
    const body = `</think>\n${parameter('ls')}\n</think>`;
    expect(onlyCall(wrap(body))).toEqual(['bash', { command: 'ls' }]);
    expect(onlyCall(wrap(parameter('</think>')))).toEqual(['bash', { command: '</think>' }]);
  });
});

describe('tags that are nearly right are read', () => {
  it.each([
    ['quotes', '<parameter="command">\nls -la\n</parameter>'],
    ['single quotes', "<parameter='command'>\nls -la\n</parameter>"],
    ['name=', '<parameter name="command">\nls -la\n</parameter>'],
    ['name= without quotes', '<parameter name=command>\nls -la\n</parameter>'],
    ['a blank for =', '<parameter command>\nls -la\n</parameter>'],
    ['blanks around the name', '<parameter = command >\nls -la\n</parameter>'],
    ['no bracket', '<parameter=command\nls -la\n</parameter>'],
    ['no bracket, in one line', '<parameter=command ls -la</parameter>'],
    ['a bracket in the value instead', '<parameter=command ls -la\n</parameter>'],
    ['an attribute', '<parameter=command type="string">\nls -la\n</parameter>'],
    ['a short word', '<param=command>\nls -la\n</param>'],
    ['capitals', '<Parameter=command>\nls -la\n</Parameter>'],
    ['carriage returns', '<parameter=command>\r\nls -la\r\n</parameter>\r'],
  ])('%s', (_, body) => {
    expect(onlyCall(wrap(body))).toEqual(['bash', { command: 'ls -la' }]);
  });

  it.each([
    ['a name with a blank', '<tool_call>\n<function=Answer Tool>'],
    ['quotes', '<tool_call>\n<function="Answer Tool">'],
    ['name=', '<tool_call>\n<function name="Answer Tool">'],
    ['blanks', '<tool_call>\n<function= Answer Tool >'],
    ['no bracket', '<tool_call>\n<function=Answer Tool'],
    ['no bracket of the wrapper', '<tool_call\n<function=Answer Tool>'],
  ])('%s', (_, opening) => {
    expect(onlyCall(`${opening}\n${parameter('go', 'hobbies')}\n</function>\n</tool_call>`)).toEqual([
      'Answer Tool',
      { hobbies: 'go' },
    ]);
  });

  it('and one that was not understood never gives a call without it', () => {
    const { content, toolCalls } = read(wrap('<command>ls</command>'));
    expect(toolCalls).toEqual([{ name: 'bash', arguments: '{', complete: false }]);
    expect(content).toBe('<command>ls</command>');
  });
});

describe('a value ends at its own tag', () => {
  it.each([
    ['doubled', `${parameter('ls')}\n</parameter>`],
    ['misspelt', '<parameter=command>\nls\n</parameter1>'],
    ['misspelt in other ways', '<parameter=command>\nls\n</paramater>'],
    ['without its bracket', '<parameter=command>\nls\n</parameter'],
    ['swapped', '<parameter=command>\nls\n</function>\n</parameter>'],
    ['doubled for all', `${parameter('ls')}\n</function>\n</function>`],
  ])('%s closing tags are no text', (_, body) => {
    expect(onlyCall(wrap(body))).toEqual(['bash', { command: 'ls' }]);
    expect(onlyCall(`${wrap(body)}\n</tool_call>\n</tool_calls>`)).toEqual(['bash', { command: 'ls' }]);
  });

  it.each([
    ['a quoted call', `SAMPLE = """${wrap(parameter('ls'))}"""\ndef test(): pass`],
    [
      'a quoted call with keys of this one',
      `x\n${wrap(`${parameter('a', 'path')}\n${parameter('b', 'content')}`, 'write')}\ny`,
    ],
    ['a key in a line', 'set <parameter=path> to x'],
    ['a closing tag in a line', 'a </parameter> b\nc </function> d </tool_call>'],
    ['a string with closing tags', 'print("</parameter></function>")'],
    ['XML that resembles the format', '<tools>\n  <param>\n    x\n  </param>\n</tools>'],
    ['HTML', '<div>\n<p>a</p>\n</div>'],
    ['a function of XML', '<function>\n<name>f</name>\n</function>'],
  ])('%s is part of it', (_, value) => {
    const body = `${parameter(value, 'content')}\n${parameter('a', 'path')}`;
    expect(onlyCall(wrap(body, 'write'))).toEqual(['write', { content: value, path: 'a' }]);
  });

  it('and at a declared key at the start of a line', () => {
    const body = '<parameter=path>\na\n<parameter=content>\nb\n</parameter>';
    expect(onlyCall(wrap(body, 'write'))).toEqual(['write', { path: 'a', content: 'b' }]);
  });

  it('one key stands once, the value that came second is content', () => {
    const { content, toolCalls } = read(wrap(`${parameter('ls')}\n${parameter('pwd')}`));
    expect(toolCalls[0]?.arguments).toBe('{"command": "ls"}');
    expect(content).toBe('pwd');
    expect(read(wrap(`{"command": "ls"}\n${parameter('pwd')}`)).toolCalls[0]?.arguments).toBe(
      '{"command": "ls"}',
    );
  });
});
