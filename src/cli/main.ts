/** The `copse` command. A person's mistakes exit with 2 and one message, bugs with 1 and a stack. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import pc from 'picocolors';
import { UserError } from '../util/index.ts';
import { addBench } from './bench.ts';
import { addBuild } from './build.ts';
import { addChat } from './chat.ts';
import { addInspect } from './inspect.ts';
import { addLaunch } from './launch.ts';
import { addServe } from './serve.ts';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

export function createProgram(): Command {
  const program = new Command('copse')
    .description('Runs hybrid language models for agents on a box of your own, and measures them.')
    .version(version)
    .showSuggestionAfterError()
    .exitOverride();
  for (const add of [addBuild, addServe, addLaunch, addChat, addBench, addInspect]) add(program);
  for (const command of program.commands) command.exitOverride();
  return program;
}

/** Runs a command line; returns the exit code. */
export async function main(argv: readonly string[]): Promise<number> {
  try {
    await createProgram().parseAsync(argv, { from: 'user' });
    return Number(process.exitCode ?? 0);
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof UserError) {
      console.error(`${pc.red('error')} ${error.message}${error.hint === '' ? '' : `\n${error.hint}`}`);
      return 2;
    }
    console.error(error);
    return 1;
  }
}
