/** What requests ask of the form of their answer: which constraint the engine gets, and what is refused. */
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { AnswerConstraint } from '../src/engine/index.ts';
import { eventsOf, type StubServer, serveStub } from './support/serve-stub.ts';
import { tokenizer } from './support/stub-engine.ts';

const callText = '<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>';
const schema = { type: 'object', properties: { a: { type: 'integer' } }, required: ['a'] };
const schemaText = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}';
const toolNamed = (name: string, more: Record<string, unknown> = {}) => ({
  type: 'function',
  function: { name, parameters: schema, ...more },
});
const tools = [toolNamed('f')];
const two = [...tools, toolNamed('g', { strict: true })];
const held = (name: string, strict = false) => ({ name, parameters: schemaText, strict });

let server: StubServer;
beforeAll(async () => {
  server = await serveStub(() => ({ text: callText }));
});
afterEach(() => {
  server.engine.requests.length = 0;
});
afterAll(() => server.close());

async function constraintOf(
  body: Record<string, unknown>,
): Promise<{ forms: AnswerConstraint['forms'] | null; prompt: string; constraint: AnswerConstraint | null }> {
  const response = await server.chat(body);
  expect(await response.text()).toContain('chat.completion');
  const request = server.engine.requests.at(-1);
  const constraint = request?.constraint ?? null;
  return { forms: constraint?.forms ?? null, constraint, prompt: tokenizer.decode(request?.ids ?? []) };
}

const json = { kind: 'json', schema: schemaText };
const calls = (tools: unknown[], more: Record<string, unknown> = {}) => ({
  kind: 'calls',
  tools,
  required: true,
  parallel: true,
  ...more,
});

describe('a form', () => {
  it.each<[name: string, body: Record<string, unknown>, forms: unknown[] | null]>([
    ['none', { response_format: { type: 'text' }, tools }, null],
    ['any JSON object', { response_format: { type: 'json_object' } }, [{ kind: 'json', schema: null }]],
    ['a schema', { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }, [json]],
    [
      'a schema that says it is not strict',
      { response_format: { type: 'json_schema', json_schema: { schema, strict: false } } },
      [json],
    ],
    ['a schema as llama.cpp takes it', { response_format: { type: 'json_object', schema } }, [json]],
    ['a schema at the top', { json_schema: schemaText }, [json]],
    ['guided_json', { guided_json: schema }, [json]],
    ['guided_json as text', { guided_json: schemaText }, [json]],
    ['guided_regex', { guided_regex: 'a+' }, [{ kind: 'regex', pattern: 'a+' }]],
    ['a pattern at the top', { regex: 'a+', guided_choice: [] }, [{ kind: 'regex', pattern: 'a+' }]],
    ['guided_choice', { guided_choice: ['yes', 'no'] }, [{ kind: 'choice', options: ['yes', 'no'] }]],
    ['structured_outputs with a schema', { structured_outputs: { json: schema, regex: null } }, [json]],
    [
      'structured_outputs with choices',
      { structured_outputs: { choice: ['a'] } },
      [{ kind: 'choice', options: ['a'] }],
    ],
    [
      'structured_outputs with any object',
      { structured_outputs: { json_object: true } },
      [{ kind: 'json', schema: null }],
    ],
    ['a call required', { tools, tool_choice: 'required' }, [calls([held('f', true)])]],
    [
      'a call of a tool that is not strict',
      { tools: [toolNamed('f', { strict: false })], tool_choice: 'required' },
      [calls([held('f')])],
    ],
    [
      'one call required',
      { tools, tool_choice: 'required', parallel_tool_calls: false },
      [calls([held('f', true)], { parallel: false })],
    ],
    [
      'a call by name',
      { tools: two, tool_choice: { type: 'function', function: { name: 'g' } } },
      [calls([held('g', true)])],
    ],
    [
      'allowed tools',
      {
        tools: two,
        tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [toolNamed('f')] } },
      },
      [calls([held('f')], { required: false })],
    ],
    [
      'allowed tools of which one is required',
      { tools: two, tool_choice: { type: 'allowed_tools', mode: 'required', tools: [{ name: 'f' }] } },
      [calls([held('f', true)])],
    ],
    [
      'tools of which one is strict',
      { tools: two },
      [calls([held('f'), held('g', true)], { required: false })],
    ],
    ['a strict tool that is not to be called', { tools: two, tool_choice: 'none' }, null],
    ['a call or a schema', { tools, guided_json: schema }, [calls([held('f', true)]), json]],
    ['a schema and no call', { tools, tool_choice: 'none', guided_json: schema }, [json]],
    [
      'a call, whatever the schema',
      { tools, tool_choice: 'required', guided_json: schema },
      [calls([held('f', true)])],
    ],
    [
      'a function of before tools',
      { functions: [tools[0]?.function], function_call: { name: 'f' } },
      [calls([held('f', true)], { parallel: false })],
    ],
  ])('reaches the engine: %s', async (_, body, forms) => {
    expect((await constraintOf(body)).forms).toEqual(forms);
  });

  it('begins at once without thinking, else behind it', async () => {
    const body = { guided_regex: 'a+' };
    expect((await constraintOf(body)).constraint?.behindThinking).toBeNull();
    const thinks = await constraintOf({ ...body, reasoning_effort: 'low' });
    const lead = [...tokenizer.encode('\n\n', { special: 'plain' })];
    expect(thinks.constraint?.behindThinking).toEqual({ lead });
  });

  it('changes nothing in the prompt', async () => {
    const { prompt } = await constraintOf({ tools: two });
    for (const body of [
      { tool_choice: 'required' },
      { tool_choice: { type: 'function', function: { name: 'g' } } },
      { tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools } } },
      { response_format: { type: 'json_object' } },
    ])
      expect((await constraintOf({ tools: two, ...body })).prompt).toBe(prompt);
  });

  it('holds raw completions too, and tools have no place there', async () => {
    const ask = (more: Record<string, unknown>) =>
      server.post('/v1/completions', { model: 'stub', prompt: 'x', ...more });
    expect((await ask({ guided_choice: ['a'] })).status).toBe(200);
    expect(server.engine.requests.at(-1)?.constraint).toEqual({
      forms: [{ kind: 'choice', options: ['a'] }],
      behindThinking: null,
    });
    expect((await ask({ tools })).status).toBe(400);
  });
});

