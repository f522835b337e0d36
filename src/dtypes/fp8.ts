/** E4M3FN: sign, 4 exponent bits with bias 7, 3 mantissa bits, no infinities, NaN = 0x7f and 0xff, largest value 448. */
import { roundTiesToEven } from './float.ts';

export const e4m3Max = 448;

const scratchF32 = new Float32Array(1);
const scratchU32 = new Uint32Array(scratchF32.buffer);

/** Value of each code. */
export const e4m3Decode: Float32Array = Float32Array.from({ length: 256 }, (_, code) => {
  const sign = code & 0x80 ? -1 : 1;
  const exponent = (code >> 3) & 15;
  const mantissa = code & 7;
  if (exponent === 15 && mantissa === 7) return Number.NaN;
  return exponent === 0 ? sign * mantissa * 2 ** -9 : sign * (1 + mantissa / 8) * 2 ** (exponent - 7);
});

/** Rounds to nearest, ties to even; saturates at 448; NaN becomes 0x7f. */
export function e4m3Encode(value: number): number {
  if (Number.isNaN(value)) return 0x7f;
  const sign = value < 0 || Object.is(value, -0) ? 0x80 : 0;
  const size = Math.min(Math.abs(value), e4m3Max);
  // A size that fp32 rounds up to the next power of two becomes that power here as well.
  scratchF32[0] = size;
  const exponent = Math.max(-6, ((scratchU32[0] as number) >>> 23) - 127);
  const steps = roundTiesToEven(size * 2 ** (3 - exponent));
  const code = steps < 8 ? steps : ((exponent + 6) << 3) + steps;
  return sign | Math.min(code, 0x7e);
}
