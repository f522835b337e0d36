/**
 * Counter-based random numbers: the number for (seed, position) is a pure function of both, whatever else runs.
 * Two rounds of the 32-bit finalizer of MurmurHash3 over each half, mixed with both inputs, give 53 bits.
 */

function mix(x: number): number {
  let h = x >>> 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Uniform in [0, 1). */
export function uniform(seed: number, position: number): number {
  const a = mix(seed ^ 0x9e3779b9);
  const b = mix(Math.imul(position, 0x27d4eb2f) ^ a);
  const high = mix(b ^ Math.imul(a, 0x165667b1));
  const low = mix(high ^ mix(position + 0x61c88647) ^ a);
  return ((high >>> 5) * 67_108_864 + (low >>> 6)) / 9_007_199_254_740_992;
}