describe('the reason of a call', () => {
  // biome-ignore lint/suspicious/noExplicitAny: whatever the server said
  const choiceOf = async (body: Record<string, unknown>): Promise<any> => {
    const response = await server.chat({ tools, ...body });
    return ((await response.json()) as { choices: unknown[] }).choices[0];
  };

  it.each([
    ['the model chose it', {}, 'tool_calls'],
    ['one was required', { tool_choice: 'required' }, 'tool_calls'],
    ['the request named it', { tool_choice: { type: 'function', function: { name: 'f' } } }, 'stop'],
  ])('where %s', async (_, body, reason) => {
    const choice = await choiceOf(body);
    expect(choice.finish_reason).toBe(reason);
    expect(choice.message.tool_calls[0].function).toEqual({ name: 'f', arguments: '{"a": 1}' });
  });

  it('of functions is their own, whole and streamed', async () => {
    const body = { functions: [tools[0]?.function], tools: undefined };
    const { message, finish_reason } = await choiceOf(body);
    expect(message).toEqual({
      role: 'assistant',
      content: null,
      function_call: { name: 'f', arguments: '{"a": 1}' },
    });
    expect(finish_reason).toBe('function_call');
    const stream = await (await server.chat({ ...body, stream: true })).text();
    const deltas = eventsOf(stream).json.flatMap(({ choices }) => choices[0]?.delta.function_call ?? []);
    expect(deltas[0]).toEqual({ name: 'f', arguments: '' });
    expect(deltas.map(({ arguments: part }) => part).join('')).toBe('{"a": 1}');
    expect(stream).toContain('"finish_reason":"function_call"');
    expect(stream).not.toContain('tool_calls');
  });

  it('shows in a history of functions as calls of tools do', async () => {
    const past = (call: Record<string, unknown>, role: string) => [
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: null, ...call },
      { role, name: 'f', content: '2' },
    ];
    const fn = { name: 'f', arguments: '{"a": 1}' };
    const { prompt } = await constraintOf({
      messages: past({ tool_calls: [{ id: '1', type: 'function', function: fn }] }, 'tool'),
    });
    expect((await constraintOf({ messages: past({ function_call: fn }, 'function') })).prompt).toBe(prompt);
  });
});

