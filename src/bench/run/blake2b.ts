/**
 * BLAKE2b (RFC 7693) without a key, for digests of any length up to 64 bytes. Node's own offers 64 bytes only, and a shorter
 * digest is another function, not a prefix. Used for salts of a few bytes, so clarity goes before speed.
 */
import { assert } from '../../util/index.ts';

const mask = (1n << 64n) - 1n;
const blockBytes = 128;

const iv = [
  0x6a09e667f3bcc908n,
  0xbb67ae8584caa73bn,
  0x3c6ef372fe94f82bn,
  0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n,
  0x9b05688c2b3e6c1fn,
  0x1f83d9abfb41bd6bn,
  0x5be0cd19137e2179n,
] as const;

/** Which message word each half of a mixing step takes, a round a line, hexadecimal. */
const schedule = [
  '0123456789abcdef',
  'ea489fd61c02b753',
  'b8c052fdae367194',
  '7931dcbe265a40f8',
  '905724afe1bc683d',
  '2c6a0b834d75fe19',
  'c51fed4a0763928b',
  'db7ec13950f4862a',
  '6fe9b308c2d714a5',
  'a2847615fb9e3cd0',
] as const;

/** The four columns, then the four diagonals. */
const steps = ['048c', '159d', '26ae', '37bf', '05af', '16bc', '278d', '349e'].map((step) =>
  Array.from(step, (digit) => Number.parseInt(digit, 16)),
);

const rotate = (x: bigint, bits: bigint): bigint => ((x >> bits) | (x << (64n - bits))) & mask;

function mix(v: bigint[], step: readonly number[], x: bigint, y: bigint): void {
  const [a, b, c, d] = step as [number, number, number, number];
  const at = (i: number): bigint => v[i] as bigint;
  for (const [word, first, second] of [
    [x, 32n, 24n],
    [y, 16n, 63n],
  ] as const) {
    v[a] = (at(a) + at(b) + word) & mask;
    v[d] = rotate(at(d) ^ at(a), first);
    v[c] = (at(c) + at(d)) & mask;
    v[b] = rotate(at(b) ^ at(c), second);
  }
}

function compress(h: bigint[], block: DataView, bytesSoFar: bigint, isLast: boolean): void {
  const v = [...h, ...iv];
  v[12] = (v[12] as bigint) ^ bytesSoFar;
  if (isLast) v[14] = (v[14] as bigint) ^ mask;
  for (let round = 0; round < 12; round++) {
    const words = Array.from(schedule[round % schedule.length] as string, (digit) =>
      block.getBigUint64(8 * Number.parseInt(digit, 16), true),
    );
    for (const [i, step] of steps.entries()) mix(v, step, words[2 * i] as bigint, words[2 * i + 1] as bigint);
  }
  for (let i = 0; i < 8; i++) h[i] = (h[i] as bigint) ^ (v[i] as bigint) ^ (v[i + 8] as bigint);
}

/** Hexadecimal digest of the text's UTF-8 bytes. */
export function blake2bHex(text: string, digestBytes: number): string {
  assert(digestBytes >= 1 && digestBytes <= 64, `a digest of ${digestBytes} bytes`);
  const input = new TextEncoder().encode(text);
  const h: bigint[] = [...iv];
  h[0] = (h[0] as bigint) ^ 0x01010000n ^ BigInt(digestBytes);
  const blocks = Math.max(1, Math.ceil(input.length / blockBytes));
  for (let i = 0; i < blocks; i++) {
    const block = new Uint8Array(blockBytes);
    block.set(input.subarray(i * blockBytes, (i + 1) * blockBytes));
    const bytesSoFar = BigInt(Math.min(input.length, (i + 1) * blockBytes));
    compress(h, new DataView(block.buffer), bytesSoFar, i === blocks - 1);
  }
  const out = new DataView(new ArrayBuffer(64));
  for (const [i, word] of h.entries()) out.setBigUint64(8 * i, word, true);
  return Buffer.from(out.buffer, 0, digestBytes).toString('hex');
}
