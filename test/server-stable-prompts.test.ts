/** Prompts that stay cached although clients change or drop parts of them, and what is told of those that do not. */
import { afterEach, describe, expect, it } from 'vitest';
import { type StubServer, serveStub } from './support/serve-stub.ts';
import { tokenizer } from './support/stub-engine.ts';

let server: StubServer;
afterEach(() => server.close());

const tools = [{ type: 'function', function: { name: 'bash', parameters: { type: 'object' } } }];
const call = '<tool_call>\n<function=bash>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>';

async function promptsOf(
  systems: readonly unknown[],
  options: Parameters<typeof serveStub>[1] = {},
): Promise<string[]> {
  server = await serveStub(() => ({ text: 'ok' }), options);
  for (const content of systems) {
    const messages = [
      { role: 'system', content },
      { role: 'user', content: 'hi' },
    ];
    expect((await server.chat({ messages })).status).toBe(200);
  }
  return server.engine.requests.map(({ ids }) => tokenizer.decode(ids));
}

const billing = (hash: string) => `x-anthropic-billing-header: cc_version=2.1.117.48f; cch=${hash};`;

describe('lines that change with every request', () => {
  it.each([
    ['a billing header', [`${billing('71fea')}\nYou code.`, `${billing('0aaa9')}\nYou code.`]],
    [
      'a billing header in a block of its own',
      ['71fea', '0aaa9'].map((hash) => [
        { type: 'text', text: billing(hash) },
        { type: 'text', text: 'You code.' },
      ]),
    ],
    [
      'a clock in words',
      ['06:00:31', '06:59:02'].map(
        (time) => `You code.\nCurrent date and time: Monday, March 9, 2026 at ${time} PM PDT\nGo.`,
      ),
    ],
    ['a clock alone', ['15:09:20', '15:10:34'].map((time) => `Current time is ${time}. Today is Monday.`)],
    [
      'an ISO time',
      ['18:38:14.123Z', '18:40:00.001Z'].map((time) => `- **Current time**: 2026-12-06T${time}`),
    ],
    [
      'a request id',
      ['a', 'b'].map((digit) => `Request ID: 0000000${digit}-1111-2222-3333-444444444444\nYou code.`),
    ],
  ])('leave the prompt the same: %s', async (_name, systems) => {
    const prompts = await promptsOf(systems);
    expect(prompts[1]).toBe(prompts[0]);
    expect(server.log.filter((line) => line.msg === 'answered').map((line) => line.stableLines)).toEqual([
      1, 1,
    ]);
  });

  it('keep the hour and the date', async () => {
    const [prompt] = await promptsOf(['Current date and time: 2026-12-06 18:38:14']);
    expect(prompt).toContain('Current date and time: 2026-12-06 18:00:00');
  });

  it.each([
    'Meetings last from 10:15 to 10:45.',
    'Today is a good day. The file src/time.ts:12:30 has a bug.\nRun `date` at 10:31.',
    'Time limit: 00:10:30',
    `The header ${billing('1')} is known.`,
  ])('are no others: %s', async (text) => {
    const [prompt] = await promptsOf([text]);
    expect(prompt).toContain(text);
  });

  it('stay as they are in what the user says, and where the flag says so', async () => {
    const line = 'Current time is 15:09:20.';
    server = await serveStub(() => ({ text: 'ok' }));
    await server.chat({ messages: [{ role: 'user', content: line }] });
    expect(tokenizer.decode(server.engine.requests[0]?.ids ?? [])).toContain(line);
    await server.close();
    const [prompt] = await promptsOf([`${billing('1')}\n${line}`], { keepVolatileLines: true });
    expect(prompt).toContain(`${billing('1')}\n${line}`);
  });
});

describe('thinking before a call', () => {
  const thinking = 'I should look.\n</think>\n\n';
  const ask = [{ role: 'user', content: 'go' }];

  async function secondPrompt(change: (message: Record<string, unknown>) => unknown, user?: string) {
    server = await serveStub(() => ({ text: `${thinking}${call}` }), { enableThinking: true });
    const first = (await (await server.chat({ messages: ask, tools })).json()) as {
      choices: { message: Record<string, unknown> }[];
    };
    const message = first.choices[0]?.message ?? {};
    expect(message.reasoning_content).toBe('I should look.');
    const [{ id }] = message.tool_calls as [{ id: string }];
    const messages = [...ask, change(message), { role: 'tool', tool_call_id: id, content: 'a.txt' }];
    await server.chat({ messages, tools, ...(user === undefined ? {} : { user }) });
    const [one, two] = server.engine.requests.map(({ ids }) => tokenizer.decode(ids));
    return { before: `${one}${thinking}${call}`, prompt: two ?? '' };
  }

  it('comes back into the prompt when the client drops it', async () => {
    const { before, prompt } = await secondPrompt(({ reasoning_content: _, ...message }) => message);
    expect(prompt.startsWith(before)).toBe(true);
  });

  it('is what the client says where it says something', async () => {
    const { prompt } = await secondPrompt((message) => ({ ...message, reasoning_content: 'Other.' }));
    expect(prompt).toContain('<think>\nOther.\n</think>');
  });

  it('is known to its own user only', async () => {
    const { prompt } = await secondPrompt(({ reasoning_content: _, ...message }) => message, 'somebody');
    expect(prompt).not.toContain('I should look.');
  });
});

describe('what was reused', () => {
  const explain = async (query = '') => {
    const response = await fetch(`${server.url}/v1/cache/explain${query}`);
    // biome-ignore lint/suspicious/noExplicitAny: whatever the server said
    return { status: response.status, json: (await response.json()) as any };
  };

  it('is explained with the text that broke the prefix', async () => {
    server = await serveStub(() => ({ text: 'ok' }));
    const system = { role: 'system', content: 'You are a careful engineer.' };
    const say = (content: string) => server.chat({ messages: [system, { role: 'user', content }] });
    await say('read the file a.txt');
    const { id } = (await (await say('read the file b.txt')).json()) as { id: string };
    const { json } = await explain(`?id=${id}`);
    expect(json.data).toHaveLength(1);
    const [entry] = json.data;
    expect(entry).toMatchObject({ id, broke_at: { before: expect.stringMatching(/read the file $|file$/) } });
    expect(entry.broke_at.was).toMatch(/^ ?a/);
    expect(entry.broke_at.now).toMatch(/^ ?b/);
    expect(entry.prompt_tokens).toBeGreaterThan(entry.broke_at.at);
    expect(server.log.filter((line) => line.msg === 'answered').at(-1)?.broke).toEqual(entry.broke_at);
  });

  it('has no break where a conversation goes on', async () => {
    server = await serveStub(() => ({ text: call }));
    const messages: unknown[] = [{ role: 'user', content: 'hi' }];
    const first = await (await server.chat({ messages, tools })).json();
    const { message } = (first as { choices: [{ message: unknown }] }).choices[0];
    messages.push(message, { role: 'tool', content: 'a.txt' });
    await server.chat({ messages, tools });
    const { json } = await explain('?limit=1');
    expect(json.data).toHaveLength(1);
    expect(json.data[0].broke_at).toBeNull();
  });

  it('is refused for answers that are unknown and limits that are none', async () => {
    server = await serveStub(() => ({ text: 'ok' }));
    expect((await explain()).json).toEqual({ object: 'list', data: [] });
    expect(await explain('?id=chatcmpl-x')).toMatchObject({ status: 404, json: { error: { param: 'id' } } });
    expect(await explain('?limit=0')).toMatchObject({ status: 400, json: { error: { param: 'limit' } } });
  });
});