const wrong: [name: string, body: Record<string, unknown>, param: string, message: RegExp][] = [
  ['a call required without tools', { tool_choice: 'required' }, 'tool_choice', /needs tools/],
  ['a choice that does not exist', { tools, tool_choice: 'maybe' }, 'tool_choice', /"maybe", expected auto/],
  [
    'a choice of another kind',
    { tools, tool_choice: { type: 'custom' } },
    'tool_choice',
    /type the text "custom"/,
  ],
  [
    'a tool by name that is not declared',
    { tools, tool_choice: { type: 'function', function: { name: 'g' } } },
    'tool_choice',
    /"g", which is not among the tools/,
  ],
  [
    'a choice without a name',
    { tools, tool_choice: { type: 'function' } },
    'tool_choice',
    /no name of a function/,
  ],
  [
    'allowed tools that are not declared',
    {
      tools,
      tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [toolNamed('h')] } },
    },
    'tool_choice.allowed_tools.tools[0]',
    /"h", which is not among/,
  ],
  [
    'no allowed tools',
    { tools, tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'auto', tools: [] } } },
    'tool_choice.allowed_tools.tools',
    /empty list/,
  ],
  [
    'a mode of allowed tools that does not exist',
    { tools, tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'none', tools } } },
    'tool_choice.allowed_tools.mode',
    /"none", expected auto or required/,
  ],
  [
    'strict as text',
    { tools: [{ type: 'function', function: { name: 'f', strict: 'yes' } }] },
    'tools[0].function.strict',
    /true or false/,
  ],
  ['a format as text', { response_format: 'json' }, 'response_format', /expected an object/],
  ['a format without a type', { response_format: {} }, 'response_format.type', /nothing, supported are text/],
  ['a grammar as format', { response_format: { type: 'grammar' } }, 'response_format.type', /"grammar"/],
  [
    'a response schema without the schema object',
    { response_format: { type: 'json_schema' } },
    'response_format.json_schema',
    /is missing/,
  ],
  [
    'a response schema without a schema',
    { response_format: { type: 'json_schema', json_schema: { name: 'x' } } },
    'response_format.json_schema.schema',
    /is missing/,
  ],
  [
    'a response schema that is a list',
    { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: [] } } },
    'response_format.json_schema.schema',
    /a list, expected a schema/,
  ],
  [
    'strict of a response schema as text',
    { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {}, strict: 'on' } } },
    'response_format.json_schema.strict',
    /true or false/,
  ],
  ['a schema as vLLM takes it that is no JSON', { guided_json: '{' }, 'guided_json', /JSON text of one/],
  ['a pattern that is no text', { guided_regex: { a: 1 } }, 'guided_regex', /expected a pattern/],
  ['choices that are no list', { guided_choice: 'yes' }, 'guided_choice', /expected a list/],
  ['a choice that is no text', { guided_choice: ['yes', 1] }, 'guided_choice[1]', /number 1/],
  ['a grammar as vLLM takes it', { guided_grammar: 'root ::= "a"' }, 'guided_grammar', /not supported/],
  ['a grammar as llama.cpp takes it', { grammar: 'root ::= "a"' }, 'grammar', /not supported/],
  ['a grammar as SGLang takes it', { ebnf: 'root ::= "a"' }, 'ebnf', /not supported/],
  [
    'two forms at once',
    { guided_regex: 'a', response_format: { type: 'json_object' } },
    'guided_regex',
    /so does response_format/,
  ],
  [
    'structured outputs of two forms',
    { structured_outputs: { regex: 'a', choice: ['b'] } },
    'structured_outputs',
    /2 forms/,
  ],
  [
    'structured outputs with a grammar',
    { structured_outputs: { grammar: 'root' } },
    'structured_outputs.grammar',
    /not supported/,
  ],
  [
    'structured outputs with a name of every object',
    { structured_outputs: { constructor: 'x' } },
    'structured_outputs.constructor',
    /not supported/,
  ],
  ['functions beside tools', { functions: [{ name: 'f' }], tools }, 'functions', /beside tools/],
  ['a function without a name', { functions: [{}] }, 'functions[0]', /name/],
  ['a function call without functions', { function_call: { name: 'f' } }, 'function_call', /needs functions/],
  [
    'a function call of another',
    { functions: [{ name: 'f' }], function_call: { name: 'g' } },
    'function_call',
    /"g", which is not among/,
  ],
];

describe('a request', () => {
  it.each(wrong)('with %s is refused', async (_name, body, param, message) => {
    const response = await server.chat(body);
    const { error } = (await response.json()) as { error: { message: string; param: string } };
    expect(error.message).toMatch(message);
    expect([response.status, error.param]).toEqual([400, param]);
    expect(server.engine.requests).toEqual([]);
  });
});
