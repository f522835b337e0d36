/**
 * The layouts that quantized checkpoints are published in, made from plain values: the tensors of one matrix, and the values they
 * mean. Written from the formats' descriptions, on its own: it shares no code with the readers.
 */
import type { TestTensor } from './safetensors.ts';

export interface Made {
  /** By the end of the name behind the weight's stem, e.g. `.weight_scale`. */
  readonly tensors: Readonly<Record<string, TestTensor>>;
  /** What they mean, [out, in]. */
  readonly values: Float32Array;
}

export interface LayoutMaker {
  readonly name: string;
  /** 'kept': the engine folder has the same values; 'requantized': they become NVFP4. */
  readonly packing: 'kept' | 'requantized';
  readonly quantization: Readonly<Record<string, unknown>>;
  make(values: Float32Array, shape: readonly [number, number]): Made;
}

const f32 = (shape: readonly number[], values: ArrayLike<number>): TestTensor => ({
  dtype: 'F32',
  shape,
  bytes: new Uint8Array(Float32Array.from(values).buffer),
});
const words = (shape: readonly number[], values: Int32Array): TestTensor => ({
  dtype: 'I32',
  shape,
  bytes: new Uint8Array(values.buffer),
});

/** E4M3: sign, 4 bits of exponent (bias 7), 3 of mantissa. Positive values by code, and the nearest code of a value. */
const e4m3 = Float64Array.from({ length: 127 }, (_, code) =>
  code < 8 ? (code / 8) * 2 ** -6 : (1 + (code & 7) / 8) * 2 ** ((code >> 3) - 7),
);
function nearest(table: Float64Array, value: number): number {
  let best = 0;
  for (let i = 1; i < table.length; i++)
    if (Math.abs((table[i] as number) - value) < Math.abs((table[best] as number) - value)) best = i;
  return best;
}
const e4m3Cache = new Map<number, number>();
function e4m3Code(value: number): number {
  const key = Math.fround(value);
  const known = e4m3Cache.get(key);
  if (known !== undefined) return known;
  const code = nearest(e4m3, Math.abs(value)) | (value < 0 ? 128 : 0);
  e4m3Cache.set(key, code);
  return code;
}
const e4m3Value = (code: number): number => (code & 128 ? -1 : 1) * (e4m3[code & 127] as number);

const ceil = (a: number, b: number): number => Math.ceil(a / b);

/** Scale of each block of `rows` x `columns`: the largest value over `top`. */
function blockScales(
  values: Float32Array,
  [out, input]: readonly [number, number],
  [rows, columns]: readonly [number, number],
  top: number,
): Float32Array {
  const across = ceil(input, columns);
  const scales = new Float32Array(ceil(out, rows) * across);
  values.forEach((value, i) => {
    const at = Math.floor(Math.floor(i / input) / rows) * across + Math.floor((i % input) / columns);
    scales[at] = Math.max(scales[at] as number, Math.abs(value) / top);
  });
  return scales.map((scale) => scale || 1);
}

type Edges = (shape: readonly [number, number]) => readonly [number, number];

function fp8(
  name: string,
  edges: Edges,
  how: {
    scale: string;
    shape: (s: readonly number[]) => readonly number[];
    power?: boolean;
    config?: object;
  },
): LayoutMaker {
  return {
    name,
    packing: 'kept',
    quantization: { quant_method: 'fp8', ...how.config },
    make(values, shape) {
      const [out, input] = shape;
      const block = edges(shape);
      const raw = blockScales(values, shape, block, 448);
      const scales = how.power ? raw.map((scale) => 2 ** Math.ceil(Math.log2(scale))) : raw;
      const across = ceil(input, block[1]);
      const scaleOf = (i: number): number =>
        scales[
          Math.floor(Math.floor(i / input) / block[0]) * across + Math.floor((i % input) / block[1])
        ] as number;
      const codes = Uint8Array.from(values, (value, i) => e4m3Code(value / scaleOf(i)));
      const stored: TestTensor = how.power
        ? {
            dtype: 'F8_E8M0',
            shape: how.shape([ceil(out, block[0]), across]),
            bytes: Uint8Array.from(scales, (scale) => Math.log2(scale) + 127),
          }
        : f32(how.shape([ceil(out, block[0]), across]), scales);
      return {
        tensors: { '.weight': { dtype: 'F8_E4M3', shape, bytes: codes }, [how.scale]: stored },
        values: Float32Array.from(codes, (code, i) => e4m3Value(code) * scaleOf(i)),
      };
    },
  };
}

