/**
 * The whole way with the bundled model, which was trained on such tasks: agents of both SDKs mend a bug in a folder on disk. The
 * tool knows the model's few commands and does them in that folder, without a shell; "pytest" tells whether the bug is still there.
 */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import OpenAI from 'openai';
import type { RunnableToolFunctionWithParse } from 'openai/lib/RunnableFunction';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type Completion, openModel } from '../src/completion/index.ts';
import { type Server, startServer } from '../src/server/index.ts';
import { availableBackends } from './support/backends.ts';
import { packedFolders, tinyCheckpoint } from './support/engines.ts';

const files: Record<string, string> = {
  'README.md': '# heboso\n',
  'heboso/ranole.py':
    '"""Nipe bobino of heboso."""\nimport re\n\n\ndef vale(vatahiwe, gomo=None):\n    yotadi = len(vatahiwe)\n    return yotadi\n\n\ndef yabowaki_waha(a, hakomo):\n    return a - hakomo\n',
  'heboso/kiribi.py':
    'from heboso import ranole\n\n\ndef deza_helume(kapoga):\n    return ranole.yabowaki_waha(kapoga, 21)\n',
  'tests/test_ranole.py':
    'from heboso.ranole import yabowaki_waha\n\n\ndef test_yabowaki_waha():\n    assert yabowaki_waha(50, 44) == 94\n',
};
const fixed = 'return a + hakomo';
const task =
  '<pr_description>\nyabowaki_waha in heboso gives a wrong result\nDescription\n\nCalling yabowaki_waha with two arguments uses `-` where `+` is expected.\n</pr_description>\n\nFix the issue in the code under /testbed. Each response has a THOUGHT and a bash tool call.';

let folder: string;
const read = (file: string): string => readFileSync(join(folder, file), 'utf8');

/** The few commands that the model knows, on the folder that stands for /testbed. */
function bash(command: string): string {
  const names = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => name in files);
  const numbered = (file: string, from = 1): string[] =>
    read(file)
      .split('\n')
      .map((line, i) => `${String(i + from).padStart(6)}\t${line}`);
  const run = (): string[] => {
    if (command.startsWith('ls ')) return names.sort();
    const grep = /^grep -rn "(.*?)"/.exec(command)?.[1];
    if (grep !== undefined)
      return names.flatMap((name) =>
        read(name)
          .split('\n')
          .flatMap((line, i) => (line.includes(grep) ? [`/testbed/${name}:${i + 1}:${line}`] : [])),
      );
    const cat = /^cat -n \/testbed\/(\S+)$/.exec(command)?.[1];
    if (cat !== undefined && cat in files) return numbered(cat);
    const change = /^sed -i '(\d+)s\/(.+?)\/(.+?)\/' \/testbed\/(\S+)$/.exec(command);
    if (change !== null && (change[4] ?? '') in files) {
      const lines = read(change[4] ?? '').split('\n');
      const at = Number(change[1]) - 1;
      lines[at] = (lines[at] ?? '').replace(change[2] ?? '', change[3] ?? '');
      writeFileSync(join(folder, change[4] ?? ''), lines.join('\n'));
      return [''];
    }
    const show = /^sed -n '(\d+),(\d+)p' \/testbed\/(\S+)$/.exec(command);
    if (show !== null && (show[3] ?? '') in files)
      return read(show[3] ?? '')
        .split('\n')
        .slice(Number(show[1]) - 1, Number(show[2]));
    if (command.includes('pytest'))
      return read('heboso/ranole.py').includes(fixed)
        ? ['tests/test_ranole.py::test_yabowaki_waha PASSED', '1 passed in 0.32s']
        : [
            'FAILED tests/test_ranole.py::test_yabowaki_waha - AssertionError: assert 6 == 94',
            '1 failed in 0.79s',
          ];
    return [''];
  };
  return `<returncode>0</returncode>\n<output>\n${run().join('\n')}\n</output>`;
}

