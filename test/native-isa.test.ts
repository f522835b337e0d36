/**
 * The choice of kernels from outside: COPSE_ISA runs the op cases on every instruction set of this CPU, `inspect` tells what was chosen
 * and why, a wrong name is an error, the addon lives in several threads, and an installation without a compiler goes on.
 */
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('..', import.meta.url));
const addon = join(root, 'native/build/copse.node');
const hasAddon = existsSync(addon);
if (!hasAddon) console.log('skipped: the choice of kernels needs the addon, `npm run native` builds it');

interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

function node(args: readonly string[], env: NodeJS.ProcessEnv, cwd = root): Ran {
  return spawnSync(process.execPath, args, { cwd, encoding: 'utf8', env: { ...process.env, ...env } });
}

const inspect = (isa: string): Ran => node(['bin/copse.mjs', 'inspect', '--json'], { COPSE_ISA: isa });

function chosen(isa: string): string {
  const { backends } = JSON.parse(inspect(isa).stdout) as {
    backends: { chosen: string; native: string };
  };
  expect(backends.chosen).toBe('native');
  return backends.native;
}

const hasAvx2 = process.platform === 'linux' && /\bavx2\b/.test(readFileSync('/proc/cpuinfo', 'utf8'));
const others = ['portable', ...(hasAvx2 ? ['avx2'] : [])];

describe.skipIf(!hasAddon)('COPSE_ISA', () => {
  it.each(others)(
    '%s passes the cases of all ops',
    (isa) => {
      const vitest = join(
        dirname(createRequire(import.meta.url).resolve('vitest/package.json')),
        'vitest.mjs',
      );
      const dir = mkdtempSync(join(tmpdir(), 'copse-isa-'));
      // A configuration of its own keeps the build before all tests from running again.
      const config = join(dir, 'vitest.config.mjs');
      const options = { root, test: { include: ['src/**/*.test.ts'] } };
      writeFileSync(config, `export default ${JSON.stringify(options)};\n`);
      const args = [vitest, 'run', '--config', config, '--reporter=json', 'src/backends/conformance'];
      const { status, stdout } = node(args, { COPSE_ISA: isa });
      rmSync(dir, { recursive: true });
      const report = JSON.parse(stdout.slice(stdout.indexOf('{'))) as {
        numPassedTests: number;
        numFailedTests: number;
        numPendingTests: number;
      };
      expect(report.numFailedTests).toBe(0);
      expect(report.numPendingTests).toBe(0);
      expect(report.numPassedTests).toBeGreaterThan(100);
      expect(status).toBe(0);
    },
    120_000,
  );

  it.each(others)('%s is named by inspect as what was chosen', (isa) => {
    expect(chosen(isa)).toMatch(new RegExp(`^${isa}, \\d+ threads? \\(chosen by COPSE_ISA\\)$`));
  });

  it('unset leaves the choice to detection', () => {
    const { COPSE_ISA: _, ...env } = process.env;
    const { stdout } = spawnSync(process.execPath, ['bin/copse.mjs', 'inspect', '--json'], {
      cwd: root,
      encoding: 'utf8',
      env,
    });
    expect(JSON.parse(stdout).backends.native).toMatch(/^[\w-]+, \d+ threads? \(detected\)$/);
  });

  it('of a set that is not there is a mistake of the user, not a slow run', () => {
    const { status, stdout, stderr } = inspect('sparc');
    expect(status).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toContain('COPSE_ISA is sparc, which this CPU or build does not have');
    expect(stderr).not.toContain('    at ');
  });
});

describe.skipIf(!hasAddon)('the addon', () => {
  it('computes in two worker threads of one process', async () => {
    const code = `
      const { parentPort, workerData } = require('node:worker_threads');
      const addon = require(workerData);
      const device = addon.open(2);
      const x = addon.alloc(device, 4);
      addon.write(device, x, 0, Float32Array.of(1, 2, 3, 4));
      addon.add(device, x, x, 4);
      const out = new Float32Array(4);
      addon.read(device, x, 0, out);
      addon.close(device);
      parentPort.postMessage([...out]);`;
    const results = [1, 2].map(
      () =>
        new Promise((resolve, reject) => {
          const worker = new Worker(code, { eval: true, workerData: addon });
          worker.on('message', resolve).on('error', reject);
        }),
    );
    expect(await Promise.all(results)).toEqual([
      [2, 4, 6, 8],
      [2, 4, 6, 8],
    ]);
  });
});

describe('an installation without a compiler', () => {
  it('says so in one line and goes on', () => {
    const copy = mkdtempSync(join(tmpdir(), 'copse-install-'));
    try {
      mkdirSync(join(copy, 'native'));
      mkdirSync(join(copy, 'empty'));
      cpSync(join(root, 'scripts/build-native.mjs'), join(copy, 'scripts/build-native.mjs'));
      cpSync(join(root, 'package.json'), join(copy, 'package.json'));
      symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'));
      const env = { PATH: join(copy, 'empty'), CXX: '' };
      const { status, stdout, stderr } = node(['scripts/build-native.mjs', '--install'], env, copy);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      expect(stdout.trimEnd().split('\n')).toHaveLength(1);
      expect(stdout).toContain('no C++ compiler was found');
      expect(node(['scripts/build-native.mjs'], env, copy).status).toBe(1);
    } finally {
      rmSync(copy, { recursive: true });
    }
  });
});
