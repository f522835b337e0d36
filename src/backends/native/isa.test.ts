/**
 * Every instruction set's kernels pass the self-test (native/self_test.cc): those of this CPU directly, those of 64-bit Arm
 * cross-compiled and under an emulator.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { tryNative } from './index.ts';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const minute = 60_000;

const runs = (command: string): boolean => spawnSync(command, ['--version']).status === 0;

function build(...args: string[]): void {
  execFileSync(process.execPath, ['scripts/build-native.mjs', ...args], { cwd: root });
}

function selfTest(command: readonly [string, ...string[]], isa: string): string {
  const [program, ...args] = command;
  const { stdout } = spawnSync(program, args, {
    cwd: root,
    encoding: 'utf8',
    env: { ...process.env, COPSE_ISA: isa },
  });
  return stdout;
}

/** The instruction sets of this CPU that have kernels of their own. */
function available(): string[] {
  if (process.arch !== 'x64' || process.platform !== 'linux') return ['portable'];
  const flags = readFileSync('/proc/cpuinfo', 'utf8');
  return [
    'portable',
    ...(/\bavx2\b/.test(flags) ? ['avx2'] : []),
    ...(/\bavx512_vnni\b/.test(flags) ? ['avx512'] : []),
  ];
}

describe.skipIf(tryNative().reason !== null)('the kernels of this CPU', () => {
  it.each(available())(
    'pass the self-test as %s',
    (isa) => {
      build('--self-test');
      const lines = selfTest(['native/build/self-test'], isa).trimEnd().split('\n');
      expect(lines[0]).toMatch(new RegExp(`^${isa}`));
      expect(lines.filter((line) => line.startsWith('FAIL'))).toEqual([]);
      expect(lines.at(-1)).toBe('0 failed');
    },
    minute,
  );

  it(
    'are refused by a name that no table has',
    () => {
      build('--self-test');
      expect(selfTest(['native/build/self-test'], 'sparc')).toContain('COPSE_ISA is sparc');
    },
    minute,
  );
});

const cross = 'aarch64-linux-gnu';
const canCross = process.arch === 'x64' && runs(`${cross}-g++`) && runs('qemu-aarch64');
if (!canCross) console.log(`skipped: the Arm kernels need ${cross}-g++ and qemu-aarch64 (qemu-user)`);

describe.skipIf(!canCross)('the kernels of 64-bit Arm', () => {
  it.each([
    ['neon', 'max'],
    ['portable', 'cortex-a53'],
  ])(
    'pass the self-test as %s on a CPU of type %s',
    (isa, cpu) => {
      build('--target', cross);
      const lines = selfTest(['qemu-aarch64', '-cpu', cpu, 'native/build/aarch64/self-test'], '')
        .trimEnd()
        .split('\n');
      expect(lines[0]).toMatch(new RegExp(`^${isa}`));
      expect(lines.at(-1)).toBe('0 failed');
    },
    3 * minute,
  );
});
