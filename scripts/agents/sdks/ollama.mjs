import { Ollama } from 'ollama';
import { model, prompt, runTool, tools, url } from './tools.mjs';

const client = new Ollama({ host: url });
const messages = [{ role: 'user', content: prompt }];
for (;;) {
  const answer = { role: 'assistant', content: '', thinking: '', tool_calls: [] };
  const stream = await client.chat({
    model,
    messages,
    stream: true,
    tools: tools.map(({ name, description, parameters }) => ({
      type: 'function',
      function: { name, description, parameters },
    })),
  });
  for await (const { message } of stream) {
    answer.content += message.content ?? '';
    answer.thinking += message.thinking ?? '';
    answer.tool_calls.push(...(message.tool_calls ?? []));
  }
  messages.push(answer);
  if (answer.tool_calls.length === 0) {
    console.log(answer.content);
    break;
  }
  for (const { function: call } of answer.tool_calls)
    messages.push({ role: 'tool', tool_name: call.name, content: runTool(call.name, call.arguments) });
}
