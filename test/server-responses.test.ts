/** `/v1/responses` over a scripted engine: items both ways, the order of events, what is stored, what is refused. */
import { afterEach, describe, expect, it } from 'vitest';
import { type StubServer, serveStub } from './support/serve-stub.ts';
import type { StubScript } from './support/stub-engine.ts';

// biome-ignore lint/suspicious/noExplicitAny: whatever the server said
type Json = any;

const path = '/v1/responses';
const parameters = {
  type: 'object',
  properties: { a: { type: 'number' }, text: { type: 'string' } },
  required: ['a'],
};
const add = { type: 'function', name: 'add', description: 'adds', parameters, strict: false };
const patch = { type: 'custom', name: 'patch', description: 'patches a file' };

const callText = (name: string, values: Record<string, string>): string =>
  `<tool_call>\n<function=${name}>\n${Object.entries(values)
    .map(([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`)
    .join('')}</function>\n</tool_call>`;

let server: StubServer;
const open = async (
  script: StubScript | string,
  options: Parameters<typeof serveStub>[1] = {},
): Promise<void> => {
  server = await serveStub(typeof script === 'string' ? () => ({ text: script }) : script, options);
};
afterEach(() => server?.close());

async function ask(body: Record<string, unknown>, init: RequestInit = {}): Promise<Json> {
  const response = await server.post(path, { model: 'stub', input: 'hello', ...body }, init);
  return { status: response.status, ...((await response.json()) as object) };
}

async function events(body: Record<string, unknown>): Promise<Json[]> {
  const response = await server.post(path, { model: 'stub', input: 'hello', stream: true, ...body });
  return streamed(await response.text());
}

function streamed(text: string): Json[] {
  return text
    .split('\n\n')
    .filter((block) => block.startsWith('event: '))
    .map((block) => {
      const [name = '', data = ''] = block.split('\n');
      const json = JSON.parse(data.slice('data: '.length));
      expect(name).toBe(`event: ${json.type}`);
      return json;
    });
}

const withoutIds = (value: unknown): unknown =>
  JSON.parse(
    JSON.stringify(value, (key, item) =>
      ['id', 'item_id', 'call_id', 'created_at', 'completed_at'].includes(key) ? undefined : item,
    ),
  );

describe('an answer as items', () => {
  it('is a message with its text, whole and streamed the same', async () => {
    await open('Hello there.');
    const whole = await ask({});
    expect(whole).toMatchObject({
      status: 'completed',
      object: 'response',
      model: 'stub',
      error: null,
      incomplete_details: null,
      output: [
        {
          type: 'message',
          role: 'assistant',
          status: 'completed',
          content: [{ type: 'output_text', text: 'Hello there.', annotations: [] }],
        },
      ],
      usage: {
        input_tokens_details: { cached_tokens: 0 },
        output_tokens_details: { reasoning_tokens: 0 },
      },
    });
    expect(whole.id).toMatch(/^resp_/);
    expect(whole.usage.total_tokens).toBe(whole.usage.input_tokens + whole.usage.output_tokens);
    const all = await events({});
    expect(withoutIds(all.at(-1).response.output)).toEqual(withoutIds(whole.output));
    expect(
      all.map(({ type }) => type.replace('response.', '')).filter((type, i, list) => type !== list[i - 1]),
    ).toEqual([
      'created',
      'in_progress',
      'output_item.added',
      'content_part.added',
      'output_text.delta',
      'output_text.done',
      'content_part.done',
      'output_item.done',
      'completed',
    ]);
    expect(all.map(({ sequence_number: at }) => at)).toEqual(all.map((_, i) => i));
    expect(all[0].response).toMatchObject({ status: 'in_progress', output: [], usage: null });
  });

  it('keeps the order of thinking, text, calls and text between them', async () => {
    await open(
      `Let me see.\n</think>\n\nFirst.\n\n${callText('add', { a: '1' })}\nThen.\n\n${callText('patch', { input: '*** "a"\n\tb\\n' })}`,
      { enableThinking: true },
    );
    const all = await events({ tools: [add, patch] });
    const { output, usage } = all.at(-1).response;
    expect(output.map(({ type }: Json) => type)).toEqual([
      'reasoning',
      'message',
      'function_call',
      'message',
      'custom_tool_call',
    ]);
    expect(output[0].summary).toEqual([{ type: 'summary_text', text: 'Let me see.' }]);
    expect(output[2]).toMatchObject({ name: 'add', arguments: '{"a": 1}', status: 'completed' });
    expect(output[4]).toMatchObject({ name: 'patch', input: '*** "a"\n\tb\\n', status: 'completed' });
    expect(usage.output_tokens_details.reasoning_tokens).toBeGreaterThan(3);
    expect(usage.output_tokens_details.reasoning_tokens).toBeLessThan(usage.output_tokens / 2);
    const joined = (type: string): string =>
      all
        .filter((one) => one.type === type)
        .map(({ delta }) => delta)
        .join('');
    expect(joined('response.reasoning_summary_text.delta')).toBe('Let me see.');
    expect(joined('response.function_call_arguments.delta')).toBe('{"a": 1}');
    expect(joined('response.custom_tool_call_input.delta')).toBe('*** "a"\n\tb\\n');
    const ends = all.filter(({ type }) => type === 'response.output_item.done');
    expect(ends.map(({ item }) => item)).toEqual(output);
    expect(ends.map(({ output_index: at }) => at)).toEqual([0, 1, 2, 3, 4]);
    expect(withoutIds((await ask({ tools: [add, patch] })).output)).toEqual(withoutIds(output));
  });

  it('tells the function of a namespace by its own name', async () => {
    await open((prompt) =>
      prompt.includes('"mcp__fs__read"') ? { text: callText('mcp__fs__read', {}) } : { text: 'none' },
    );
    const tools = [
      {
        type: 'namespace',
        name: 'mcp__fs',
        description: 'files',
        tools: [{ type: 'function', name: 'read' }],
      },
    ];
    const { output } = await ask({ tools });
    expect(output[0]).toMatchObject({ type: 'function_call', name: 'read', namespace: 'mcp__fs' });
  });

  it('ends incomplete at max_output_tokens, a call cut open', async () => {
    await open(`Yes.\n\n${callText('add', { a: '1', text: 'long '.repeat(40) })}`);
    const whole = await ask({ tools: [add], max_output_tokens: 30 });
    expect(whole).toMatchObject({
      status: 'incomplete',
      incomplete_details: { reason: 'max_output_tokens' },
      max_output_tokens: 30,
    });
    expect(whole.output[1]).toMatchObject({ type: 'function_call', status: 'incomplete' });
    expect(() => JSON.parse(whole.output[1].arguments)).toThrow();
    const all = await events({ max_output_tokens: 2 });
    expect(all.at(-1)).toMatchObject({ type: 'response.incomplete', response: { status: 'incomplete' } });
  });

  it('carries log-probabilities of the text alone', async () => {
    await open('Thinking.\n</think>\n\nHello there', { enableThinking: true });
    const asked = { include: ['message.output_text.logprobs'], top_logprobs: 1 };
    const { output } = await ask(asked);
    const { logprobs } = output[1].content[0];
    expect(logprobs.map(({ token }: Json) => token).join('')).toBe('Hello there');
    expect(logprobs[0].top_logprobs).toHaveLength(1);
    const deltas = (await events(asked)).filter(({ type }) => type === 'response.output_text.delta');
    expect(deltas.flatMap((delta) => delta.logprobs)).toEqual(logprobs);
  });

  it('ends with an error and a failed response where the engine breaks', async () => {
    await open(() => ({ text: 'one two three', failAfter: 1 }));
    const all = await events({});
    expect(all.at(-2)).toMatchObject({ type: 'error', code: 'internal_error' });
    expect(all.at(-1)).toMatchObject({
      type: 'response.failed',
      response: { status: 'failed', error: { code: 'internal_error' } },
    });
    expect(JSON.stringify(all)).not.toContain('script fails');
  });
});

describe('a conversation', () => {
  const chatTool = (tool: typeof add) => ({
    type: 'function',
    function: { name: tool.name, description: tool.description, parameters: tool.parameters },
  });
  const turn = `I think.\n</think>\n\nAdding.\n\n${callText('add', { a: '2', text: 'x' })}`;
  const script: StubScript = (_prompt, index) => ({
    text: index % 2 === 0 ? turn : 'Sure.\n</think>\n\nDone.',
  });

  it('has the prompt that it has through chat', async () => {
    await open(script, { enableThinking: true });
    const messages: Json[] = [
      { role: 'system', content: 'You add.' },
      { role: 'developer', content: 'Be short.' },
      { role: 'user', content: 'add please' },
    ];
    const tools = [chatTool(add)];
    const asked = async (): Promise<Json> => (await server.chat({ messages, tools })).json();
    const first = await asked();
    const { message } = first.choices[0];
    messages.push(message, { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'added' });
    const second = await asked();
    messages.push(second.choices[0].message, { role: 'user', content: [{ type: 'text', text: 'again' }] });
    const third = await asked();
    const chatPrompts = server.engine.requests.map(({ ids }) => ids);
    await server.close();

    await open(script, { enableThinking: true });
    const items: Json[] = [
      { role: 'developer', content: 'Be short.' },
      { type: 'message', role: 'user', content: 'add please' },
    ];
    const request = { instructions: 'You add.', tools: [add], store: false };
    const go = (): Promise<Json> => ask({ ...request, input: items });
    const one = await go();
    items.push(...one.output, {
      type: 'function_call_output',
      call_id: one.output[2].call_id,
      output: 'added',
    });
    const two = await go();
    items.push(...two.output, { role: 'user', content: [{ type: 'input_text', text: 'again' }] });
    const three = await go();
    expect(server.engine.requests.map(({ ids }) => ids)).toEqual(chatPrompts);
    expect([one, two, three].map(({ usage }) => usage.input_tokens)).toEqual(
      [first, second, third].map(({ usage }) => usage.prompt_tokens),
    );
    expect(three.usage.input_tokens_details.cached_tokens).toBe(
      third.usage.prompt_tokens_details.cached_tokens,
    );
  });

  it('goes on from previous_response_id, without its instructions', async () => {
    await open((_prompt, index) => ({ text: index === 0 ? callText('add', { a: '1' }) : 'Fine.' }));
    const first = await ask({ instructions: 'Secret word: fish.', tools: [add] });
    const second = await ask({
      previous_response_id: first.id,
      instructions: 'Other.',
      input: [
        {
          type: 'function_call_output',
          call_id: first.output[0].call_id,
          output: [{ type: 'input_text', text: '1' }],
        },
      ],
      tools: [add],
    });
    expect(second.previous_response_id).toBe(first.id);
    const third = await ask({ previous_response_id: second.id, input: 'thanks' });
    const { tokenizer } = await import('./support/stub-engine.ts');
    const prompt = tokenizer.decode(server.engine.requests[2]?.ids ?? new Int32Array(0));
    expect(prompt).toContain('hello');
    expect(prompt).toContain('<tool_response>\n1\n</tool_response>');
    expect(prompt).toContain('Fine.');
    expect(prompt).not.toContain('fish');
    expect(prompt).not.toContain('Other.');
    const list = await fetch(`${server.url}${path}/${third.id}/input_items?order=asc`);
    const { data } = (await list.json()) as Json;
    expect(data.map(({ type }: Json) => type)).toEqual([
      'message',
      'function_call',
      'function_call_output',
      'message',
      'message',
    ]);
  });

  it('takes references to items of stored responses', async () => {
    await open('Blue.');
    const first = await ask({});
    const input = [
      { role: 'user', content: 'hello' },
      { type: 'item_reference', id: first.output[0].id },
      { role: 'user', content: 'sure?' },
    ];
    expect((await ask({ input })).status).toBe('completed');
    const again = [input[0], first.output[0], input[2]];
    await ask({ input: again });
    const [, referred, sent] = server.engine.requests;
    expect(referred?.ids).toEqual(sent?.ids);
    const unknown = await ask({ input: [{ type: 'item_reference', id: 'msg_none' }] });
    expect(unknown).toMatchObject({ status: 404, error: { param: 'input[0]' } });
  });

  it('gets its reasoning back from a client without a store', async () => {
    await open('Deep thought.\n</think>\n\nYes.', { enableThinking: true });
    const first = await ask({ store: false, include: ['reasoning.encrypted_content'] });
    const [reasoning, message] = first.output;
    expect(reasoning.encrypted_content).toMatch(/^copse1\./);
    const kwargs = { chat_template_kwargs: { preserve_thinking: true } };
    const sent = (items: Json[]) =>
      ask({
        input: [{ role: 'user', content: 'hello' }, ...items, { role: 'user', content: 'so?' }],
        ...kwargs,
      });
    await sent([{ ...reasoning, summary: [] }, message]);
    await sent([
      { type: 'reasoning', summary: [], content: [{ type: 'reasoning_text', text: 'Deep thought.' }] },
      message,
    ]);
    await sent([{ type: 'reasoning', summary: [], encrypted_content: 'gAAAA' }, message]);
    const [, sealed, shown, foreign] = server.engine.requests;
    expect(sealed?.ids).toEqual(shown?.ids);
    expect(foreign?.ids).not.toEqual(shown?.ids);
  });

  it('drops the oldest messages with truncation auto', async () => {
    await open('Fine.', { contextTokens: 512 });
    const input = [
      { role: 'developer', content: 'Be brief.' },
      ...Array.from({ length: 40 }, (_, i) => ({ role: 'user', content: `question number ${i} of many` })),
    ];
    expect(await ask({ input })).toMatchObject({ status: 400, error: { code: 'context_length_exceeded' } });
    expect(await ask({ input, truncation: 'auto' })).toMatchObject({ status: 'completed' });
    const { tokenizer } = await import('./support/stub-engine.ts');
    const prompt = tokenizer.decode(server.engine.requests[0]?.ids ?? new Int32Array(0));
    expect(prompt).toContain('Be brief.');
    expect(prompt).toContain('question number 39');
    expect(prompt).not.toContain('question number 0 ');
  });
});

describe('a stored response', () => {
  it('is told again, listed and deleted', async () => {
    await open('Hi.');
    const { status: _, ...made } = await ask({ metadata: { run: '7' } });
    const at = `${server.url}${path}/${made.id}`;
    expect(await (await fetch(at)).json()).toMatchObject({ ...made, metadata: { run: '7' } });
    const items = (await (await fetch(`${at}/input_items`)).json()) as Json;
    expect(items.data).toMatchObject([
      { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hello' }] },
    ]);
    expect(items).toMatchObject({ has_more: false, first_id: items.data[0].id });
    expect(await (await fetch(at, { method: 'DELETE' })).json()).toEqual({
      id: made.id,
      object: 'response',
      deleted: true,
    });
    expect((await fetch(at)).status).toBe(404);
    expect((await fetch(at, { method: 'DELETE' })).status).toBe(404);
    const { status, error } = await ask({ previous_response_id: made.id });
    expect([status, error.code, error.param]).toEqual([
      400,
      'previous_response_not_found',
      'previous_response_id',
    ]);
  });

  it('is not there with store: false, nor for another key', async () => {
    await open('Hi.');
    const { id } = await ask({ store: false });
    expect((await fetch(`${server.url}${path}/${id}`)).status).toBe(404);
    const mine = await ask({}, { headers: { authorization: 'Bearer one' } });
    const other = await ask({ previous_response_id: mine.id }, { headers: { authorization: 'Bearer two' } });
    expect(other.error.code).toBe('previous_response_not_found');
  });

  it('is cancelled while it is streamed, and not when it is over', async () => {
    await open(() => ({ text: 'word '.repeat(300), gapMs: 5 }));
    const response = await server.post(path, { model: 'stub', input: 'hello', stream: true });
    const reader = response.body?.getReader();
    const first = new TextDecoder().decode((await reader?.read())?.value);
    const { id } = streamed(first)[0].response;
    const cancel = () => fetch(`${server.url}${path}/${id}/cancel`, { method: 'POST' });
    expect(await (await cancel()).json()).toMatchObject({ id, status: 'cancelled' });
    let rest = '';
    for (;;) {
      const { value, done } = (await reader?.read()) ?? { value: undefined, done: true };
      if (done) break;
      rest += new TextDecoder().decode(value);
    }
    expect(streamed(rest).at(-1)).toMatchObject({
      type: 'response.incomplete',
      response: { status: 'cancelled' },
    });
    expect((await cancel()).status).toBe(400);
    expect(server.engine.ended.cancelled).toBe(1);
  });
});

describe('a request that can not be taken', () => {
  it.each([
    ['background', { background: true }],
    ['conversation', { conversation: 'conv_1' }],
    ['prompt', { prompt: { id: 'pmpt_1' } }],
    ['input', { input: 7 }],
    ['input', { input: [] }],
    ['input[0]', { input: ['x'] }],
    ['input[0].type', { input: [{ type: 'nonsense' }] }],
    ['input[0].role', { input: [{ role: 'robot', content: 'x' }] }],
    ['input[0].content[0].text', { input: [{ role: 'user', content: [{ type: 'input_text' }] }] }],
    ['input[0].call_id', { input: [{ type: 'function_call', name: 'add', arguments: '{}' }] }],
    ['input[0].name', { input: [{ type: 'function_call', call_id: 'c', arguments: '{}' }] }],
    ['instructions', { instructions: ['x'] }],
    ['tools[0].name', { tools: [{ type: 'function' }] }],
    ['tools[0].parameters', { tools: [{ ...add, parameters: [] }] }],
    ['tools[1].name', { tools: [add, add] }],
    ['tool_choice', { tool_choice: 'required' }],
    ['tool_choice.type', { tools: [add], tool_choice: { type: 'web_search' } }],
    ['tool_choice.name', { tools: [add], tool_choice: { type: 'function', name: 'none' } }],
    ['tool_choice.mode', { tools: [add], tool_choice: { type: 'allowed_tools', tools: [add] } }],
    ['text.format.type', { text: { format: { type: 'xml' } } }],
    ['text.format.schema', { text: { format: { type: 'json_schema', name: 'x' } } }],
    ['truncation', { truncation: 'some' }],
    ['reasoning_effort', { reasoning: { effort: 'wild' } }],
    ['top_logprobs', { top_logprobs: 21 }],
    ['max_output_tokens', { max_output_tokens: 0 }],
    ['metadata.n', { metadata: { n: 1 } }],
    ['include[0]', { include: [1] }],
    ['store', { store: 'yes' }],
    ['temperature', { temperature: 500 }],
  ])('is a 400 that names %s', async (param, body) => {
    await open('x');
    const { status, error } = await ask(body);
    expect([status, error.param]).toEqual([400, param]);
    expect(error.type).toBe('invalid_request_error');
    expect(server.engine.requests).toHaveLength(0);
  });
});

it('leaves hosted tools out with a line in the log, and says what it did not know', async () => {
  await open('x');
  const tools = [add, { type: 'web_search' }, { type: 'code_interpreter', container: { type: 'auto' } }];
  const { output, tools: echoed } = await ask({ tools, fancy: 1, prompt_cache_key: 'k' });
  expect(output).toHaveLength(1);
  expect(echoed).toEqual(tools);
  const lines = server.log.map((line) => JSON.stringify(line)).join('\n');
  expect(lines).toContain('the tool web_search is left out');
  expect(lines).toContain('the tool code_interpreter is left out');
  expect(lines).toContain('"fields":["fancy"]');
});

it('counts the tokens of a prompt without answering', async () => {
  await open('x');
  const body = { model: 'stub', input: 'hello', tools: [add] };
  const counted = (await (await server.post(`${path}/input_tokens`, body)).json()) as Json;
  expect(server.engine.requests).toHaveLength(0);
  const { usage } = await ask(body);
  expect(counted).toEqual({ object: 'response.input_tokens', input_tokens: usage.input_tokens });
});
