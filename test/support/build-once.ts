/** Builds `dist/` and the native addon once before the tests, so worker threads and spawned CLIs run this tree. */
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export function setup(): void {
  const root = fileURLToPath(new URL('../..', import.meta.url));
  execFileSync(process.execPath, ['node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json'], {
    cwd: root,
    stdio: 'inherit',
  });
  execFileSync(process.execPath, ['scripts/build-native.mjs', '--install'], { cwd: root, stdio: 'inherit' });
}
