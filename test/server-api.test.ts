/** What the OpenAI API answers, field by field, on a scripted engine. */
import { afterEach, describe, expect, it } from 'vitest';
import { eventsOf, type StubServer, serveStub, userSays } from './support/serve-stub.ts';
import { type StubScript, tokenizer } from './support/stub-engine.ts';

let server: StubServer;
afterEach(() => server.close());

const serve = async (script: StubScript, options: Parameters<typeof serveStub>[1] = {}) => {
  server = await serveStub(script, options);
  return server;
};
// biome-ignore lint/suspicious/noExplicitAny: whatever the server said
const json = async (response: Response): Promise<any> => response.json();
const count = (text: string): number => tokenizer.encode(text, { special: 'plain' }).length;
const tools = [
  { type: 'function', function: { name: 'run', parameters: { properties: { n: { type: 'number' } } } } },
];
const call = '<tool_call>\n<function=run>\n<parameter=n>\n1.0\n</parameter>\n</function>\n</tool_call>';

describe('chat', () => {
  it('answers whole, with usage and what was cached', async () => {
    const { chat } = await serve(() => ({ text: 'good day' }));
    const first = await json(await chat());
    expect(first).toMatchObject({
      object: 'chat.completion',
      model: 'stub',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: 'good day' },
          logprobs: null,
          finish_reason: 'stop',
        },
      ],
      usage: { completion_tokens: count('good day'), prompt_tokens_details: { cached_tokens: 0 } },
    });
    expect(first.id).toMatch(/^chatcmpl-/);
    const { usage } = await json(await chat());
    expect(usage.prompt_tokens_details.cached_tokens).toBe(usage.prompt_tokens - 1);
    expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens);
  });

  it('streams the role, the pieces, the reason, usage when asked for, and [DONE]', async () => {
    const { chat } = await serve(() => ({ text: 'good day to you' }));
    const response = await chat({ stream: true, stream_options: { include_usage: true } });
    expect(response.headers.get('content-type')).toMatch('text/event-stream');
    const { data, json: chunks } = eventsOf(await response.text());
    expect(data.at(-1)).toBe('[DONE]');
    expect(chunks[0].choices[0].delta).toEqual({ role: 'assistant', content: '' });
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
    expect(text).toBe('good day to you');
    expect(chunks.at(-2).choices[0]).toEqual({ index: 0, delta: {}, finish_reason: 'stop' });
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: count(text) } });
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true);
    expect(new Set(chunks.map((chunk) => chunk.id)).size).toBe(1);
    const plain = eventsOf(await (await chat({ stream: true })).text());
    expect(plain.json.some((chunk) => 'usage' in chunk)).toBe(false);
  });

  it('streams a call: id, name and empty arguments first, then fragments', async () => {
    const { chat } = await serve(() => ({ text: call }));
    const { json: chunks } = eventsOf(await (await chat({ stream: true, tools })).text());
    const calls = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []);
    expect(calls[0]).toMatchObject({
      index: 0,
      id: expect.stringMatching(/^call_/),
      type: 'function',
      function: { name: 'run', arguments: '' },
    });
    expect(calls.slice(1).every((one) => !('id' in one) && !('name' in one.function))).toBe(true);
    expect(calls.map((one) => one.function.arguments).join('')).toBe('{"n": 1.0}');
    expect(chunks.at(-1).choices[0].finish_reason).toBe('tool_calls');
  });

  it('answers whole with a call and no content', async () => {
    const { chat } = await serve(() => ({ text: call }));
    const { choices } = await json(await chat({ tools }));
    expect(choices[0].message.content).toBeNull();
    expect(choices[0].message.tool_calls).toMatchObject([
      { type: 'function', function: { name: 'run', arguments: '{"n": 1.0}' } },
    ]);
  });

  it('keeps reasoning apart, by request or by template variable', async () => {
    const { chat, engine } = await serve(() => ({ text: 'hm\n</think>\n\nyes' }));
    for (const body of [{ enable_thinking: true }, { chat_template_kwargs: { enable_thinking: true } }]) {
      const { choices } = await json(await chat(body));
      expect(choices[0].message).toEqual({ role: 'assistant', content: 'yes', reasoning_content: 'hm' });
    }
    const stream = eventsOf(await (await chat({ enable_thinking: true, stream: true })).text());
    expect(stream.json.map((chunk) => chunk.choices[0].delta.reasoning_content ?? '').join('')).toBe('hm');
    // The template's variable wins over the short form.
    await chat({ enable_thinking: true, chat_template_kwargs: { enable_thinking: false } });
    expect(tokenizer.decode(engine.requests.at(-1)?.ids ?? [])).toMatch(/<think>\n\n<\/think>\n\n$/);
  });

  it('gives log-probabilities as numbers, also of what is impossible', async () => {
    const { chat } = await serve(() => ({ text: 'good day' }));
    const { choices } = await json(await chat({ logprobs: true, top_logprobs: 2 }));
    const [token] = choices[0].logprobs.content;
    expect(token).toMatchObject({ logprob: -0.25, bytes: [...Buffer.from(token.token)] });
    expect(token.top_logprobs.map((top: { logprob: number }) => top.logprob)).toEqual([-0.25, -9999]);
    const stream = eventsOf(await (await chat({ logprobs: true, stream: true })).text());
    const tokens = stream.json.flatMap((chunk) => chunk.choices[0].logprobs?.content ?? []);
    expect(tokens.map(({ token: text }) => text).join('')).toBe('good day');
  });

  it('hands every sampling field to the engine', async () => {
    const { chat, engine } = await serve(() => ({ text: 'x' }));
    const sent = await chat({
      temperature: 0.5,
      top_p: 0.9,
      top_k: 40,
      min_p: 0.1,
      presence_penalty: 1,
      frequency_penalty: -1,
      repetition_penalty: 1.1,
      logit_bias: { '5': -100, '6': 1.5 },
      seed: -1,
      max_completion_tokens: 7,
      max_tokens: 9,
    });
    expect(sent.status).toBe(200);
    expect(engine.requests[0]).toMatchObject({
      maxTokens: 7,
      topLogprobs: null,
      sampling: {
        temperature: 0.5,
        topP: 0.9,
        topK: 40,
        minP: 0.1,
        presencePenalty: 1,
        frequencyPenalty: -1,
        repetitionPenalty: 1.1,
        seed: 2 ** 32 - 1,
      },
    });
    expect([...(engine.requests[0]?.sampling.logitBias ?? [])]).toEqual([
      [5, -100],
      [6, 1.5],
    ]);
    await chat();
    expect(engine.requests[1]?.sampling).toMatchObject({ temperature: 1, topK: 0, topP: 1 });
  });

  it('ends before a stop string, given alone or in a list', async () => {
    const { chat, url } = await serve(() => ({ text: 'one two three' }));
    for (const stop of [' two', ['zero', ' two']]) {
      const { choices } = await json(await chat({ stop }));
      expect(choices[0]).toMatchObject({ message: { content: 'one' }, finish_reason: 'stop' });
    }
    const page = await (await fetch(`${url}/metrics`)).text();
    expect(page).toMatch(/^copse:requests_cancelled_total\S* 0$/m);
  });

  it('keeps number lexemes and key order of tools and past arguments in the prompt', async () => {
    const { post, engine } = await serve(() => ({ text: 'x' }));
    const body = `{"model":"stub","messages":[{"role":"user","content":"a"},
      {"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"run","arguments":"{\\"n\\": 1.0, \\"big\\": 12345678901234567890, \\"2\\": {\\"b\\": 1, \\"1\\": 2.50}}"}}]},
      {"role":"tool","tool_call_id":"c","content":"done"}],
      "tools":[{"type":"function","function":{"name":"run","parameters":{"default":3.0}}}]}`;
    expect((await post('/v1/chat/completions', body)).status).toBe(200);
    const prompt = tokenizer.decode(engine.requests[0]?.ids ?? []);
    expect(prompt).toContain('"default": 3.0');
    expect(prompt).toMatch(/<parameter=n>\n1\.0\n.*<parameter=big>\n12345678901234567890\n.*<parameter=2>/s);
    expect(prompt).toContain('{"b": 1, "1": 2.5}');
  });

  it('takes what clients send: no content, null, parts, reasoning, developer, empty arguments', async () => {
    const { chat, engine } = await serve(() => ({ text: 'x' }));
    const called = (args: unknown) => [
      { id: 'c', type: 'function', function: { name: 'run', arguments: args } },
    ];
    const response = await chat({
      messages: [
        { role: 'developer', content: 'be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'part one, ' },
            { type: 'text', text: 'part two' },
          ],
        },
        { role: 'assistant', tool_calls: called('{"n": 1}'), reasoning_content: 'why' },
        { role: 'tool', tool_call_id: 'c', content: 'r' },
        { role: 'assistant', content: null, tool_calls: called(''), reasoning: 'because' },
        { role: 'tool', tool_call_id: 'c', content: [{ type: 'text', text: 's' }] },
        { role: 'assistant', content: 'ok', tool_calls: null },
        { role: 'user', content: 'on' },
      ],
      chat_template_kwargs: { preserve_thinking: true },
    });
    expect(await response.text()).toContain('chat.completion');
    const prompt = tokenizer.decode(engine.requests[0]?.ids ?? []);
    expect(prompt).toMatch(/^<\|im_start\|>system\nbe brief/);
    expect(prompt).toContain('part one, part two');
    expect(prompt).toContain('why');
    expect(prompt).toContain('because');
  });

  it('says which unknown fields it ignores, once per request, and is silent about known ones', async () => {
    const { chat, log } = await serve(() => ({ text: 'x' }));
    await chat({
      frobnicate: 1,
      min_tokens: 0,
      guided_json: null,
      safety_settings: 'a',
      user: 'me',
      parallel_tool_calls: true,
      enable_thinking: false,
    });
    const lines = log.filter((line) => 'fields' in line);
    expect(lines).toHaveLength(1);
    expect(lines[0]?.fields).toEqual(['frobnicate', 'safety_settings']);
  });

  it('logs one line for an answer', async () => {
    const { chat, log } = await serve(() => ({ text: 'one two' }));
    const { usage } = await json(await chat());
    expect(log.filter((line) => line.msg === 'answered')).toMatchObject([
      { reused: 0, computed: usage.prompt_tokens, generated: usage.completion_tokens, reason: 'stop' },
    ]);
  });
});

