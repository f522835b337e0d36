/** Answers of a form from the bundled model, over HTTP: whole and streamed, thinking or not, drafted or not, two at once. */
import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Completion, openModel } from '../src/completion/index.ts';
import { type Server, startServer } from '../src/server/index.ts';
import { availableBackends } from './support/backends.ts';
import { packedFolders, tinyCheckpoint } from './support/engines.ts';
import { eventsOf } from './support/serve-stub.ts';
import { tokenizer } from './support/stub-engine.ts';

const schema = {
  type: 'object',
  properties: {
    kind: { enum: ['file', 'folder', 'nothing'] },
    lines: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 99 }, maxItems: 3 },
    name: { anyOf: [{ type: 'string', maxLength: 12 }, { type: 'null' }] },
  },
  required: ['kind', 'lines', 'name'],
  additionalProperties: false,
};
const isValid = new Ajv2020().compile(schema);
const toolNamed = (name: string, more = {}) => ({
  type: 'function',
  function: { name, description: 'looks', parameters: schema, ...more },
});
const tools = [toolNamed('look', { strict: true }), toolNamed('seek'), toolNamed('hide')];

interface Said {
  readonly content: string;
  readonly reasoning: string;
  readonly calls: readonly { name: string; args: string }[];
  readonly finish: string;
}

interface Case {
  readonly name: string;
  readonly body: Record<string, unknown>;
  /** What is wrong with a complete answer; null = nothing. */
  readonly problem: (said: Said) => string | null;
}

const fits = (text: string): boolean => {
  try {
    return isValid(JSON.parse(text));
  } catch {
    return false;
  }
};
const isJson = ({ content, calls }: Said): string | null =>
  fits(content) && calls.length === 0 ? null : 'no JSON that fits';
const isCallOf =
  (...names: string[]) =>
  ({ content, calls }: Said): string | null => {
    if (content !== '') return 'text beside the call';
    if (calls.length === 0) return 'no call';
    const wrong = calls.find(({ name, args }) => !names.includes(name) || !fits(args));
    return wrong === undefined ? null : `${wrong.name} called with ${wrong.args}`;
  };

const cases: readonly Case[] = [
  {
    name: 'a schema',
    body: { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } },
    problem: isJson,
  },
  {
    name: 'a call required',
    body: { tools, tool_choice: 'required', parallel_tool_calls: false },
    problem: isCallOf('look', 'seek', 'hide'),
  },
  {
    name: 'a call by name',
    body: {
      tools,
      tool_choice: { type: 'function', function: { name: 'hide' } },
      parallel_tool_calls: false,
    },
    problem: isCallOf('hide'),
  },
  {
    name: 'a call of some',
    body: {
      tools,
      tool_choice: {
        type: 'allowed_tools',
        allowed_tools: { mode: 'required', tools: [toolNamed('look'), toolNamed('seek')] },
      },
      parallel_tool_calls: false,
    },
    problem: isCallOf('look', 'seek'),
  },
  {
    name: 'a call or a schema',
    body: { tools, guided_json: schema, parallel_tool_calls: false },
    problem: (said) => (said.calls.length > 0 ? isCallOf('look', 'seek', 'hide')(said) : isJson(said)),
  },
  {
    name: 'a pattern',
    body: { guided_regex: '\\d{3}-[a-f]{2,4}' },
    problem: ({ content }) => (/^\d{3}-[a-f]{2,4}$/.test(content) ? null : content),
  },
  {
    name: 'a choice',
    body: { structured_outputs: { choice: ['left', 'right', 'neither of them'] } },
    problem: ({ content }) => (['left', 'right', 'neither of them'].includes(content) ? null : content),
  },
];

const native = availableBackends().some(({ name }) => name === 'native');
const folders = packedFolders();
const opened: { completion: Completion; server: Server }[] = [];

async function open(speculation: string, worker: boolean): Promise<Server> {
  const completion = await openModel({
    folder: folders.of(tinyCheckpoint),
    worker,
    engine: { cacheBytes: 2 ** 27, contextTokens: 4096, threads: 2, speculation },
  });
  const server = await startServer({ completion, modelName: 'tiny', port: 0, graceMs: 100 });
  opened.push({ completion, server });
  return server;
}

