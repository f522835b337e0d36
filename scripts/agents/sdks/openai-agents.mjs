import { Agent, OpenAIProvider, Runner, tool } from '@openai/agents';
import { z } from 'zod';
import { api, model, prompt, tools, url } from './tools.mjs';

const modelProvider = new OpenAIProvider({
  baseURL: `${url}/v1`,
  apiKey: 'copse',
  useResponses: api === 'responses',
});
const agent = new Agent({
  name: 'editor',
  instructions: 'You edit files.',
  model,
  tools: tools.map(({ name, description, keys, run }) =>
    tool({
      name,
      description,
      parameters: z.object(Object.fromEntries(keys.map((key) => [key, z.string()]))),
      execute: async (args) => run(args),
    }),
  ),
});
const runner = new Runner({ modelProvider, tracingDisabled: true });
const result = await runner.run(agent, prompt, { stream: true });
for await (const _ of result);
console.log(result.finalOutput);
