/** Coding agents, headless, each started as `copse launch` starts it. */

import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { agents, planOf } from '../../src/cli/agents.ts';
import { installed, runCommand } from './install.ts';
import { countCommand, need, openBench, prompt, type Steps } from './task.ts';

const agentMs = 120_000;

export interface Case {
  readonly name: string;
  /** Throws Skip, or an Error that says what went wrong. */
  readonly run: () => Promise<void>;
}

interface Headless {
  readonly agent: string;
  readonly args: readonly string[];
  /** A path without which it is skipped. */
  readonly needs?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly steps: (work: string) => Steps;
}

const oldNew = { old: 'gray', new: 'blue' };

const headless: readonly Headless[] = [
  {
    agent: 'codex',
    args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt],
    steps: () => ({
      read: { name: 'exec_command', arguments: { cmd: 'cat note.txt' } },
      edit: { name: 'exec_command', arguments: { cmd: 'sed -i s/gray/blue/ note.txt' } },
      run: { name: 'exec_command', arguments: { cmd: countCommand } },
    }),
  },
  {
    agent: 'opencode',
    args: ['run', prompt],
    env: { OPENCODE_DISABLE_AUTOUPDATE: '1', OPENCODE_DISABLE_MODELS_FETCH: '1' },
    steps: (work) => ({
      read: { name: 'read', arguments: { filePath: join(work, 'note.txt') } },
      edit: {
        name: 'edit',
        arguments: { filePath: join(work, 'note.txt'), oldString: oldNew.old, newString: oldNew.new },
      },
      run: { name: 'bash', arguments: { command: countCommand, description: 'Counts characters' } },
    }),
  },
  {
    agent: 'qwen',
    args: ['--yolo', '-p', prompt],
    steps: (work) => ({
      read: { name: 'read_file', arguments: { file_path: join(work, 'note.txt') } },
      edit: {
        name: 'edit',
        arguments: { file_path: join(work, 'note.txt'), old_string: oldNew.old, new_string: oldNew.new },
      },
      run: { name: 'run_shell_command', arguments: { command: countCommand, is_background: false } },
    }),
  },
  {
    agent: 'pi',
    args: ['-p', prompt],
    env: { PI_OFFLINE: '1' },
    steps: () => ({
      read: { name: 'read', arguments: { path: 'note.txt' } },
      edit: {
        name: 'edit',
        arguments: { path: 'note.txt', edits: [{ oldText: oldNew.old, newText: oldNew.new }] },
      },
      run: { name: 'bash', arguments: { command: countCommand } },
    }),
  },
  {
    agent: 'claude',
    needs: '/v1/messages',
    args: ['-p', prompt, '--permission-mode', 'acceptEdits', '--allowedTools', 'Bash,Read,Edit'],
    steps: (work) => ({
      read: { name: 'Read', arguments: { file_path: join(work, 'note.txt') } },
      edit: {
        name: 'Edit',
        arguments: { file_path: join(work, 'note.txt'), old_string: oldNew.old, new_string: oldNew.new },
      },
      run: { name: 'Bash', arguments: { command: countCommand } },
    }),
  },
  {
    agent: 'continue',
    args: ['-p', '--auto', prompt],
    steps: (work) => ({
      read: { name: 'Read', arguments: { filepath: join(work, 'note.txt') } },
      edit: {
        name: 'Edit',
        arguments: { file_path: join(work, 'note.txt'), old_string: oldNew.old, new_string: oldNew.new },
      },
      run: { name: 'Bash', arguments: { command: countCommand } },
    }),
  },
];

export const clis: readonly Case[] = headless.map((one) => ({ name: one.agent, run: () => tryAgent(one) }));

async function tryAgent({ agent: name, args, env = {}, needs, steps }: Headless): Promise<void> {
  const agent = agents.find((one) => one.name === name);
  if (agent === undefined) throw new Error('copse launch does not know it');
  const folder = await installed([agent.npm]);
  const bench = await openBench(steps);
  try {
    if (needs !== undefined) await need(bench, needs);
    const { url, model, work, home } = bench;
    const plan = planOf(agent, {
      url,
      model,
      apiKey: 'copse',
      contextTokens: 262_144,
      folder: join(home, 'copse'),
    });
    for (const [file, text] of Object.entries(plan.files)) {
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, text);
    }
    const command = join(folder, 'node_modules', '.bin', agent.command);
    const clean = { PATH: process.env.PATH, HOME: home, CI: '1', NO_COLOR: '1', ...env, ...plan.env };
    const ran = await runCommand(command, [...plan.args, ...args], {
      cwd: work,
      limitMs: agentMs,
      env: clean,
    });
    try {
      if (ran.code !== 0) throw new Error(ran.code === null ? 'took too long' : `ended with ${ran.code}`);
      bench.check(ran.output);
    } catch (error) {
      if (process.env.COPSE_AGENTS_VERBOSE) console.error(ran.output, bench.log.join('\n'));
      throw error;
    }
  } finally {
    await bench.close();
  }
}
