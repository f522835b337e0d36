/** Structured answers of the bundled model, as the official client and the AI SDK ask for them. */
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateObject, streamObject } from 'ai';
import OpenAI from 'openai';
import { zodFunction, zodResponseFormat } from 'openai/helpers/zod';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Completion, openModel } from '../src/completion/index.ts';
import { type Server, startServer } from '../src/server/index.ts';
import { availableBackends } from './support/backends.ts';
import { packedFolders, tinyCheckpoint } from './support/engines.ts';

const Step = z.object({
  action: z.enum(['read', 'write', 'stop']),
  line: z.number().int(),
  name: z.string().max(10),
  tags: z.array(z.enum(['a', 'b'])).max(2),
});

const native = availableBackends().some(({ name }) => name === 'native');
describe.skipIf(!native)('a structured answer', () => {
  const folders = packedFolders();
  let completion: Completion;
  let server: Server;
  let client: OpenAI;

  beforeAll(async () => {
    completion = await openModel({
      folder: folders.of(tinyCheckpoint),
      worker: false,
      enableThinking: false,
      engine: { cacheBytes: 2 ** 27, contextTokens: 4096, threads: 2 },
    });
    server = await startServer({ completion, modelName: 'tiny', port: 0, graceMs: 100 });
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  });
  afterAll(async () => {
    await server.close();
    await completion.engine.close();
    folders.remove();
  });

  const base = { model: 'tiny', messages: [{ role: 'user' as const, content: 'next step?' }], seed: 3 };

  it('is parsed by the openai client', async () => {
    const { choices } = await client.chat.completions.parse({
      ...base,
      response_format: zodResponseFormat(Step, 'step'),
    });
    expect(Step.safeParse(choices[0]?.message.parsed).success).toBe(true);
  });

  it('is parsed by the openai client while it streams', async () => {
    const stream = client.chat.completions.stream({
      ...base,
      response_format: zodResponseFormat(Step, 'step'),
    });
    const { choices } = await stream.finalChatCompletion();
    expect(Step.safeParse(choices[0]?.message.parsed).success).toBe(true);
  });

  it('is the call of a strict function', async () => {
    const { choices } = await client.chat.completions.parse({
      ...base,
      tools: [zodFunction({ name: 'step', parameters: Step })],
      tool_choice: 'required',
      parallel_tool_calls: false,
    });
    const [call] = choices[0]?.message.tool_calls ?? [];
    expect(Step.safeParse(call?.function.parsed_arguments).success).toBe(true);
  });

  it('is an object of the AI SDK, whole and streamed', async () => {
    const provider = createOpenAICompatible({
      name: 'copse',
      baseURL: `${server.url}/v1`,
      supportsStructuredOutputs: true,
    });
    const options = { model: provider('tiny'), schema: Step, prompt: 'next step?', seed: 5, maxRetries: 0 };
    expect(Step.safeParse((await generateObject(options)).object).success).toBe(true);
    const streamed = streamObject(options);
    let parts = 0;
    for await (const _ of streamed.partialObjectStream) parts++;
    expect(Step.safeParse(await streamed.object).success).toBe(true);
    expect(parts).toBeGreaterThan(1);
  });
});
