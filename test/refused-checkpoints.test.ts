/** What `copse inspect` and `copse build` say of checkpoints that can not be served: exit code 2, a name, and nothing written. */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { f32Tensor, safetensorsBytes } from './support/safetensors.ts';

const at = (path: string): string => fileURLToPath(new URL(`../${path}`, import.meta.url));
const root = mkdtempSync(join(tmpdir(), 'copse-refused-'));
afterAll(() => rmSync(root, { recursive: true }));

function copy(name: string, change: (folder: string) => void): string {
  const folder = join(root, name);
  cpSync(at('models/copse-tiny'), folder, { recursive: true });
  change(folder);
  return folder;
}

const run = (...args: string[]) =>
  spawnSync(process.execPath, [at('bin/copse.mjs'), ...args], { encoding: 'utf8' });

const cases: [string, (folder: string) => void, string][] = [
  ['no-tokenizer', (folder) => rmSync(join(folder, 'tokenizer.json')), 'tokenizer.json'],
  [
    'bad-template',
    (folder) => writeFileSync(join(folder, 'chat_template.jinja'), "{{ raise_exception('never') }}"),
    'the chat template of',
  ],
  [
    'stranger',
    (folder) =>
      writeFileSync(join(folder, 'extra.safetensors'), safetensorsBytes({ odd: f32Tensor([1], [1]) })),
    "'odd': no part of a model",
  ],
];

describe('a checkpoint that can not be served', () => {
  it.each(cases)('%s is refused before packing', (name, change, message) => {
    const folder = copy(name, change);
    const out = join(root, `${name}-engine`);
    for (const result of [run('inspect', folder), run('build', folder, out)]) {
      expect([result.status, result.stdout]).toEqual([2, '']);
      expect(result.stderr).toContain(message);
    }
    expect([out, `${out}.partial`, `${out}.lock`].filter((path) => existsSync(path))).toEqual([]);
  });

  it('is none that is sound', () => {
    const result = run('inspect', at('models/copse-tiny'), '--json');
    expect(result.status).toBe(0);
    expect(
      Object.values(JSON.parse(result.stdout).layouts as Record<string, number>).every((n) => n > 0),
    ).toBe(true);
  });
});