describe('raw completions', () => {
  it('continue a text, a list of one text, or ids', async () => {
    const { post, engine } = await serve(() => ({ text: ' world' }));
    const ids = [...tokenizer.encode('hello', { special: 'plain' })];
    for (const prompt of ['hello', ['hello'], ids]) {
      const body = await json(await post('/v1/completions', { model: 'stub', prompt, max_tokens: 5 }));
      expect(body).toMatchObject({
        object: 'text_completion',
        choices: [{ text: ' world', finish_reason: 'stop' }],
      });
      expect([...(engine.requests.at(-1)?.ids ?? [])]).toEqual(ids);
    }
  });

  it('stream text, log-probabilities and usage', async () => {
    const { post } = await serve(() => ({ text: ' world' }));
    const request = { model: 'stub', prompt: 'hello', stream: true, logprobs: 1 };
    const response = await post('/v1/completions', { ...request, stream_options: { include_usage: true } });
    const { json: chunks, data } = eventsOf(await response.text());
    expect(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join('')).toBe(' world');
    expect(chunks.some((chunk) => chunk.choices[0]?.logprobs?.token_logprobs?.[0] === -0.25)).toBe(true);
    expect(chunks.at(-1).usage.prompt_tokens).toBe(count('hello'));
    expect(data.at(-1)).toBe('[DONE]');
  });
});

