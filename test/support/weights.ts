/** Random weight matrices in every format. */
import {
  type Backend,
  isScaledFp8,
  scaledFp8Layout,
  type Weight,
  type WeightFormat,
} from '../../src/backends/index.ts';
import { e4m3Encode, f32ToBf16, packTiles, quantizeNvfp4 } from '../../src/dtypes/index.ts';
import { randomValues } from './rig.ts';

export function makeWeight(
  backend: Backend,
  format: WeightFormat,
  [outDim, inDim]: readonly [number, number],
  random: () => number,
): Weight {
  const values = randomValues(outDim * inDim, random);
  const spec = { format, outDim, inDim, scale: format === 'fp8' ? 0.37 : 1 };
  if (format === 'f32') return backend.weightFrom(spec, new Uint8Array(values.buffer));
  if (format === 'fp8')
    return backend.weightFrom(
      spec,
      Uint8Array.from(values, (x) => e4m3Encode(x * 40)),
    );
  if (isScaledFp8(format)) {
    const { bytes, offset } = scaledFp8Layout(format, [outDim, inDim]);
    const all = new Uint8Array(bytes);
    for (const [i, x] of values.entries()) all[i] = e4m3Encode(x * 40);
    const scales = new Float32Array(all.buffer, offset);
    for (const i of scales.keys()) scales[i] = 0.01 + 0.05 * random();
    return backend.weightFrom(spec, all);
  }
  if (format === 'bf16') {
    const halves = new Uint16Array(values.length);
    f32ToBf16(values, halves);
    return backend.weightFrom(spec, new Uint8Array(halves.buffer));
  }
  const { codes, scales, scale2 } = quantizeNvfp4(values, outDim, inDim);
  return backend.weightFrom({ ...spec, scale: scale2 }, packTiles(codes, scales, outDim, inDim));
}
