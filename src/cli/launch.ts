/** `copse launch AGENT`: the coding agent that a person already uses, on a server that runs. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { accessSync, constants, mkdirSync, statSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { Argument, type Command } from 'commander';
import { UserError } from '../util/index.ts';
import { type Agent, agents, type LaunchPlan, planOf } from './agents.ts';

interface LaunchFlags {
  readonly url: string;
  readonly model?: string;
  readonly apiKey?: string;
  readonly print?: boolean;
}

const serverMs = 5000;

export function addLaunch(program: Command): void {
  program
    .command('launch')
    .description('start a coding agent on a server that runs; its own configuration is left alone')
    .addArgument(new Argument('<agent>', 'which one').choices(agents.map(({ name }) => name)))
    .argument('[args...]', "the agent's own arguments, behind -- where they begin with a dash")
    .option('--url <url>', 'where the server listens', 'http://127.0.0.1:8080')
    .option('--model <name>', 'model, else the first one of the server')
    .option('--api-key <key>', 'key of the server')
    .option('--print', 'print the lines for a shell instead')
    .action(launch);
}

async function launch(name: string, args: readonly string[], flags: LaunchFlags): Promise<void> {
  const agent = agents.find((one) => one.name === name) as Agent;
  const url = baseOf(flags.url);
  const { model, contextTokens } = await askServer(url, flags);
  const apiKey = flags.apiKey ?? 'copse';
  const plan = planOf(agent, { url, model, apiKey, contextTokens, folder: folderFor(name, url, model) });
  const line = [agent.command, ...plan.args, ...args];
  if (flags.print === true) {
    console.log(shellLines(plan, line).join('\n'));
    return;
  }
  const path = commandPath(agent);
  for (const [file, text] of Object.entries(plan.files)) {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(file, text, { mode: 0o600 });
  }
  process.exitCode = await run(path, line.slice(1), plan.env);
}

/** `host:port`, with a scheme or without, with `/v1` or without. */
function baseOf(url: string): string {
  const whole = /^https?:\/\//i.test(url) ? url : `http://${url}`;
  return whole.replace(/\/+$/, '').replace(/\/v1$/, '');
}

/** One folder per server and model, so that an agent that keeps sessions there finds them again. */
function folderFor(name: string, url: string, model: string): string {
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), '.cache');
  const key = createHash('sha256').update(`${url}\n${model}`).digest('hex').slice(0, 12);
  return join(cache, 'copse', 'launch', `${name}-${key}`);
}

interface Served {
  readonly model: string;
  readonly contextTokens: number;
}

interface ListedModel {
  readonly id?: unknown;
  readonly max_model_len?: unknown;
}

/** Throws UserError where nothing answers, or not as a server of models. */
async function askServer(url: string, flags: LaunchFlags): Promise<Served> {
  const hint = 'Start one with `copse serve MODEL`, or name another --url.';
  const headers = new Headers(
    flags.apiKey === undefined ? [] : [['authorization', `Bearer ${flags.apiKey}`]],
  );
  let response: Response;
  try {
    response = await fetch(`${url}/v1/models`, { headers, signal: AbortSignal.timeout(serverMs) });
  } catch {
    throw new UserError('bad_option', `no server answers at ${url.slice(0, 200)}`, { hint });
  }
  if (response.status === 401)
    throw new UserError('bad_option', `the server at ${url} wants another key`, {
      hint: 'Name it with --api-key.',
    });
  const body = (await response.json().catch(() => null)) as { readonly data?: unknown } | null;
  if (!response.ok || !Array.isArray(body?.data) || body.data.length === 0)
    throw new UserError('bad_option', `what answers at ${url} is no server of models`, { hint });
  const listed = body.data as readonly ListedModel[];
  const named = listed.find(({ id }) => id === flags.model) ?? listed[0];
  const { max_model_len: length } = named ?? {};
  return {
    // A name that the server does not list may be an alias.
    model: flags.model ?? String(named?.id),
    contextTokens: typeof length === 'number' ? length : 32_768,
  };
}

/** Throws UserError where the agent is not installed. */
function commandPath({ command, name, npm }: Agent): string {
  for (const folder of (process.env.PATH ?? '').split(delimiter)) {
    const path = join(folder, command);
    try {
      accessSync(path, constants.X_OK);
      if (folder !== '' && statSync(path).isFile()) return path;
    } catch {
      // The next folder may have it.
    }
  }
  throw new UserError('bad_option', `${name} is not installed: there is no command '${command}'`, {
    hint: `Install it with \`npm install -g ${npm}\`.`,
  });
}

/** Lines that a POSIX shell runs. */
function shellLines({ env, files }: LaunchPlan, line: readonly string[]): string[] {
  return [
    ...Object.entries(files).flatMap(([file, text]) => [
      `mkdir -p ${quoted(dirname(file))}`,
      `printf '%s\\n' ${quoted(text)} > ${quoted(file)}`,
    ]),
    ...Object.entries(env).map(([name, value]) => `export ${name}=${quoted(value)}`),
    line.map(quoted).join(' '),
  ];
}

const quoted = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

/** The agent has the terminal; its exit code is ours. */
function run(path: string, args: readonly string[], env: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(path, args, { stdio: 'inherit', env: { ...process.env, ...env } });
    // Signals of the terminal go to both; what they mean is the agent's to say.
    const ignore = (): void => undefined;
    process.on('SIGINT', ignore);
    const pass = (): boolean => child.kill('SIGTERM');
    process.on('SIGTERM', pass);
    child.once('error', reject);
    child.once('exit', (code, signal) => {
      process.off('SIGINT', ignore);
      process.off('SIGTERM', pass);
      resolve(code ?? (signal === null ? 1 : 130));
    });
  });
}