/** Unsigned 4-bit codes, zero points and scales of groups of 64 inputs. */
function int4(
  values: Float32Array,
  [out, input]: readonly [number, number],
  zeroOf: (group: number) => number,
) {
  const group = 64;
  const groups = ceil(input, group);
  const scales = blockScales(values, [out, input], [1, group], 6);
  const at = (i: number): number => Math.floor(i / input) * groups + Math.floor((i % input) / group);
  const codes = Uint8Array.from(values, (value, i) =>
    Math.min(15, Math.max(0, Math.round(value / (scales[at(i)] as number)) + zeroOf(at(i)))),
  );
  const meant = Float32Array.from(codes, (code, i) => (code - zeroOf(at(i))) * (scales[at(i)] as number));
  return { groups, scales, codes, values: meant };
}

const transposed = (scales: Float32Array, out: number, groups: number): Float32Array =>
  Float32Array.from(
    { length: scales.length },
    (_, i) => scales[(i % out) * groups + Math.floor(i / out)] as number,
  );

const zeroPoint = (group: number): number => 7 + (group % 3);

const packQuantized = (name: string, zero: ((group: number) => number) | null): LayoutMaker => ({
  name,
  packing: 'requantized',
  quantization: { quant_method: 'compressed-tensors', format: 'pack-quantized' },
  make(values, shape) {
    const [out, input] = shape;
    const q = int4(values, shape, zero ?? (() => 8));
    const packed = new Int32Array((out * input) / 8);
    q.codes.forEach((code, i) => {
      packed[i >> 3] = (packed[i >> 3] as number) | (code << (4 * (i & 7)));
    });
    const zeros = new Int32Array(ceil(out, 8) * q.groups);
    for (let row = 0; row < out; row++)
      for (let g = 0; g < q.groups; g++) {
        const at = (row >> 3) * q.groups + g;
        zeros[at] = (zeros[at] as number) | ((zero ?? (() => 8))(row * q.groups + g) << (4 * (row & 7)));
      }
    return {
      values: q.values,
      tensors: {
        '.weight_packed': words([out, input / 8], packed),
        '.weight_scale': f32([out, q.groups], q.scales),
        '.weight_shape': words([2], Int32Array.from(shape)),
        ...(zero === null ? {} : { '.weight_zero_point': words([ceil(out, 8), q.groups], zeros) }),
      },
    };
  },
});

const byWords = (name: 'GPTQ' | 'AWQ', quantization: Readonly<Record<string, unknown>>): LayoutMaker => ({
  name,
  packing: 'requantized',
  quantization,
  make(values, shape) {
    const [out, input] = shape;
    const q = int4(values, shape, zeroPoint);
    const order = [0, 4, 1, 5, 2, 6, 3, 7];
    const nibble = (row: number): number => (name === 'AWQ' ? (order[row & 7] as number) : row & 7);
    const packed = new Int32Array((out * input) / 8);
    q.codes.forEach((code, i) => {
      const [row, column] = [Math.floor(i / input), i % input];
      const at = name === 'AWQ' ? (column * out) / 8 + (row >> 3) : (column >> 3) * out + row;
      packed[at] = (packed[at] as number) | (code << (4 * (name === 'AWQ' ? nibble(row) : column & 7)));
    });
    const zeros = new Int32Array((q.groups * out) / 8);
    for (let row = 0; row < out; row++)
      for (let g = 0; g < q.groups; g++) {
        const stored = zeroPoint(row * q.groups + g) - (name === 'GPTQ' ? 1 : 0);
        const at = (g * out) / 8 + (row >> 3);
        zeros[at] = (zeros[at] as number) | (stored << (4 * nibble(row)));
      }
    const indices = Int32Array.from({ length: input }, (_, i) => Math.floor(i / 64));
    return {
      values: q.values,
      tensors: {
        '.qweight': words(name === 'AWQ' ? [input, out / 8] : [input / 8, out], packed),
        '.qzeros': words([q.groups, out / 8], zeros),
        '.scales': f32([q.groups, out], transposed(q.scales, out, q.groups)),
        ...(name === 'GPTQ' ? { '.g_idx': words([input], indices) } : {}),
      },
    };
  },
});

