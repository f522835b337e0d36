export {
  bf16Decode,
  bf16Encode,
  bf16ToF32,
  f16Decode,
  f16Encode,
  f16ToF32,
  f32ToBf16,
  f32ToF16,
} from './float.ts';
export { e4m3Decode, e4m3Encode, e4m3Max } from './fp8.ts';
export {
  absMax,
  dequantizeNvfp4,
  e2m1Encode,
  e2m1Values,
  type Nvfp4,
  nvfp4Block,
  type QuantizeOptions,
  quantizeActivationsNvfp4,
  quantizeNvfp4,
  type ScaleChoice,
  tensorScale,
} from './nvfp4.ts';
export { packTiles, tileBytes, tiledBytes, tileRows, unpackTiles } from './tile.ts';
