/** Conversations as agents send them: rendered as what they are, with one line in the log, never a 400. */
import { afterEach, describe, expect, it } from 'vitest';
import { type StubServer, serveStub } from './support/serve-stub.ts';
import { tokenizer } from './support/stub-engine.ts';

let server: StubServer;
afterEach(() => server.close());

type Messages = readonly Record<string, unknown>[];

/** The prompt that the messages become, and what the log says of them. */
async function promptOf(
  messages: Messages,
  more: Record<string, unknown> = {},
  options: Parameters<typeof serveStub>[1] = {},
): Promise<{ prompt: string; notes: unknown[] }> {
  server = await serveStub(() => ({ text: 'ok' }), options);
  const response = await server.chat({ messages, ...more });
  expect(response.status).toBe(200);
  const [request] = server.engine.requests;
  const notes = server.log.filter((line) => 'notes' in line);
  return { prompt: tokenizer.decode(request?.ids ?? []), notes: notes.map((line) => line.notes) };
}

const user = (content: unknown) => ({ role: 'user', content });
const system = (content: unknown) => ({ role: 'system', content });
const calls = (args: unknown) => ({
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'c', type: 'function', function: { name: 'bash', arguments: args } }],
});
const result = { role: 'tool', tool_call_id: 'c', content: 'done' };
const tools = [{ type: 'function', function: { name: 'bash', parameters: { type: 'object' } } }];

describe('system messages', () => {
  it('in front become one', async () => {
    const messages = [
      system('one'),
      { role: 'developer', content: [{ type: 'text', text: 'two' }] },
      user('hi'),
    ];
    const { prompt } = await promptOf(messages);
    expect(prompt).toMatch(/^<\|im_start\|>system\none\n\ntwo<\|im_end\|>\n<\|im_start\|>user\nhi/);
  });

  it('behind others stay where they are, so that what is before them keeps its pages', async () => {
    const before = [system('one'), user('hi'), { role: 'assistant', content: 'x' }];
    const { prompt } = await promptOf([...before, system('reminder'), user('go')]);
    expect(prompt).toContain('x<|im_end|>\n<|im_start|>system\nreminder<|im_end|>\n<|im_start|>user\ngo');
  });

  it('need no user message', async () => {
    const { prompt } = await promptOf([system('a'), calls('{"command": "ls"}'), result], { tools });
    expect(prompt).toContain('<parameter=command>\nls\n</parameter>');
    await server.close();
    expect((await promptOf([system('a')])).prompt).toContain('system\na<|im_end|>\n<|im_start|>assistant\n');
    await server.close();
    expect((await promptOf([{ role: 'assistant', content: 'x' }])).prompt).toContain('x<|im_end|>');
  });
});

describe('arguments of past calls', () => {
  it.each<[string, unknown, string]>([
    ['cut', '{"command": "ls', '{"command": "ls\n'],
    ['a list with something in it', '[1]', '[1]\n'],
    ['no JSON at all', 'ls -la', 'ls -la\n'],
    ['a number', 7, '7\n'],
    ['of 1,000 levels', '['.repeat(1000), `${'['.repeat(1000)}\n`],
  ])('that are %s are rendered as they are', async (_, args, rendered) => {
    const { prompt, notes } = await promptOf(
      [user('a'), calls(args), result, user('go on')],
      { tools },
      { contextTokens: 8000 },
    );
    expect(prompt).toContain(`<function=bash>\n${rendered}</function>`);
    expect(notes).toEqual([['arguments of a past call that are no JSON object are rendered as they are']]);
  });

  it.each([['[]'], ['null'], [''], [null], [[]], [undefined]])('that are %j are none', async (args) => {
    const { prompt, notes } = await promptOf([user('a'), calls(args), result], { tools });
    expect(prompt).toContain('<function=bash>\n</function>');
    expect(notes).toEqual([]);
  });
});

describe('what is no text', () => {
  const image = { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } };
  const file = { type: 'file', file: { filename: 'a.pdf', file_data: 'x' } };

  it('is a placeholder, in messages and in tool results', async () => {
    const messages = [
      user([{ type: 'text', text: 'see ' }, image]),
      calls('{}'),
      { ...result, content: [file, image] },
    ];
    const { prompt, notes } = await promptOf(messages, { tools });
    expect(prompt).toContain('see [image left out: this model reads text only]');
    expect(prompt).toContain('[file "a.pdf" left out: this model reads text only][image left out');
    expect(prompt).not.toContain('AAAA');
    expect(notes).toEqual([
      [
        'image in messages[].content[] is a placeholder (2 times)',
        'file in messages[].content[] is a placeholder',
      ],
    ]);
  });

  it('is refused under strictContent', async () => {
    server = await serveStub(() => ({ text: 'ok' }), { strictContent: true });
    const response = await server.chat({ messages: [user([image])] });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({
      error: {
        param: 'messages[0].content[0].type',
        message: expect.stringMatching(/"image_url", supported is text/),
      },
    });
  });
});

describe('thinking', () => {
  it.each([
    ['none', { reasoning_effort: 'none' }, false],
    ['low', { reasoning_effort: 'low' }, true],
    ['none of a gateway', { reasoning: { effort: 'none' } }, false],
    [
      'what the template is told first',
      { reasoning_effort: 'none', chat_template_kwargs: { enable_thinking: true } },
      true,
    ],
  ])('follows the effort: %s', async (_, body, thinks) => {
    const { prompt } = await promptOf([user('hi')], body);
    expect(prompt.endsWith(thinks ? '<think>\n' : '<think>\n\n</think>\n\n')).toBe(true);
  });
});

describe('tool_choice none', () => {
  it('keeps the tools in the prompt, and the model from calling', async () => {
    const auto = (await promptOf([user('hi')], { tools })).prompt;
    await server.close();
    const none = (await promptOf([user('hi')], { tools, tool_choice: 'none' })).prompt;
    expect(none).toBe(auto);
    const [request] = server.engine.requests;
    expect(request?.sampling.logitBias.get(tokenizer.tokenId('<tool_call>') ?? -1)).toBe(-100);
  });
});
