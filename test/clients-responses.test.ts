/** Clients of the Responses API: the official `openai` package and the AI SDK's default OpenAI provider. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type StubServer, serveStub } from './support/serve-stub.ts';
import { type StubScript, until } from './support/stub-engine.ts';

const call = (name: string, parameters: Record<string, string>): string =>
  `<tool_call>\n<function=${name}>\n${Object.entries(parameters)
    .map(([key, value]) => `<parameter=${key}>\n${value}\n</parameter>\n`)
    .join('')}</function>\n</tool_call>`;

const content = 'line "one"\n\tline <two> & ünï\n';

/** Thinks, writes a file, reads it back, then says what it read. */
const agent: StubScript = (prompt) => {
  const results = [...prompt.matchAll(/<tool_response>\n([\s\S]*?)\n<\/tool_response>/g)];
  if (results.length === 0)
    return { text: `I must write.\n</think>\n\nWriting.\n\n${call('write', { path: 'note.txt', content })}` };
  if (results.length === 1) return { text: `Now read.\n</think>\n\n${call('read', { path: 'note.txt' })}` };
  return { text: `Done.\n</think>\n\nThe file holds ${results[1]?.[1]?.length} characters.` };
};

let server: StubServer;
let folder: string;
async function open(script: StubScript, options: Parameters<typeof serveStub>[1] = {}): Promise<void> {
  server = await serveStub(script, { apiKey: 'key', enableThinking: true, ...options });
}
beforeEach(async () => {
  await open(agent);
  folder = mkdtempSync(join(tmpdir(), 'copse-agent-'));
});
afterEach(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

const writes = async ({ path, content: text }: { path: string; content: string }): Promise<string> => {
  writeFileSync(join(folder, path), text);
  return 'written';
};
const reads = async ({ path }: { path: string }): Promise<string> => readFileSync(join(folder, path), 'utf8');

describe('the openai client', () => {
  const client = (): OpenAI => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'key', maxRetries: 0 });
  const tools: OpenAI.Responses.Tool[] = [
    {
      type: 'function',
      name: 'write',
      strict: true,
      parameters: { type: 'object', properties: { path: { type: 'string' }, content: { type: 'string' } } },
    },
    {
      type: 'function',
      name: 'read',
      strict: true,
      parameters: { type: 'object', properties: { path: { type: 'string' } } },
    },
  ];

  it.each([
    ['whole answers and previous_response_id', false, true],
    ['streams and previous_response_id', true, true],
    ['streams and its own history', true, false],
  ])('runs an agent on %s', async (_name, stream, refers) => {
    const history: OpenAI.Responses.ResponseInput = [{ role: 'user', content: 'write the note' }];
    let next = history;
    let previous: string | null = null;
    let answer = '';
    for (let step = 0; step < 3; step++) {
      const body: Omit<OpenAI.Responses.ResponseCreateParamsNonStreaming, 'stream'> = {
        model: 'stub',
        tools,
        input: refers ? next : history,
        ...(refers ? { previous_response_id: previous } : { store: false }),
      };
      const response: OpenAI.Responses.Response = stream
        ? await client().responses.stream(body).finalResponse()
        : await client().responses.create(body);
      previous = response.id;
      answer = response.output_text;
      next = [];
      for (const item of response.output) {
        if (item.type !== 'function_call') continue;
        const args = JSON.parse(item.arguments);
        const output = item.name === 'write' ? await writes(args) : await reads(args);
        next.push({ type: 'function_call_output', call_id: item.call_id, output });
      }
      history.push(...(response.output as OpenAI.Responses.ResponseInputItem[]), ...next);
      if (step > 0) expect(response.usage?.input_tokens_details.cached_tokens).toBeGreaterThan(0);
    }
    expect(readFileSync(join(folder, 'note.txt'), 'utf8')).toBe(content);
    expect(answer).toMatch(/^The file holds \d+ characters\.$/);
    expect(server.engine.requests).toHaveLength(3);
  });

  it('sees each kind of event with its snapshot', async () => {
    const kinds = new Set<string>();
    let snapshot = '';
    const stream = client().responses.stream({ model: 'stub', input: 'write the note', tools });
    stream.on('response.output_text.delta', (event) => {
      snapshot = event.snapshot;
    });
    for await (const event of stream) kinds.add(event.type);
    expect(snapshot).toBe('Writing.');
    expect([...kinds]).toEqual(
      expect.arrayContaining([
        'response.created',
        'response.reasoning_summary_text.delta',
        'response.output_text.delta',
        'response.function_call_arguments.delta',
        'response.completed',
      ]),
    );
    const final = await stream.finalResponse();
    expect(final.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'function_call']);
  });

  it('retrieves, lists the input of, and deletes a response', async () => {
    const { responses } = client();
    const made = await responses.create({ model: 'stub', input: 'write the note' });
    expect((await responses.retrieve(made.id)).output_text).toBe(made.output_text);
    const items = [];
    for await (const item of responses.inputItems.list(made.id)) items.push(item);
    expect(items).toMatchObject([{ type: 'message', role: 'user' }]);
    await responses.delete(made.id);
    await expect(responses.retrieve(made.id)).rejects.toThrow(OpenAI.NotFoundError);
  });

  it('sees a failure in the middle of a stream as an error', async () => {
    await server.close();
    await open(() => ({ text: 'one two three', failAfter: 1 }));
    const read = async (): Promise<void> => {
      const stream = await client().responses.create({ model: 'stub', input: 'x', stream: true });
      for await (const _ of stream);
    };
    await expect(read()).rejects.toThrow('the server failed on this request');
  });
});