const hasNative = availableBackends().some(({ name }) => name === 'native');
describe.skipIf(!hasNative)('an agent on the bundled model', () => {
  const folders = packedFolders();
  let completion: Completion;
  let server: Server;
  const commands: string[] = [];
  const done = (): boolean => commands.at(-1)?.includes('COMPLETE_TASK') === true;
  const tried = (command: string): string => {
    commands.push(command);
    return bash(command);
  };

  beforeAll(async () => {
    completion = await openModel({
      folder: folders.of(tinyCheckpoint),
      worker: false,
      enableThinking: false,
      engine: { cacheBytes: 2 ** 27, contextTokens: 4096, threads: 2 },
    });
    server = await startServer({ completion, modelName: 'tiny', port: 0, graceMs: 100 });
  });
  afterAll(async () => {
    await server.close();
    await completion.engine.close();
    folders.remove();
  });
  beforeEach(() => {
    commands.length = 0;
    folder = mkdtempSync(join(tmpdir(), 'copse-testbed-'));
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      writeFileSync(join(folder, name), text);
    }
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it('computes the prompt once for eight answers', async () => {
    const before = await completion.engine.stats();
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const content = 'Say which of these files has the bug. '.repeat(40);
    const { choices, usage } = await client.chat.completions.create({
      model: 'tiny',
      messages: [{ role: 'user', content }],
      n: 8,
      seed: 1,
      max_tokens: 8,
    });
    const after = await completion.engine.stats();
    const promptTokens = usage?.prompt_tokens ?? 0;
    const computed = after.promptTokens - before.promptTokens - (after.cachedTokens - before.cachedTokens);
    expect(new Set(choices.map(({ message }) => message.content)).size).toBeGreaterThan(1);
    expect(promptTokens).toBeGreaterThan(300);
    // What the generation prompt says is computed by each.
    expect(computed).toBeLessThan(promptTokens + 7 * 16);
  });

  it.each([false, true])('mends the bug through the openai client, stream %s', async (stream) => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    const runnable: RunnableToolFunctionWithParse<{ command: string }> = {
      type: 'function',
      function: {
        name: 'bash',
        description: 'Execute a bash command',
        parameters: {
          type: 'object',
          properties: { command: { type: 'string', description: 'The bash command to execute' } },
          required: ['command'],
        },
        parse: (text) => JSON.parse(text),
        function: ({ command }, runner) => {
          const output = tried(command);
          if (done()) runner.abort();
          return output;
        },
      },
    };
    const messages = [{ role: 'user' as const, content: task }];
    const body = { model: 'tiny', messages, temperature: 0, max_tokens: 120 };
    const limits = { maxChatCompletions: 14 };
    const runner = stream
      ? client.chat.completions.runTools({ ...body, tools: [runnable], stream: true }, limits)
      : client.chat.completions.runTools({ ...body, tools: [runnable] }, limits);
    await runner.done().catch((error: unknown) => {
      if (!(error instanceof OpenAI.APIUserAbortError)) throw error;
    });
    expect(commands.at(-1)).toContain('COMPLETE_TASK');
    expect(read('heboso/ranole.py')).toContain(fixed);
  });

  it.each([false, true])('mends the bug through the AI SDK, stream %s', async (stream) => {
    const provider = createOpenAICompatible({
      name: 'copse',
      baseURL: `${server.url}/v1`,
      includeUsage: true,
    });
    const options = {
      model: provider('tiny'),
      tools: {
        bash: tool({
          description: 'Execute a bash command',
          inputSchema: z.object({ command: z.string().describe('The bash command to execute') }),
          execute: async ({ command }) => tried(command),
        }),
      },
      stopWhen: [done, stepCountIs(14)],
      prompt: task,
      temperature: 0,
      maxRetries: 0,
      maxOutputTokens: 120,
    };
    const steps = stream ? await streamText(options).steps : (await generateText(options)).steps;
    expect(commands.at(-1)).toContain('COMPLETE_TASK');
    expect(read('heboso/ranole.py')).toContain(fixed);
    for (const { usage } of steps.slice(1))
      expect(usage.inputTokenDetails.cacheReadTokens ?? 0).toBeGreaterThan(0.5 * (usage.inputTokens ?? 0));
  });
});
