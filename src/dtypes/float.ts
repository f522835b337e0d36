/** bf16 and f16 in and out of fp32, by bits; encoding rounds to nearest, ties to even. */

const scratchF32 = new Float32Array(1);
const scratchU32 = new Uint32Array(scratchF32.buffer);

export function bf16ToF32(src: Uint16Array, dst: Float32Array): void {
  const bits = new Uint32Array(dst.buffer, dst.byteOffset, dst.length);
  for (let i = 0; i < src.length; i++) bits[i] = (src[i] as number) << 16;
}

export function bf16Encode(value: number): number {
  scratchF32[0] = value;
  const bits = scratchU32[0] as number;
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

export function bf16Decode(code: number): number {
  scratchU32[0] = code << 16;
  return scratchF32[0] as number;
}

export function f32ToBf16(src: Float32Array, dst: Uint16Array): void {
  for (let i = 0; i < src.length; i++) dst[i] = bf16Encode(src[i] as number);
}

export function f16Decode(code: number): number {
  const sign = code & 0x8000 ? -1 : 1;
  const exponent = (code >> 10) & 31;
  const mantissa = code & 1023;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 31) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

export function f16ToF32(src: Uint16Array, dst: Float32Array): void {
  for (let i = 0; i < src.length; i++) dst[i] = f16Decode(src[i] as number);
}

/** Values above 65504 that round up become infinity, as in IEEE 754. */
export function f16Encode(value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  if (Number.isNaN(size)) return sign | 0x7e00;
  if (size >= 65520) return sign | 0x7c00;
  const exponent = Math.max(-14, Math.floor(Math.log2(size === 0 ? 2 ** -30 : size)));
  const steps = roundTiesToEven(size * 2 ** (10 - exponent));
  // 2048 steps carry into the next exponent, 1023 and below are subnormal: the plain sum covers both.
  return sign | (steps < 1024 ? steps : ((exponent + 14) << 10) + steps);
}

export function f32ToF16(src: Float32Array, dst: Uint16Array): void {
  for (let i = 0; i < src.length; i++) dst[i] = f16Encode(src[i] as number);
}

export function roundTiesToEven(x: number): number {
  const low = Math.floor(x);
  const rest = x - low;
  if (rest !== 0.5) return rest < 0.5 ? low : low + 1;
  return low % 2 === 0 ? low : low + 1;
}
