/**
 * 4-bit floats with block scales. ModelOpt: `weight` U8 (element 2i in the low nibble), `weight_scale`, `weight_scale_2`.
 * compressed-tensors: `weight_packed`, and global scales that are divisors. Blocks of 16 are what the kernels read; MXFP4 and
 * NVFP4 in blocks of 32 are read as values.
 */
import { dequantizeNvfp4, e2m1Values, e4m3Decode, nvfp4Block } from '../../dtypes/index.ts';
import type { Checkpoint } from '../checkpoint.ts';
import {
  expectTensor,
  hasShape,
  type Layout,
  once,
  optionalScalar,
  positiveScalar,
  present,
  readScales,
  type StoredWeight,
} from './layout.ts';

const codeDtype = new Set(['U8']);
const e4m3 = new Set(['F8_E4M3']);
const wideBlock = 32;

interface Names {
  readonly codes: string;
  readonly scales: string;
  readonly global: string;
  readonly input: string;
  /** compressed-tensors stores 1 / scale. */
  readonly inverse: boolean;
}

function describe(ck: Checkpoint, names: Names, [out, input]: readonly [number, number]): StoredWeight {
  const { codes, scales, global } = names;
  expectTensor(ck, codes, codeDtype, [out, input / 2]);
  const dtype = ck.tensors.get(scales)?.dtype;
  if (input % wideBlock === 0 && hasShape(ck, scales, [out, input / wideBlock]) && dtype !== undefined) {
    if (dtype === 'U8' || dtype === 'F8_E8M0') return wide(ck, names, input, 'MXFP4');
    if (dtype === 'F8_E4M3') return wide(ck, names, input, 'NVFP4 in blocks of 32');
  }
  expectTensor(ck, scales, e4m3, [out, input / nvfp4Block]);
  const own = (value: number): number => (names.inverse ? Math.fround(1 / value) : value);
  const inputScale = optionalScalar(ck, names.input);
  const scale2 = own(positiveScalar(ck, global));
  return {
    kind: 'nvfp4',
    codes,
    scales,
    scale2,
    inputScale: inputScale === null ? null : own(inputScale),
    uses: [codes, scales, global, ...present(ck, names.input)],
    rows: ({ from, count }) => {
      const part = (per: number) => ({ from: (from * input) / per, bytes: (count * input) / per });
      return dequantizeNvfp4({
        codes: ck.read(codes, part(2)),
        scales: ck.read(scales, part(nvfp4Block)),
        scale2,
      });
    },
  };
}

function wide(ck: Checkpoint, names: Names, input: number, format: string): StoredWeight {
  const isMx = format === 'MXFP4';
  const global = isMx ? 1 : positiveScalar(ck, names.global);
  const scale2 = names.inverse ? 1 / global : global;
  const scales = once(() =>
    isMx
      ? readScales(ck, names.scales)
      : Float32Array.from(ck.read(names.scales), (code) => scale2 * (e4m3Decode[code] as number)),
  );
  return {
    kind: 'values',
    format,
    uses: [names.codes, names.scales, ...present(ck, names.input, ...(isMx ? [] : [names.global]))],
    rows: ({ from, count }) => {
      const codes = ck.read(names.codes, { from: (from * input) / 2, bytes: (count * input) / 2 });
      const first = (from * input) / wideBlock;
      return Float32Array.from({ length: count * input }, (_, i) => {
        const code = ((codes[i >> 1] as number) >> (4 * (i & 1))) & 15;
        return (e2m1Values[code] as number) * (scales()[first + Math.floor(i / wideBlock)] as number);
      });
    },
  };
}

export const modelOptNvfp4: Layout = {
  describe: (ck, stem, shape) =>
    ck.tensors.get(`${stem}.weight`)?.dtype !== 'U8'
      ? null
      : describe(
          ck,
          {
            codes: `${stem}.weight`,
            scales: `${stem}.weight_scale`,
            global: `${stem}.weight_scale_2`,
            input: `${stem}.input_scale`,
            inverse: false,
          },
          shape,
        ),
};

export const packedNvfp4: Layout = {
  describe: (ck, stem, shape) =>
    ck.tensors.get(`${stem}.weight_packed`)?.dtype !== 'U8'
      ? null
      : describe(
          ck,
          {
            codes: `${stem}.weight_packed`,
            scales: `${stem}.weight_scale`,
            global: `${stem}.weight_global_scale`,
            input: `${stem}.input_global_scale`,
            inverse: true,
          },
          shape,
        ),
};