let plain: Server;
let drafting: Server;
beforeAll(async () => {
  if (!native) return;
  plain = await open('off', false);
  drafting = await open('tree:8x2x16', true);
});
afterAll(async () => {
  for (const { server, completion } of opened) {
    await server.close();
    await completion.engine.close();
  }
  folders.remove();
});

const post = (server: Server, body: Record<string, unknown>): Promise<Response> =>
  fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'tiny', messages: [{ role: 'user', content: 'look there' }], ...body }),
  });

async function ask(server: Server, body: Record<string, unknown>): Promise<Said[]> {
  const response = await post(server, body);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return body.stream === true ? streamed(text, Number(body.n ?? 1)) : whole(text);
}

// biome-ignore lint/suspicious/noExplicitAny: whatever the server said
type Any = any;

function whole(text: string): Said[] {
  return JSON.parse(text).choices.map(({ message, finish_reason }: Any) => ({
    content: message.content ?? '',
    reasoning: message.reasoning_content ?? '',
    calls: (message.tool_calls ?? []).map((call: Any) => ({
      name: call.function.name,
      args: call.function.arguments,
    })),
    finish: finish_reason,
  }));
}

function streamed(text: string, choices: number): Said[] {
  const said = Array.from({ length: choices }, () => ({
    content: '',
    reasoning: '',
    calls: [] as Any[],
    finish: '',
  }));
  for (const { choices } of eventsOf(text).json) {
    const [{ index, delta, finish_reason }] = choices;
    const one = said[index] as (typeof said)[number];
    one.content += delta.content ?? '';
    one.reasoning += delta.reasoning_content ?? '';
    for (const call of delta.tool_calls ?? []) {
      one.calls[call.index] ??= { name: call.function.name, args: '' };
      one.calls[call.index].args += call.function.arguments ?? '';
    }
    if (finish_reason !== null) one.finish = finish_reason;
  }
  return said;
}

describe.skipIf(!native)('an answer of a form', () => {
  describe.each([false, true])('thinking %s', (enable_thinking) => {
    it.each(cases)('has it: $name', async ({ body, problem }) => {
      let complete = 0;
      for (let seed = 1; seed <= 3; seed++) {
        const request = { ...body, enable_thinking, seed, n: 2, max_tokens: 400 };
        const said = await ask(plain, request);
        expect(await ask(plain, { ...request, stream: true })).toEqual(said);
        expect(await ask(drafting, { ...request, stream: seed === 2 })).toEqual(said);
        for (const answer of said) {
          if (answer.finish === 'length') continue;
          complete++;
          expect(problem(answer), JSON.stringify(answer)).toBeNull();
          if (!enable_thinking) expect(answer.reasoning).toBe('');
        }
      }
      expect(complete).toBeGreaterThan(0);
    });
  });

  it('is free text until a strict tool is called, whose arguments then fit', async () => {
    const [strict] = tools;
    const body = { tools: [strict], parallel_tool_calls: false, enable_thinking: false, max_tokens: 400 };
    const begin = String(tokenizer.tokenId('<tool_call>'));
    let complete = 0;
    for (let seed = 1; seed <= 4; seed++) {
      const [said] = await ask(plain, { ...body, seed, logit_bias: { [begin]: 100 } });
      if (said?.finish !== 'tool_calls') continue;
      complete++;
      expect(isCallOf('look')(said)).toBeNull();
    }
    expect(complete).toBeGreaterThan(0);
    const [free] = await ask(plain, { ...body, seed: 1, logit_bias: { [begin]: -100 } });
    expect(free?.calls).toEqual([]);
    expect(free?.content).not.toBe('');
  });

  it('is cut by a stop text and by the limit as any other', async () => {
    const body = { guided_regex: '(ab){20}', temperature: 0, enable_thinking: false };
    const [limited] = await ask(plain, { ...body, max_tokens: 1 });
    expect(limited?.finish).toBe('length');
    const [stopped] = await ask(plain, { ...body, stop: 'bab' });
    expect(stopped).toMatchObject({ content: 'a', finish: 'stop' });
    const [whole] = await ask(plain, body);
    expect(whole).toMatchObject({ content: 'ab'.repeat(20), finish: 'stop' });
  });

  it('counts forced text as drafts of the grammar', async () => {
    const response = await post(drafting, { guided_choice: ['only this long text'], enable_thinking: false });
    expect((await response.json()) as Any).toMatchObject({
      choices: [{ message: { content: 'only this long text' } }],
    });
    const metrics = await (await fetch(`${drafting.url}/metrics`)).text();
    expect(metrics).toMatch(/accepted_tokens_by_source_total\{source="grammar",model_name="tiny"\} [1-9]/);
  });
});

