/**
 * E4M3 codes times scales: one per tensor, one per output row ([out] or [out, 1]), one per block of both dimensions, or one per
 * group of a row. `weight_scale_inv` multiplies like `weight_scale`, whatever its name says. Scales may be powers of two (E8M0).
 */
import { e4m3Decode } from '../../dtypes/index.ts';
import { UserError } from '../../util/index.ts';
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
  scaleDtypes,
  unexpectedShape,
} from './layout.ts';

const e4m3 = new Set(['F8_E4M3']);

/** Columns per scale that kernels know, and edges of blocks that are tried in this order when the config does not tell. */
export const fp8Groups = [128, 64, 32] as const;

/** Rows and columns that share a scale. */
type Block = readonly [rows: number, columns: number];

export const fp8: Layout = {
  describe(ck, stem, shape) {
    const tensor = `${stem}.weight`;
    if (ck.tensors.get(tensor)?.dtype !== 'F8_E4M3') return null;
    expectTensor(ck, tensor, e4m3, shape);
    const scales = ck.tensors.has(`${stem}.weight_scale_inv`)
      ? `${stem}.weight_scale_inv`
      : `${stem}.weight_scale`;
    const input = `${stem}.input_scale`;
    const uses = [tensor, scales, ...present(ck, input)];
    const listed = ck.tensors.get(scales);
    if (listed === undefined || (listed.shape.every((dim) => dim === 1) && !isExponent(listed.dtype))) {
      const scale = positiveScalar(ck, scales);
      const rows = (range: { from: number; count: number }) =>
        codesOf(ck, tensor, shape[1], range).map((code) => code * scale);
      return { kind: 'fp8', tensor, scale, inputScale: optionalScalar(ck, input), uses, rows };
    }
    if (!scaleDtypes.has(listed.dtype)) throw unexpectedShape(ck, scales, [...scaleDtypes].join('/'));
    return scaled(ck, { tensor, scales, uses }, shape, blockOf(ck, scales, shape));
  },
};

const isExponent = (dtype: string): boolean => dtype === 'F8_E8M0' || dtype === 'U8';

function codesOf(
  ck: Checkpoint,
  tensor: string,
  input: number,
  { from, count }: { from: number; count: number },
): Float32Array {
  const codes = ck.read(tensor, { from: from * input, bytes: count * input });
  return Float32Array.from(codes, (code) => e4m3Decode[code] as number);
}

function scaled(
  ck: Checkpoint,
  { tensor, scales: name, uses }: { tensor: string; scales: string; uses: readonly string[] },
  [out, input]: readonly [number, number],
  [blockRows, group]: Block,
): StoredWeight {
  const perRow = Math.ceil(input / group);
  const scales = once(() => {
    const stored = readScales(ck, name);
    return Float32Array.from({ length: out * perRow }, (_, i) => {
      const row = Math.floor(i / perRow);
      return stored[Math.floor(row / blockRows) * perRow + (i % perRow)] as number;
    });
  });
  return {
    kind: 'fp8-scaled',
    tensor,
    group,
    uses,
    scales,
    rows: (range) => {
      const values = codesOf(ck, tensor, input, range);
      const all = scales();
      for (let row = 0; row < range.count; row++)
        for (let i = 0; i < input; i++)
          (values[row * input + i] as number) *= all[
            (range.from + row) * perRow + Math.floor(i / group)
          ] as number;
      return values;
    },
  };
}

/** Rows and columns per scale, by the shape of the scales. */
function blockOf(ck: Checkpoint, scales: string, [out, input]: readonly [number, number]): Block {
  const fits = ([rows, columns]: Block): boolean =>
    hasShape(ck, scales, [Math.ceil(out / rows), Math.ceil(input / columns)]);
  if (hasShape(ck, scales, [out]) || hasShape(ck, scales, [out, 1])) return [1, input];
  const declared = ck.quantization?.weight_block_size;
  const known = (columns: number): boolean =>
    columns >= input || fp8Groups.some((group) => group === columns);
  if (
    Array.isArray(declared) &&
    declared.length === 2 &&
    declared.every((n) => Number.isSafeInteger(n) && n > 0)
  ) {
    const block = declared as unknown as Block;
    if (!known(block[1]))
      throw new UserError(
        'bad_checkpoint',
        `weight_block_size is [${block.join(', ')}], known are blocks of ${fp8Groups.join(', ')} columns`,
        { param: 'weight_block_size', hint: 'Use the bf16 checkpoint, or one in blocks of 128.' },
      );
    if (fits(block)) return block;
  }
  for (const edge of fp8Groups) if (fits([edge, edge])) return [edge, edge];
  for (const group of fp8Groups) if (fits([1, group])) return [1, group];
  throw unexpectedShape(
    ck,
    scales,
    `[1], [${out}, 1], [${Math.ceil(out / 128)}, ${Math.ceil(input / 128)}] (blocks of 128) or the like`,
  );
}
