import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';
import { api, model, prompt, runTool, tools, url } from './tools.mjs';

const chat = new ChatOpenAI({
  model,
  apiKey: 'copse',
  useResponsesApi: api === 'responses',
  configuration: { baseURL: `${url}/v1` },
}).bindTools(
  tools.map(({ name, description, keys, run }) =>
    tool(async (args) => run(args), {
      name,
      description,
      schema: z.object(Object.fromEntries(keys.map((key) => [key, z.string()]))),
    }),
  ),
);
const messages = [new HumanMessage(prompt)];
for (;;) {
  let answer;
  for await (const chunk of await chat.stream(messages))
    answer = answer === undefined ? chunk : answer.concat(chunk);
  messages.push(answer);
  if (answer.tool_calls.length === 0) {
    console.log(answer.text);
    break;
  }
  for (const { id, name, args } of answer.tool_calls)
    messages.push(new ToolMessage({ tool_call_id: id, content: runTool(name, args) }));
}
