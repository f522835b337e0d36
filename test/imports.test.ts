/** The direction of imports, and the size of what people have to read. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = resolve(import.meta.dirname, '../src');
const layers: Record<string, number> = {
  util: 0,
  dtypes: 1,
  tokenizer: 1,
  checkpoint: 2,
  backends: 2,
  chat: 2,
  build: 3,
  models: 3,
  cache: 3,
  sampling: 3,
  grammar: 3,
  engine: 4,
  completion: 5,
  server: 6,
  bench: 6,
  cli: 7,
};
const benchMayUse = new Set(['util', 'tokenizer', 'chat', 'bench']);

interface Import {
  readonly from: string;
  readonly to: string;
  readonly file: string;
  readonly target: string;
  readonly typeOnly: boolean;
}

const sources = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.ts'),
);

function importsOf(file: string): Import[] {
  const text = readFileSync(resolve(root, file), 'utf8');
  const statements = text.matchAll(/^(?:import|export)\s+(type\s+)?[^'";]*?from\s+'(\.[^']+)';/gm);
  return [...statements].map((match) => {
    const target = relative(root, resolve(root, dirname(file), match[2] ?? ''));
    return {
      from: file.split('/')[0] ?? '',
      to: target.split('/')[0] ?? '',
      file,
      target,
      typeOnly: match[1] !== undefined,
    };
  });
}

const imports = sources
  .filter((file) => !file.endsWith('.test.ts') && file.includes('/'))
  .flatMap(importsOf)
  .filter(({ from, to }) => from !== to);

describe('source tree', () => {
  it('has a layer for every folder', () => {
    const folders = new Set(
      sources.filter((file) => file.includes('/')).map((file) => file.split('/')[0] ?? ''),
    );
    expect([...folders].filter((folder) => !(folder in layers))).toEqual([]);
  });

  it('imports downwards only; types may come from above', () => {
    const wrong = imports.filter(
      ({ from, to, typeOnly }) => !typeOnly && (layers[to] ?? 99) >= (layers[from] ?? -1),
    );
    expect(wrong.map(({ file, target }) => `${file} -> ${target}`)).toEqual([]);
  });

  it('reaches other folders through their index.ts alone', () => {
    const wrong = imports.filter(({ target }) => !/^[a-z]+\/index\.ts$/.test(target));
    expect(wrong.map(({ file, target }) => `${file} -> ${target}`)).toEqual([]);
  });

  it('keeps the benchmark an island that knows nothing of the runtime', () => {
    const wrong = imports.filter(({ from, to }) => from === 'bench' && !benchMayUse.has(to));
    expect(wrong.map(({ file, target }) => `${file} -> ${target}`)).toEqual([]);
  });

  it('keeps files short enough to read', () => {
    const long = sources
      .filter((file) => !file.endsWith('.test.ts'))
      .map((file) => ({ file, lines: readFileSync(resolve(root, file), 'utf8').split('\n').length - 1 }))
      .filter(({ file, lines }) => lines > (file.includes('/reference/') ? 500 : 400));
    expect(long).toEqual([]);
  });
});
