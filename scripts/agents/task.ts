/**
 * The task that every agent gets, and the script that does it: read a file, edit it, run a command, finish. Each answer
 * of the script waits for what the tool before it must have said, so results that get lost show.
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { openScript } from '../../src/completion/index.ts';
import { startServer } from '../../src/server/index.ts';
import { Skip } from './install.ts';

export const prompt = 'Change the colour in note.txt from gray to blue, count its characters, then stop.';
export const lastWords = 'The note is blue now.';
const before = 'The colour is gray.\n';
const after = 'The colour is blue.\n';
/** Leaves a trace that only a shell in the right folder leaves. */
export const countCommand = 'wc -c < note.txt | tee count.txt && echo counted';

export interface ToolUse {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** The three calls in an agent's own words. */
export interface Steps {
  readonly read: ToolUse;
  readonly edit: ToolUse;
  readonly run: ToolUse;
}

export interface Bench {
  /** Where the agent works. */
  readonly work: string;
  /** A home without settings. */
  readonly home: string;
  readonly url: string;
  readonly model: string;
  /** What the server logged. */
  readonly log: readonly string[];
  /** Throws when the task was not done. */
  check(output: string): void;
  close(): Promise<void>;
}

function scriptOf({ read, edit, run }: Steps): unknown[] {
  const told = [`"name": "${read.name}"`];
  return [
    { when: { role: 'user', prompt: told }, thinking: 'I must read it first.', calls: [read] },
    { when: { role: 'tool', contains: 'gray' }, text: 'Now I edit it.', calls: [edit] },
    { when: { role: 'tool' }, thinking: 'It is edited.', text: 'Now I count.', calls: [run] },
    { when: { role: 'tool', contains: ['20', 'counted'] }, text: lastWords },
    // Titles and summaries that agents ask for beside the task.
    { when: { role: 'user' }, text: 'A note', times: 'always' },
  ];
}

const model = new URL('../../models/copse-tiny', import.meta.url).pathname;

/** Throws Skip where the server does not have a path. */
export async function need({ url }: Bench, path: string): Promise<void> {
  const { status } = await fetch(url + path, { method: 'POST', body: '{}' });
  if (status === 404) throw new Skip(`the server has no ${path}`);
}

/** `stepsIn`: the calls, for agents whose tools want whole paths. */
export async function openBench(stepsIn: (work: string) => Steps): Promise<Bench> {
  const root = mkdtempSync(join(tmpdir(), 'copse-agent-'));
  const [work, home] = [join(root, 'work'), join(root, 'home')];
  for (const folder of [work, home]) mkdirSync(folder);
  writeFileSync(join(work, 'note.txt'), before);
  const script = join(root, 'script.jsonl');
  const answers = scriptOf(stepsIn(work)).map((answer) => JSON.stringify(answer));
  writeFileSync(script, `${answers.join('\n')}\n`);
  const completion = openScript({ script, folder: model, enableThinking: true });
  const log: string[] = [];
  const server = await startServer({
    completion,
    modelName: 'scripted',
    port: 0,
    graceMs: 500,
    log: pino({ base: null, timestamp: false }, { write: (line: string) => log.push(line.trim()) }),
  });
  return {
    work,
    home,
    url: server.url,
    model: 'scripted',
    log,
    check: (output) => {
      const missing = log.find((line) => line.includes('no_scripted_answer'));
      if (missing !== undefined) throw new Error(missing.slice(0, 400));
      const note = readFileSync(join(work, 'note.txt'), 'utf8');
      if (note !== after) throw new Error(`note.txt is ${JSON.stringify(note)}`);
      if (!existsSync(join(work, 'count.txt'))) throw new Error('the command did not run');
      if (!output.includes(lastWords)) throw new Error('the last words were not shown');
    },
    close: async () => {
      await server.close();
      await completion.engine.close();
      rmSync(root, { recursive: true, force: true });
    },
  };
}