const e2m1 = Float64Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6);

const nvfp4 = (name: string, kind: 'packed' | 'awq'): LayoutMaker => ({
  name,
  packing: kind === 'awq' ? 'requantized' : 'kept',
  quantization: { quant_method: kind === 'awq' ? 'modelopt' : 'compressed-tensors' },
  make(values, shape) {
    const [out, input] = shape;
    const columns = Float32Array.from({ length: input }, (_, i) => (kind === 'awq' ? 0.5 + (i % 4) / 4 : 1));
    const scaled = values.map((value, i) => value / (columns[i % input] as number));
    const scale2 = Math.max(...blockScales(scaled, shape, [1, 16], 6)) / 448;
    const scales = Uint8Array.from(blockScales(scaled, shape, [1, 16], 6), (scale) =>
      e4m3Code(scale / scale2),
    );
    const codes = new Uint8Array((out * input) / 2);
    const meant = Float32Array.from(scaled, (value, i) => {
      const scale = e4m3Value(scales[Math.floor(i / 16)] as number) * scale2;
      const code = nearest(e2m1, Math.abs(value) / (scale || 1)) | (value < 0 ? 8 : 0);
      codes[i >> 1] = (codes[i >> 1] as number) | (code << (4 * (i & 1)));
      return (code & 8 ? -1 : 1) * (e2m1[code & 7] as number) * scale * (columns[i % input] as number);
    });
    const block: TestTensor = { dtype: 'F8_E4M3', shape: [out, input / 16], bytes: scales };
    const packed: TestTensor = { dtype: 'U8', shape: [out, input / 2], bytes: codes };
    const tensors: Record<string, TestTensor> =
      kind === 'packed'
        ? { '.weight_packed': packed, '.weight_global_scale': f32([1], [1 / scale2]) }
        : {
            '.weight': packed,
            '.weight_scale_2': f32([], [scale2]),
            '.pre_quant_scale': f32([input], columns),
          };
    return { values: meant, tensors: { ...tensors, '.weight_scale': block } };
  },
});

export const layoutMakers: readonly LayoutMaker[] = [
  fp8('FP8 per tensor', (shape) => shape, { scale: '.weight_scale', shape: () => [] }),
  fp8('FP8 per channel', ([, input]) => [1, input], { scale: '.weight_scale', shape: (s) => s }),
  fp8('FP8 in blocks of 128', () => [128, 128], { scale: '.weight_scale_inv', shape: (s) => s }),
  fp8('FP8 in blocks of 64', () => [64, 64], {
    ...{ scale: '.weight_scale', shape: (s) => s },
    config: { weight_block_size: [64, 64] },
  }),
  fp8('FP8 in blocks of 128 with E8M0 scales', () => [128, 128], {
    ...{ scale: '.weight_scale_inv', shape: (s) => s, power: true },
  }),
  nvfp4('NVFP4 of compressed-tensors', 'packed'),
  nvfp4('NVFP4_AWQ of ModelOpt', 'awq'),
  packQuantized('INT4 pack-quantized', null),
  packQuantized('INT4 pack-quantized with zero points', zeroPoint),
  byWords('GPTQ', { quant_method: 'gptq', bits: 4, group_size: 64 }),
  byWords('AWQ', { quant_method: 'awq', bits: 4, group_size: 64, version: 'gemm' }),
];