describe('the AI SDK with its default provider', () => {
  const provider = () => createOpenAI({ baseURL: `${server.url}/v1`, apiKey: 'key' });
  const task = (store: boolean) => ({
    model: provider()('stub'),
    tools: {
      write: tool({
        description: 'writes a file',
        inputSchema: z.object({ path: z.string(), content: z.string() }),
        execute: writes,
      }),
      read: tool({
        description: 'reads a file',
        inputSchema: z.object({ path: z.string() }),
        execute: reads,
      }),
    },
    providerOptions: {
      openai: { store, forceReasoning: true, include: store ? [] : ['reasoning.encrypted_content'] },
    },
    stopWhen: stepCountIs(5),
    prompt: 'write the note',
    maxRetries: 0,
  });

  it.each([true, false])('runs an agent that writes a file, store %s', async (store) => {
    const result = await generateText(task(store));
    expect(readFileSync(join(folder, 'note.txt'), 'utf8')).toBe(content);
    expect(result.steps.map((step) => step.finishReason)).toEqual(['tool-calls', 'tool-calls', 'stop']);
    expect(result.steps.map((step) => step.reasoningText)).toEqual(['I must write.', 'Now read.', 'Done.']);
    expect(result.text).toMatch(/^The file holds \d+ characters\.$/);
    expect(result.warnings ?? []).toEqual([]);
    expect(result.steps[1]?.usage.inputTokenDetails.cacheReadTokens).toBeGreaterThan(0);
    expect(result.steps[0]?.usage.outputTokenDetails.reasoningTokens).toBeGreaterThan(0);
  });

  it.each([true, false])('runs the same agent on streams, store %s', async (store) => {
    const result = streamText(task(store));
    const kinds = new Set<string>();
    for await (const part of result.fullStream) kinds.add(part.type);
    expect(readFileSync(join(folder, 'note.txt'), 'utf8')).toBe(content);
    expect([...kinds]).toEqual(
      expect.arrayContaining([
        'reasoning-delta',
        'text-delta',
        'tool-input-delta',
        'tool-call',
        'tool-result',
      ]),
    );
    expect([...kinds]).not.toContain('error');
    const steps = await result.steps;
    expect(steps.map((step) => step.finishReason)).toEqual(['tool-calls', 'tool-calls', 'stop']);
  });

  it('cancels the generation when its stream is aborted', async () => {
    await server.close();
    await open(() => ({ text: 'word '.repeat(300), gapMs: 5 }), { enableThinking: false });
    const abort = new AbortController();
    const model = provider()('stub');
    const result = streamText({ model, prompt: 'x', abortSignal: abort.signal, maxRetries: 0 });
    let parts = 0;
    for await (const part of result.fullStream)
      if (part.type === 'text-delta' && ++parts === 3) abort.abort();
    await until(() => server.engine.ended.cancelled === 1, 'the cancellation');
  });

  it('shows our message when a request is refused', async () => {
    const model = provider()('stub');
    const refused = generateText({ model, prompt: 'word '.repeat(5000), maxRetries: 0 });
    await expect(refused).rejects.toMatchObject({
      statusCode: 400,
      message: expect.stringContaining('maximum context length is 2048 tokens'),
    });
  });
});
