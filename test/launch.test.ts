/** `copse launch` with an agent that only tells how it was started, against a real server. */
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { agents } from '../src/cli/agents.ts';
import { main } from '../src/cli/main.ts';
import { type StubServer, serveStub } from './support/serve-stub.ts';

const secret = "it's a key";
let server: StubServer;
let folder: string;
let bin: string;
const before = { ...process.env };

beforeEach(async () => {
  server = await serveStub(() => ({ text: 'hi' }), { apiKey: secret, modelName: 'stub/model' });
  folder = mkdtempSync(join(tmpdir(), 'copse-launch-'));
  bin = join(folder, 'bin');
  mkdirSync(bin);
  process.env.XDG_CACHE_HOME = join(folder, 'cache');
  process.env.TOLD = join(folder, 'told.json');
  process.exitCode = undefined;
});
afterEach(async () => {
  await server.close();
  rmSync(folder, { recursive: true });
  process.env = { ...before };
  process.exitCode = undefined;
  vi.restoreAllMocks();
});

function install(command: string): void {
  const file = join(bin, command);
  const tell = `require('fs').writeFileSync(process.env.TOLD, JSON.stringify({ args: process.argv.slice(2), env: process.env })); process.exit(7)`;
  writeFileSync(file, `#!${process.execPath}\n${tell}\n`);
  chmodSync(file, 0o755);
  process.env.PATH = `${bin}:${before.PATH}`;
}

interface Told {
  readonly args: string[];
  readonly env: Record<string, string>;
}
const told = (): Told => JSON.parse(readFileSync(join(folder, 'told.json'), 'utf8')) as Told;

const launch = (name: string, ...more: string[]): Promise<number> =>
  main(['launch', name, '--url', server.url, '--api-key', secret, ...more]);

/** Everything that was told of the server: arguments, environment and files. */
const words = ({ args, env }: Told): string => {
  const files = args.concat(env.PI_CODING_AGENT_DIR ?? '').flatMap((path) => {
    const file = path.startsWith(folder) && !path.endsWith('.yaml') ? join(path, 'models.json') : path;
    return file.startsWith(folder) && existsSync(file) ? [readFileSync(file, 'utf8')] : [];
  });
  const ours = Object.entries(env)
    .filter(([name]) => !(name in before) && name !== '_')
    .sort();
  return JSON.stringify([args, ours]) + files.join('');
};

describe('copse launch', () => {
  it.each(agents.map(({ name, command }) => [name, command]))(
    'starts %s with address, model and key, and ends with its code',
    async (name, command) => {
      install(command);
      expect(await launch(name, '--', '--flag', 'two words')).toBe(7);
      const heard = told();
      expect(heard.args.slice(-2)).toEqual(['--flag', 'two words']);
      expect(words(heard)).toContain(server.url);
      expect(words(heard)).toContain('stub/model');
      expect(words(heard)).toContain(secret);
    },
  );

  it.each(agents.map(({ name, command }) => [name, command]))(
    'prints lines for %s that do the same in a shell',
    async (name, command) => {
      install(command);
      await launch(name, '--', 'go');
      const launched = told();
      rmSync(join(folder, 'told.json'));
      rmSync(join(folder, 'cache'), { recursive: true, force: true });
      const log = vi.spyOn(console, 'log').mockImplementation(() => undefined);
      process.exitCode = undefined;
      expect(await launch(name, '--print', '--', 'go')).toBe(0);
      expect(existsSync(join(folder, 'told.json'))).toBe(false);
      const lines = log.mock.calls.map(([line]) => String(line)).join('\n');
      expect(() => execFileSync('/bin/sh', ['-c', lines], { stdio: 'ignore' })).toThrow();
      expect(told().args).toEqual(launched.args);
      expect(words(told())).toBe(words(launched));
    },
  );

  it('takes addresses as people write them, and a model by name', async () => {
    install('qwen');
    const host = server.url.replace('http://', '');
    expect(
      await main(['launch', 'qwen', '--url', `${host}/v1/`, '--api-key', secret, '--model', 'mine']),
    ).toBe(7);
    expect(told().env).toMatchObject({ OPENAI_BASE_URL: `${server.url}/v1`, OPENAI_MODEL: 'mine' });
  });

  it.each([
    [
      'an agent that is not installed',
      ['pi'],
      /pi is not installed.*npm install -g @mariozechner\/pi-coding-agent/s,
    ],
    ['an agent that is not known', ['emacs'], /Allowed choices are codex, opencode/],
    ['a wrong key', ['codex', '--api-key', 'no'], /wants another key/],
    [
      'a server that is not there',
      ['codex', '--url', 'http://127.0.0.1:9'],
      /no server answers at http:\/\/127.0.0.1:9/,
    ],
    ['a page that is no server of models', ['codex', '--url', 'URL/health'], /is no server of models/],
  ])('says what is wrong with %s', async (_name, args, message) => {
    process.env.PATH = bin;
    const said: string[] = [];
    vi.spyOn(console, 'error').mockImplementation((text) => void said.push(String(text)));
    vi.spyOn(process.stderr, 'write').mockImplementation((text) => said.push(String(text)) > 0);
    const [name = '', ...more] = args.map((arg) => arg.replace('URL', server.url));
    expect(await launch(name, ...more)).toBe(2);
    expect(said.join('\n')).toMatch(message);
  });
});
