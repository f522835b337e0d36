import Anthropic from '@anthropic-ai/sdk';
import { model, prompt, runTool, tools, url } from './tools.mjs';

const client = new Anthropic({ baseURL: url, apiKey: 'copse' });
const messages = [{ role: 'user', content: prompt }];
for (;;) {
  const message = await client.messages
    .stream({
      model,
      max_tokens: 1024,
      messages,
      tools: tools.map(({ name, description, parameters }) => ({
        name,
        description,
        input_schema: parameters,
      })),
    })
    .finalMessage();
  messages.push({ role: 'assistant', content: message.content });
  const uses = message.content.filter(({ type }) => type === 'tool_use');
  if (uses.length === 0) {
    console.log(message.content.map(({ text = '' }) => text).join(''));
    break;
  }
  messages.push({
    role: 'user',
    content: uses.map(({ id, name, input }) => ({
      type: 'tool_result',
      tool_use_id: id,
      content: runTool(name, input),
    })),
  });
}
