/**
 * How fast the kernels are on this machine: NVFP4 linear by rows against the streaming read bandwidth, bf16 linear, paged
 * attention, the delta rule and the cost of a call. Run: npx tsx perf/kernels.ts [threads] [--quick]. The last line is JSON.
 *
 * Every figure is the best of several passes: other load only ever makes a pass slower.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { availableParallelism, cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Backend, type Batch, type Buffer, openBackend } from '../src/backends/index.ts';

const args = process.argv.slice(2);
const isQuick = args.includes('--quick');
const threads = Number(args.find((arg) => /^\d+$/.test(arg)) ?? availableParallelism());
const seconds = isQuick ? 0.3 : 1.5;

interface Figure {
  readonly name: string;
  readonly ms: number;
  readonly gbPerSecond?: number;
  readonly gmacPerSecond?: number;
}

function streamBandwidth(): number | null {
  const folder = join(tmpdir(), 'copse-perf');
  mkdirSync(folder, { recursive: true });
  const source = fileURLToPath(new URL('stream.cc', import.meta.url));
  const binary = join(folder, 'stream');
  try {
    const flags = ['-O3', '-march=native', '-pthread', '-Wno-psabi'];
    execFileSync(process.env.CXX ?? 'c++', [...flags, source, '-o', binary]);
    return Number(execFileSync(binary, [String(threads)], { encoding: 'utf8' }));
  } catch {
    return null;
  }
}

/** Best milliseconds of one call. */
function best(run: () => void): number {
  run();
  let fastest = Number.POSITIVE_INFINITY;
  const end = performance.now() + seconds * 1000;
  for (let passes = 0; passes < 3 || (performance.now() < end && passes < 2000); passes++) {
    const start = performance.now();
    run();
    fastest = Math.min(fastest, performance.now() - start);
  }
  return fastest;
}

let seed = 1;
function random(): number {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 31 - 1;
}

const randoms = (count: number): Float32Array => Float32Array.from({ length: count }, random);

/** Random codes; scales between 0.5 and 15. */
function randomTiles(outDim: number, inDim: number): Uint8Array {
  const bytes = new Uint8Array((outDim / 16) * (inDim / 16) * 144);
  const words = new Uint32Array(bytes.buffer);
  for (let i = 0; i < words.length; i++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    words[i] = seed ^ (seed >>> 13);
  }
  for (let at = 128; at < bytes.length; at += 144)
    for (let r = 0; r < 16; r++) bytes[at + r] = 0x30 + ((bytes[at + r] as number) % 40);
  return bytes;
}

function linearFigures(backend: Backend): Figure[] {
  const [outDim, inDim] = [368_640, 2048];
  const tiles = randomTiles(outDim, inDim);
  const weight = backend.weightFrom({ format: 'nvfp4-tile', outDim, inDim, scale: 0.01 }, tiles);
  const maxRows = isQuick ? 12 : 64;
  const x = backend.upload(randoms(maxRows * inDim));
  const out = backend.alloc(maxRows * outDim);
  // In rounds over all row counts, so that other load meets each of them alike.
  const counts = [1, 2, 3, 4, 6, 8, 12, 16, 64].filter((rows) => rows <= maxRows);
  const fastest = counts.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < (isQuick ? 4 : 12); round++)
    for (const [i, rows] of counts.entries()) {
      const start = performance.now();
      backend.linear(out, weight, x, rows);
      fastest[i] = Math.min(fastest[i] as number, performance.now() - start);
    }
  return counts.map((rows, i) => {
    const ms = fastest[i] as number;
    return {
      name: `nvfp4 ${outDim} x ${inDim}, rows ${rows}`,
      ms,
      gbPerSecond: tiles.length / ms / 1e6,
      gmacPerSecond: (outDim * inDim * rows) / ms / 1e6,
    };
  });
}

function denseFigures(backend: Backend): Figure[] {
  const [outDim, inDim] = [16_384, 2048];
  const bytes = new Uint8Array(new Uint16Array(outDim * inDim).fill(0x3c80).buffer);
  const weight = backend.weightFrom({ format: 'bf16', outDim, inDim, scale: 1 }, bytes);
  const x = backend.upload(randoms(64 * inDim));
  const out = backend.alloc(64 * outDim);
  return [1, 4, 64].map((rows) => {
    const ms = best(() => backend.linear(out, weight, x, rows));
    return {
      name: `bf16 ${outDim} x ${inDim}, rows ${rows}`,
      ms,
      gbPerSecond: bytes.length / ms / 1e6,
      gmacPerSecond: (outDim * inDim * rows) / ms / 1e6,
    };
  });
}

function chain(ctxLen: number, chainLen: number, pages: Int32Array): Batch {
  return {
    rows: chainLen,
    ids: new Int32Array(chainLen),
    positions: Int32Array.from({ length: chainLen }, (_, i) => ctxLen + i),
    segments: [
      { slot: 0, firstRow: 0, ctxLen, chainLen, pages, nodeParents: new Int32Array(0), nodeStart: 0 },
    ],
  };
}

