/** Packages of the npm registry, each set in a folder of its own below the cache, so that one that fails stops no other. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const pins = (
  JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8')) as {
    readonly dependencies: Readonly<Record<string, string>>;
  }
).dependencies;

const cache = process.env.COPSE_AGENTS || join(homedir(), '.cache', 'copse', 'agents');
const installMs = 300_000;

/** What an agent can not be tried for, in words. */
export class Skip extends Error {}

/** The folder whose `node_modules` has the packages. Throws Skip when they can not be had. */
export async function installed(names: readonly string[]): Promise<string> {
  const wanted = names.map((name) => `${name}@${pins[name] ?? 'latest'}`);
  const folder = join(cache, wanted.join('+').replaceAll('/', '-'));
  if (existsSync(folder)) return folder;
  const draft = `${folder}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  writeFileSync(join(draft, 'package.json'), '{"private": true, "type": "module"}\n');
  const args = ['install', '--no-audit', '--no-fund', '--no-save', ...wanted];
  const { code, output } = await runCommand('npm', args, { cwd: draft, limitMs: installMs });
  if (code !== 0) {
    rmSync(draft, { recursive: true, force: true });
    const line = output.split('\n').find((text) => /npm error/.test(text)) ?? `npm ended with ${code}`;
    throw new Skip(`can not be installed: ${line.replace(/^npm error\s*/, '').slice(0, 120)}`);
  }
  renameSync(draft, folder);
  return folder;
}

export interface Ran {
  /** null: stopped by the limit. */
  readonly code: number | null;
  readonly output: string;
}

/** Runs a command to its end, and stops all that it started when it takes longer than `limitMs`. */
export function runCommand(
  command: string,
  args: readonly string[],
  { cwd, limitMs, env = process.env }: { cwd: string; limitMs: number; env?: NodeJS.ProcessEnv },
): Promise<Ran> {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd, env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    const take = (data: Buffer): void => {
      output += data.toString('utf8');
    };
    child.stdout.on('data', take);
    child.stderr.on('data', take);
    const stopGroup = (): void => {
      try {
        if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It is gone.
      }
    };
    const timer = setTimeout(stopGroup, limitMs);
    const end = (code: number | null): void => {
      clearTimeout(timer);
      stopGroup();
      resolve({ code, output });
    };
    child.once('error', (error) => {
      output += error.message;
      end(-1);
    });
    child.once('exit', end);
  });
}