describe('other pages', () => {
  it('list the model under its name, with its context', async () => {
    const { url, chat } = await serve(() => ({ text: 'x' }), { modelName: 'org/name', aliases: ['gpt-4'] });
    const list = await json(await fetch(`${url}/v1/models`));
    expect(list.data).toMatchObject([{ id: 'org/name', object: 'model', max_model_len: 2048 }]);
    expect((await json(await fetch(`${url}/v1/models/org/name`))).id).toBe('org/name');
    expect((await chat({ model: 'gpt-4' })).status).toBe(200);
  });

  it('count what happened, under the names of vLLM', async () => {
    const { url, chat } = await serve(() => ({ text: 'one two', gapMs: 1 }));
    await chat();
    await chat();
    const page = await (await fetch(`${url}/metrics`)).text();
    const value = (name: string): number =>
      Number(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, 'm').exec(page)?.[1]);
    const prompt = value('vllm:prompt_tokens_total');
    expect(value('vllm:prefix_cache_queries_total')).toBe(prompt);
    expect(value('vllm:prefix_cache_hits_total')).toBe(prompt / 2 - 1);
    expect(value('vllm:generation_tokens_total')).toBe(2 * count('one two'));
    expect(value('vllm:num_requests_running')).toBe(0);
    expect(value('vllm:num_requests_waiting')).toBe(0);
    expect(value('vllm:kv_cache_usage_perc')).toBe(0.25);
    for (const name of [
      'time_to_first_token_seconds',
      'time_per_output_token_seconds',
      'inter_token_latency_seconds',
      'e2e_request_latency_seconds',
    ])
      expect(value(`vllm:${name}_count`), name).toBe(2);
    expect(page).toMatch(/vllm:request_success_total\{finished_reason="stop",model_name="stub"\} 2/);
    expect(value('vllm:spec_decode_num_drafts_total')).toBe(5);
    expect(value('copse:mean_accepted_length')).toBe(1 + 7 / 5);
    expect(page).toMatch(/copse:accepted_tokens_by_source_total\{source="suffix",model_name="stub"\} 6/);
    expect(page).toMatch(
      /vllm:spec_decode_num_accepted_tokens_per_pos_total\{position="1",model_name="stub"\} 1/,
    );
  });

  it('tell of drafts in usage only where the server was asked to', async () => {
    const silent = await serve(() => ({ text: 'one two' }));
    expect((await json(await silent.chat())).usage).not.toHaveProperty('speculation');
    const { chat, log } = await serve(() => ({ text: 'one two', drafts: true }), { usageDetails: true });
    const expected = {
      steps: count('one two'),
      drafts: 1,
      drafted_tokens: 3,
      accepted_tokens: 1,
      mean_accepted_length: 2,
      by_source: { suffix: { drafted: 3, accepted: 1 } },
      by_depth: [{ drafted: 3, accepted: 1 }],
      predicted_ms: 2,
      measured_ms: 2.5,
    };
    expect((await json(await chat())).usage.speculation).toEqual(expected);
    const streamed = await chat({ stream: true, stream_options: { include_usage: true } });
    expect(eventsOf(await streamed.text()).json.at(-1).usage.speculation).toEqual(expected);
    expect(log.at(-1)?.speculation).toEqual(expected);
  });

  it('count the same when the page is read twice', async () => {
    const { url, chat } = await serve(() => ({ text: 'one two' }));
    await chat();
    const counts = async (): Promise<string[]> => {
      const page = await (await fetch(`${url}/metrics`)).text();
      return page.split('\n').filter((line) => /^vllm:(prompt|generation|spec)/.test(line));
    };
    expect(await counts()).toEqual(await counts());
  });

  it('say that the engine is gone', async () => {
    const { url, engine } = await serve(() => ({ text: 'x' }));
    expect((await fetch(`${url}/health`)).status).toBe(200);
    await engine.close();
    expect((await fetch(`${url}/health`)).status).toBe(503);
  });
});

it('answers several at once, each its own', async () => {
  const { chat } = await serve((prompt) => ({ text: /say (\w+)/.exec(prompt)?.[1] ?? '', gapMs: 2 }));
  const words = ['one', 'two', 'three', 'four', 'five', 'six'];
  const answers = await Promise.all(
    words.map(async (word) => json(await chat({ messages: userSays(`say ${word}`) }))),
  );
  expect(answers.map((answer) => answer.choices[0].message.content)).toEqual(words);
});