describe.skipIf(!native)('a form that can not be held', () => {
  const hostile: [name: string, schema: unknown, message: RegExp][] = [
    ['a type that does not exist', { type: 'strin' }, /type at #\S* "strin"/],
    ['a reference to nowhere', { properties: { a: { $ref: '#/x' } } }, /\$ref at #\S*\/properties\/a/],
    ['a reference to a server', { $ref: 'http://x/y' }, /\$ref/],
    [
      'a reference to itself without an end',
      {
        $ref: '#/$defs/n',
        $defs: { n: { properties: { n: { $ref: '#/$defs/n' } }, required: ['n'], type: 'object' } },
      },
      /\$ref/,
    ],
    ['a pattern that looks behind', { type: 'string', pattern: '(?<=a)b' }, /pattern/],
    ['limits that leave nothing', { type: 'integer', minimum: 5, maximum: 1 }, /no value can be valid/],
    ['too many items', { type: 'array', minItems: 1e9, items: { type: 'null' } }, /minItems/],
    ['conditions', { if: { type: 'string' }, else: { maxLength: 3 } }, /if at #/],
    ['an enum of nothing', { enum: [] }, /enum/],
  ];

  it('is a 400 that names the keyword, before a stream begins, and others go on', async () => {
    const others = ask(plain, { guided_regex: '[ab]{40}', temperature: 0, stream: true, max_tokens: 200 });
    for (const [name, schema, message] of hostile) {
      const json_schema = { name: 'x', schema };
      const parameters = { type: 'object', properties: { a: schema }, required: ['a'] };
      const strict = [{ type: 'function', function: { name: 'f', parameters, strict: true } }];
      const bodies: [string, Record<string, unknown>][] = [
        ['response_format.json_schema.schema', { response_format: { type: 'json_schema', json_schema } }],
        ['guided_json', { guided_json: schema, stream: true }],
        ['tools', { tools: strict, stream: true }],
      ];
      for (const [param, body] of bodies) {
        const response = await post(plain, body);
        const { error } = (await response.json()) as Any;
        expect(error, `${name}, ${param}`).toBeDefined();
        expect([response.status, error.param], name).toEqual([400, param]);
        expect(error.message, name).toMatch(message);
      }
    }
    const [other] = await others;
    expect(other?.content).toMatch(/^[ab]{40}$/);
  });

  it('leaves a required call free where the tool does not say that it is strict', async () => {
    const parameters = { type: 'object', properties: { a: { type: 'string' } }, if: {} };
    const body = {
      tools: [{ type: 'function', function: { name: 'f', parameters } }],
      tool_choice: 'required',
    };
    const said = await ask(plain, { ...body, parallel_tool_calls: false, enable_thinking: false, seed: 1 });
    expect(said[0]?.calls.map(({ name }) => name)).toEqual(['f']);
  });

  it.each([
    ['an open group', '('],
    ['a reference', '(a)\\1'],
    ['too much', 'a{1,100000}'],
  ])('is a pattern with %s', async (_, pattern) => {
    const response = await post(plain, { guided_regex: pattern, stream: true });
    const { error } = (await response.json()) as Any;
    expect([response.status, error.param]).toEqual([400, 'guided_regex']);
    expect(error.message).toContain('pattern');
  });
});