function attentionFigures(backend: Backend, heads: number, kvHeads: number, headDim: number): Figure[] {
  const [pageTokens, tokens] = [32, 28_672];
  const pages = Int32Array.from({ length: tokens / pageTokens }, (_, i) => i);
  const shape = { layers: 1, kvHeads, headDim, pageTokens, pages: pages.length, slots: 1, maxNodes: 16 };
  const pool = backend.createKvPool({ dtype: 'fp8', ...shape });
  const k = backend.upload(randoms(512 * kvHeads * headDim));
  const scales = { kScale: 1, vScale: 1 };
  for (let from = 0; from < tokens; from += 512)
    backend.storeKv(pool, 0, { k, v: k, ...scales }, chain(from, 512, pages));
  const q = backend.upload(randoms(512 * heads * headDim));
  const out = backend.alloc(512 * heads * headDim);
  return [1, 8, 512].map((rows) => {
    const ctxLen = 27_000;
    const batch = chain(ctxLen, rows, pages);
    const ms = best(() => backend.attention(out, { q, pool, layer: 0, heads, ...scales }, batch));
    const seen = rows * ctxLen + (rows * (rows + 1)) / 2;
    return {
      name: `attention ${heads}/${kvHeads} heads of ${headDim}, fp8, ${ctxLen} tokens, rows ${rows}`,
      ms,
      gbPerSecond: (2 * kvHeads * headDim * ctxLen) / ms / 1e6,
      gmacPerSecond: (2 * heads * headDim * seen) / ms / 1e6,
    };
  });
}

function deltaFigures(backend: Backend, keyHeads: number, valueHeads: number, dim: number): Figure[] {
  const spec = { layers: 1, keyHeads, valueHeads, keyDim: dim, valueDim: dim, convKernel: 4, chunk: 32 };
  const pool = backend.createStatePool({ ...spec, hiddenDim: 0, slots: 1, maxNodes: 16, snapshots: 1 });
  const channels = (2 * keyHeads + valueHeads) * dim;
  const upload = (count: number): Buffer => backend.upload(randoms(count));
  const qkv = upload(512 * channels);
  const w = upload(channels * 4);
  const mixed = backend.alloc(512 * channels);
  const [b, a, aLog, dtBias] = [512 * valueHeads, 512 * valueHeads, valueHeads, valueHeads].map(upload) as [
    Buffer,
    Buffer,
    Buffer,
    Buffer,
  ];
  const out = backend.alloc(512 * valueHeads * dim);
  const name = `${keyHeads}/${valueHeads} heads of ${dim}`;
  return [1, 512].flatMap((rows) => {
    const batch = chain(64, rows, new Int32Array(0));
    // The same positions again and again: the state's content does not matter here.
    const delta = best(() => backend.deltaRule({ out, qkv, b, a, aLog, dtBias }, pool, 0, batch));
    const conv = best(() => backend.conv(mixed, qkv, w, pool, 0, batch));
    const perRow = valueHeads * dim * dim * 2;
    return [
      { name: `delta rule ${name}, rows ${rows}`, ms: delta, gmacPerSecond: (perRow * rows) / delta / 1e6 },
      { name: `conv ${channels} channels, rows ${rows}`, ms: conv },
    ];
  });
}

/** What a call costs beside its arithmetic: 1000 tiny ops in a row. */
function callFigures(backend: Backend): Figure[] {
  const x = backend.upload(randoms(256));
  const weight = backend.weightFrom(
    { format: 'nvfp4-tile', outDim: 256, inDim: 256, scale: 1 },
    randomTiles(256, 256),
  );
  const out = backend.alloc(256);
  const times = (run: () => void): number =>
    best(() => {
      for (let i = 0; i < 1000; i++) run();
    }) / 1000;
  return [
    { name: 'call: add of 16 values', ms: times(() => backend.add(x, out, 16)) },
    { name: 'call: nvfp4 256 x 256, one row', ms: times(() => backend.linear(out, weight, x, 1)) },
  ];
}

function print(figures: readonly Figure[]): void {
  for (const { name, ms, gbPerSecond, gmacPerSecond } of figures) {
    const number = (value: number | undefined, unit: string): string =>
      value === undefined ? '' : `${value.toFixed(1).padStart(8)} ${unit}`;
    console.log(
      `${name.padEnd(58)} ${ms.toFixed(4).padStart(10)} ms ${number(gbPerSecond, 'GB/s')} ${number(gmacPerSecond, 'GMAC/s')}`,
    );
  }
}

const backend = openBackend({ name: 'native', threads });
const stream = streamBandwidth();
console.log(`${cpus()[0]?.model ?? 'unknown CPU'}; ${backend.detail}`);
console.log(`streaming read: ${stream === null ? 'not measured, no compiler' : `${stream} GB/s`}`);
const figures: Figure[] = [];
for (const measure of [
  () => callFigures(backend),
  () => linearFigures(backend),
  () => denseFigures(backend),
  () => attentionFigures(backend, 4, 2, 64),
  () => attentionFigures(backend, 24, 4, 256),
  () => deltaFigures(backend, 4, 8, 64),
  () => deltaFigures(backend, 16, 48, 128),
]) {
  const found = measure();
  print(found);
  figures.push(...found);
}
console.log(
  JSON.stringify({
    cpu: cpus()[0]?.model,
    threads,
    backend: backend.detail,
    streamGbPerSecond: stream,
    figures,
  }),
);
backend.close();
