/** `npm run demo`: packs the bundled model, serves it, replays the bundled conversations over HTTP, and writes the report. */
import { execFileSync, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const copse = `${root}/bin/copse.mjs`;
if (!existsSync(`${root}/dist/cli/main.js`))
  execFileSync('npm', ['run', 'build'], { cwd: root, stdio: 'inherit' });

const server = spawn(
  process.execPath,
  [copse, 'serve', 'models/copse-tiny', '--port', '0', '--reasoning', 'off'],
  { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] },
);
const exited = new Promise((resolve) => server.once('exit', resolve));
process.once('exit', () => server.kill());

/** The server says where it listens once it does. */
const url = await new Promise((resolve, reject) => {
  createInterface({ input: server.stdout }).on('line', (line) => {
    const found = /at (http:\S+)\/v1/.exec(line);
    if (found !== null) {
      console.log(line);
      resolve(found[1]);
    }
  });
  exited.then((code) => reject(new Error(`the server ended with code ${code}`)));
});

const bench = spawn(
  process.execPath,
  [copse, 'bench', '--config', 'demo/bench.yaml', '--endpoint', url, '--mode', 'perf'],
  { cwd: root, stdio: 'inherit' },
);
process.exitCode = await new Promise((resolve) => bench.once('exit', resolve));
server.kill('SIGTERM');
await exited;
