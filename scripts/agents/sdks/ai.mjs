import { createOpenAI } from '@ai-sdk/openai';
import { stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { api, model, prompt, tools, url } from './tools.mjs';

const provider = createOpenAI({ baseURL: `${url}/v1` });
const result = streamText({
  model: api === 'chat' ? provider.chat(model) : provider(model),
  prompt,
  tools: Object.fromEntries(
    tools.map(({ name, description, keys, run }) => [
      name,
      tool({
        description,
        inputSchema: z.object(Object.fromEntries(keys.map((key) => [key, z.string()]))),
        execute: async (args) => run(args),
      }),
    ]),
  ),
  stopWhen: stepCountIs(8),
  onError: ({ error }) => {
    throw error;
  },
});
console.log(await result.text);
