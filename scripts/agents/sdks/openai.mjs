import OpenAI from 'openai';
import { api, model, prompt, runTool, tools, url } from './tools.mjs';

const client = new OpenAI({ baseURL: `${url}/v1` });

async function chat() {
  const runner = client.chat.completions.runTools({
    model,
    stream: true,
    messages: [{ role: 'user', content: prompt }],
    tools: tools.map(({ name, description, parameters, run }) => ({
      type: 'function',
      function: { name, description, parameters, parse: JSON.parse, function: run },
    })),
  });
  return runner.finalContent();
}

async function responses() {
  let input = prompt;
  let previous = null;
  for (;;) {
    const response = await client.responses
      .stream({
        model,
        input,
        previous_response_id: previous,
        tools: tools.map(({ name, description, parameters }) => ({
          type: 'function',
          name,
          description,
          parameters,
          strict: true,
        })),
      })
      .finalResponse();
    const calls = response.output.filter(({ type }) => type === 'function_call');
    if (calls.length === 0) return response.output_text;
    previous = response.id;
    input = calls.map(({ call_id, name, arguments: args }) => ({
      type: 'function_call_output',
      call_id,
      output: runTool(name, JSON.parse(args)),
    }));
  }
}

console.log(await (api === 'chat' ? chat() : responses()));
