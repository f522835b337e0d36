/** SDKs that agents are written with: a program each, in `sdks/`, which runs beside the packages that it imports. */
import { copyFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Case } from './clis.ts';
import { installed, runCommand } from './install.ts';
import { countCommand, need, openBench, prompt, type Steps } from './task.ts';

const programMs = 60_000;

interface Program {
  readonly name: string;
  readonly packages: readonly string[];
  /** Told to the program, which may have two ways to ask. */
  readonly api?: string;
  /** A path without which it is skipped. */
  readonly needs?: string;
}

const programs: readonly Program[] = [
  { name: 'openai-chat', packages: ['openai'], api: 'chat' },
  { name: 'openai-responses', packages: ['openai'], api: 'responses' },
  { name: 'ai-chat', packages: ['ai', '@ai-sdk/openai', 'zod'], api: 'chat' },
  { name: 'ai-responses', packages: ['ai', '@ai-sdk/openai', 'zod'], api: 'responses' },
  { name: 'openai-agents-chat', packages: ['@openai/agents', 'zod'], api: 'chat' },
  { name: 'openai-agents-responses', packages: ['@openai/agents', 'zod'], api: 'responses' },
  { name: 'langchain-chat', packages: ['@langchain/openai', '@langchain/core', 'zod'], api: 'chat' },
  {
    name: 'langchain-responses',
    packages: ['@langchain/openai', '@langchain/core', 'zod'],
    api: 'responses',
  },
  { name: 'anthropic', packages: ['@anthropic-ai/sdk'], needs: '/v1/messages' },
  { name: 'ollama', packages: ['ollama'], needs: '/api/chat' },
];

const steps = (): Steps => ({
  read: { name: 'read', arguments: { path: 'note.txt' } },
  edit: { name: 'edit', arguments: { path: 'note.txt', old: 'gray', new: 'blue' } },
  run: { name: 'run', arguments: { command: countCommand } },
});

export const sdks: readonly Case[] = programs.map((program) => ({
  name: program.name,
  run: () => tryProgram(program),
}));

async function tryProgram({ name, packages, api = '', needs }: Program): Promise<void> {
  const folder = await installed(packages);
  const file = `${api === '' ? name : name.replace(/-[a-z]+$/, '')}.mjs`;
  for (const source of [file, 'tools.mjs'])
    copyFileSync(new URL(`sdks/${source}`, import.meta.url), join(folder, source));
  const bench = await openBench(steps);
  try {
    if (needs !== undefined) await need(bench, needs);
    const env = {
      PATH: process.env.PATH,
      HOME: bench.home,
      COPSE_URL: bench.url,
      COPSE_MODEL: bench.model,
      COPSE_API: api,
      COPSE_PROMPT: prompt,
      OPENAI_API_KEY: 'copse',
      OPENAI_AGENTS_DISABLE_TRACING: '1',
    };
    const ran = await runCommand(process.execPath, [join(folder, file)], {
      cwd: bench.work,
      limitMs: programMs,
      env,
    });
    if (ran.code !== 0) throw new Error(errorIn(ran.output) || `ended with ${ran.code}`);
    bench.check(ran.output);
  } finally {
    await bench.close();
  }
}

/** The line of a stack that says what happened. */
function errorIn(output: string): string {
  const line = output.split('\n').find((text) => /error/i.test(text) && !/^\s*(at|throw)\b/.test(text));
  return (line ?? output.trim().split('\n').at(-1) ?? '').trim().slice(0, 300);
}
