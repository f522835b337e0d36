/** The Vercel AI SDK with its OpenAI-compatible provider: an agent loop whose tool really writes a file. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
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
beforeEach(async () => {
  server = await serveStub(agent, { enableThinking: true });
  folder = mkdtempSync(join(tmpdir(), 'copse-agent-'));
});
afterEach(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
});

const model = () =>
  createOpenAICompatible({ name: 'copse', baseURL: `${server.url}/v1`, includeUsage: true })('stub');

const tools = () => ({
  write: tool({
    description: 'writes a file',
    inputSchema: z.object({ path: z.string(), content: z.string() }),
    execute: async ({ path, content: text }) => {
      writeFileSync(join(folder, path), text);
      return 'written';
    },
  }),
  read: tool({
    description: 'reads a file',
    inputSchema: z.object({ path: z.string() }),
    execute: async ({ path }) => readFileSync(join(folder, path), 'utf8'),
  }),
});

const task = () => ({
  model: model(),
  tools: tools(),
  stopWhen: stepCountIs(5),
  prompt: 'write the note',
  maxRetries: 0,
});

describe('the AI SDK', () => {
  it('runs an agent that writes a file, whole answers', async () => {
    const result = await generateText(task());
    expect(readFileSync(join(folder, 'note.txt'), 'utf8')).toBe(content);
    expect(result.steps.map((step) => step.finishReason)).toEqual(['tool-calls', 'tool-calls', 'stop']);
    expect(result.steps.map((step) => step.reasoningText)).toEqual(['I must write.', 'Now read.', 'Done.']);
    expect(result.text).toMatch(/^The file holds \d+ characters\.$/);
    expect(result.steps[1]?.usage.inputTokenDetails.cacheReadTokens).toBeGreaterThan(0);
  });

  it('runs the same agent on streams', async () => {
    const result = streamText(task());
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
    expect((await result.totalUsage).outputTokens).toBe(
      server.log.reduce((sum, line) => sum + (typeof line.generated === 'number' ? line.generated : 0), 0),
    );
  });

  it('cancels the generation when its stream is aborted', async () => {
    await server.close();
    server = await serveStub(() => ({ text: 'word '.repeat(300), gapMs: 5 }));
    const abort = new AbortController();
    const result = streamText({ model: model(), prompt: 'x', abortSignal: abort.signal, maxRetries: 0 });
    let parts = 0;
    for await (const part of result.fullStream)
      if (part.type === 'text-delta' && ++parts === 3) abort.abort();
    await until(() => server.engine.ended.cancelled === 1, 'the cancellation');
  });

  it('shows our message when a request is refused', async () => {
    const refused = generateText({ model: model(), prompt: 'word '.repeat(5000), maxRetries: 0 });
    await expect(refused).rejects.toMatchObject({
      statusCode: 400,
      message: expect.stringContaining('maximum context length is 2048 tokens'),
    });
  });
});
