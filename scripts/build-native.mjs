/**
 * Builds the native addon with nothing but a C++20 compiler and the headers of `node-api-headers`.
 *
 *   node scripts/build-native.mjs                              build for this machine
 *   node scripts/build-native.mjs --install                    the same, but never fail an installation
 *   node scripts/build-native.mjs --self-test                  the same, and native/build/self-test, which tests the kernels alone
 *   node scripts/build-native.mjs --target aarch64-linux-gnu   cross-compile into native/build/aarch64, self-test included
 */
import { execFile, execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = fileURLToPath(new URL('..', import.meta.url));
const native = join(root, 'native');
const args = process.argv.slice(2);
const target = args.includes('--target') ? args[args.indexOf('--target') + 1] : null;
const installing = args.includes('--install');
const isTesting = target !== null || args.includes('--self-test');

const isaFlags = {
  x64: {
    'avx2.cc': ['-mavx2', '-mfma', '-mf16c'],
    'avx512.cc': [
      '-mavx512f',
      '-mavx512bw',
      '-mavx512vl',
      '-mavx512dq',
      '-mavx512vnni',
      '-mfma',
      '-mprefer-vector-width=512',
    ],
  },
  arm64: { 'neon.cc': ['-march=armv8.2-a+dotprod'] },
};

function findCompiler() {
  const names = target === null ? [process.env.CXX, 'c++', 'g++', 'clang++'] : [`${target}-g++`];
  for (const name of names) {
    if (!name) continue;
    try {
      execFileSync(name, ['--version'], { stdio: 'ignore' });
      return name;
    } catch {}
  }
  return null;
}

/** Newest change of anything a unit may include. */
function newestHeader() {
  const files = readdirSync(native).filter((file) => file.endsWith('.h'));
  return Math.max(
    statSync(fileURLToPath(import.meta.url)).mtimeMs,
    ...files.map((file) => statSync(join(native, file)).mtimeMs),
  );
}

async function build() {
  const compiler = findCompiler();
  if (compiler === null)
    throw new Error(target === null ? 'no C++ compiler was found' : `no ${target}-g++ was found`);
  const arch = target === null ? process.arch : target.startsWith('aarch64') ? 'arm64' : 'x64';
  const out = join(native, 'build', target === null ? '' : 'aarch64');
  mkdirSync(out, { recursive: true });
  const include = createRequire(import.meta.url)('node-api-headers').include_dir;
  const common = [
    '-std=c++20',
    '-O3',
    '-fPIC',
    '-fvisibility=hidden',
    '-fno-math-errno',
    '-ffp-contract=off',
    '-DNAPI_VERSION=8',
    '-DNODE_GYP_MODULE_NAME=copse',
    `-I${include}`,
    '-Wall',
    '-pthread',
  ];
  const sources = readdirSync(native).filter(
    (file) => file.endsWith('.cc') && (isTesting || file !== 'self_test.cc'),
  );
  const header = newestHeader();
  const jobs = sources.map((file) => {
    const object = join(out, file.replace(/\.cc$/, '.o'));
    const flags = [...common, ...(isaFlags[arch]?.[file] ?? [])];
    const stamp = `${object}.flags`;
    const key = `${compiler} ${flags.join(' ')}`;
    const isFresh =
      existsSync(object) &&
      existsSync(stamp) &&
      readFileSync(stamp, 'utf8') === key &&
      statSync(object).mtimeMs > Math.max(header, statSync(join(native, file)).mtimeMs);
    return { file, object, flags, stamp, key, isFresh };
  });
  const stale = jobs.filter(({ isFresh }) => !isFresh);
  await inParallel(stale, async ({ file, object, flags, stamp, key }) => {
    await compileTo(object, compiler, [...flags, '-c', join(native, file)]);
    writeFileSync(stamp, key);
  });
  const addon = join(out, 'copse.node');
  const objects = jobs.filter(({ file }) => file !== 'self_test.cc').map(({ object }) => object);
  const changed = (file) => statSync(file).mtimeMs;
  if (!existsSync(addon) || objects.some((object) => changed(object) > changed(addon))) {
    const shared =
      process.platform === 'darwin' && target === null
        ? ['-dynamiclib', '-undefined', 'dynamic_lookup']
        : ['-shared'];
    await compileTo(addon, compiler, [...shared, '-pthread', ...objects]);
  }
  const selfTest = jobs.find(({ file }) => file === 'self_test.cc');
  if (selfTest !== undefined) {
    const parts = objects.filter((object) => !object.endsWith('addon.o'));
    const how = target === null ? [] : ['-static'];
    await compileTo(join(out, 'self-test'), compiler, [...how, '-pthread', selfTest.object, ...parts]);
  }
  return { addon, compiled: stale.length };
}

/** Another build may run at the same time, and processes may have the old file mapped: a file is complete or not there. */
async function compileTo(file, compiler, flags) {
  const unfinished = `${file}.${process.pid}`;
  await promisify(execFile)(compiler, [...flags, '-o', unfinished]);
  renameSync(unfinished, file);
}

async function inParallel(items, run) {
  const queue = [...items];
  const worker = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await run(item);
  };
  await Promise.all(Array.from({ length: Math.max(1, availableParallelism()) }, worker));
}

try {
  const { addon, compiled } = await build();
  if (compiled > 0) console.log(`native kernels: built ${addon.slice(dirname(root).length)}`);
} catch (error) {
  const reason = `native kernels: not built (${String(error.message).split('\n')[0]})`;
  if (!installing) {
    console.error(error.stderr ?? error.message);
    process.exitCode = 1;
  } else
    console.log(
      `${reason}; the slow reference back-end will run until \`npm run native\` succeeds with a C++20 compiler.`,
    );
}
