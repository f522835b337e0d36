/**
 * Integer weights, read as values: compressed-tensors `pack-quantized` and `int-quantized`, GPTQ and AWQ. All mean
 * (q - zero) * scale, and differ in what a 32-bit word holds.
 */
import { UserError } from '../../util/index.ts';
import type { Checkpoint } from '../checkpoint.ts';
import {
  expectTensor,
  hasShape,
  type Layout,
  once,
  plainDtypes,
  present,
  readPlain,
  type StoredWeight,
  unexpectedShape,
  wordsOf,
  wrong,
} from './layout.ts';

const words = new Set(['I32', 'U32']);
const bytes = new Set(['I8']);

/** What (q - zero) * scale needs, by output row and input column. */
interface Reader {
  readonly code: (row: number, column: number) => number;
  readonly zero: (row: number, group: number) => number;
  readonly scale: (row: number, group: number) => number;
  readonly groupOf: (column: number) => number;
}

function values(format: string, uses: readonly string[], input: number, open: () => Reader): StoredWeight {
  const reader = once(open);
  return {
    kind: 'values',
    format,
    uses,
    rows: ({ from, count }) => {
      const { code, zero, scale, groupOf } = reader();
      const all = new Float32Array(count * input);
      for (let r = 0; r < count; r++)
        for (let i = 0; i < input; i++) {
          const group = groupOf(i);
          all[r * input + i] = (code(from + r, i) - zero(from + r, group)) * scale(from + r, group);
        }
      return all;
    },
  };
}

/** Field `n` of a word of `bits`-wide fields. */
const field = (word: number, n: number, bits: number): number => (word >>> (n * bits)) & (2 ** bits - 1);

/** 4 or 8, when `shape` is one of words that hold `length` fields along `axis`. */
function bitsOf(ck: Checkpoint, name: string, length: number, other: number, axis: 0 | 1): number | null {
  const found = [4, 8].find((bits) => {
    const packed = Math.ceil((length * bits) / 32);
    return hasShape(ck, name, axis === 0 ? [packed, other] : [other, packed]);
  });
  return found ?? null;
}

/** The group of each column: in order, or as `indices` says (activation order). */
function groupsOf(ck: Checkpoint, indices: string, [input, groups]: readonly [number, number]) {
  const size = Math.ceil(input / groups);
  if (!ck.tensors.has(indices)) return (column: number): number => Math.floor(column / size);
  expectTensor(ck, indices, words, [input]);
  const list = wordsOf(ck, indices)();
  const bad = list.find((group) => group < 0 || group >= groups);
  if (bad !== undefined) throw wrong(indices, `contains ${bad}, expected groups from 0 to ${groups - 1}`);
  return (column: number): number => list[column] as number;
}

/** Groups of a [rows, groups] or [groups, rows] tensor of scales. */
function groupCount(ck: Checkpoint, name: string, rows: number, axis: 0 | 1): number {
  const tensor = ck.tensors.get(name);
  const groups = tensor?.shape[axis] ?? 0;
  if (tensor === undefined || tensor.shape[1 - axis] !== rows || groups < 1 || tensor.shape.length !== 2)
    throw unexpectedShape(ck, name, axis === 0 ? `[groups, ${rows}]` : `[${rows}, groups]`);
  expectTensor(ck, name, plainDtypes, tensor.shape);
  return groups;
}

/** `weight_packed` I32 [out, in/8]: field n of word j is column 8j + n, stored with an offset of half the range. */
export const packedIntegers: Layout = {
  describe(ck, stem, [out, input]) {
    const codes = `${stem}.weight_packed`;
    const dtype = ck.tensors.get(codes)?.dtype;
    if (dtype === undefined || !words.has(dtype)) return null;
    const bits = bitsOf(ck, codes, input, out, 1);
    if (bits === null) throw unexpectedShape(ck, codes, `I32 [${out}, ${Math.ceil(input / 8)}]`);
    const scales = `${stem}.weight_scale`;
    const groups = groupCount(ck, scales, out, 1);
    const zeros = `${stem}.weight_zero_point`;
    const perWord = 32 / bits;
    if (ck.tensors.has(zeros)) expectTensor(ck, zeros, words, [Math.ceil(out / perWord), groups]);
    const indices = `${stem}.weight_g_idx`;
    const uses = [codes, scales, ...present(ck, zeros, indices, `${stem}.weight_shape`)];
    return values(`INT${bits} pack-quantized`, uses, input, () => {
      const perRow = Math.ceil(input / perWord);
      const [packed, scale] = [wordsOf(ck, codes)(), readPlain(ck, scales)];
      const zero = ck.tensors.has(zeros) ? wordsOf(ck, zeros)() : null;
      const half = 2 ** (bits - 1);
      return {
        code: (r, c) => field(packed[r * perRow + Math.floor(c / perWord)] as number, c % perWord, bits),
        zero: (r, g) =>
          zero === null
            ? half
            : field(zero[Math.floor(r / perWord) * groups + g] as number, r % perWord, bits),
        scale: (r, g) => scale[r * groups + g] as number,
        groupOf: groupsOf(ck, indices, [input, groups]),
      };
    });
  },
};

/** `weight` I8 [out, in] with a scale per row. */
export const byteIntegers: Layout = {
  describe(ck, stem, [out, input]) {
    const codes = `${stem}.weight`;
    if (ck.tensors.get(codes)?.dtype !== 'I8') return null;
    expectTensor(ck, codes, bytes, [out, input]);
    const scales = `${stem}.weight_scale`;
    const isRow = hasShape(ck, scales, [out]) || hasShape(ck, scales, [out, 1]);
    const isOne = ck.tensors.get(scales)?.shape.every((dim) => dim === 1) === true;
    if (!isRow && !isOne) throw unexpectedShape(ck, scales, `[${out}, 1]`);
    return values('INT8', [codes, scales, ...present(ck, `${stem}.input_scale`)], input, () => {
      const code = new Int8Array(ck.read(codes).buffer);
      const scale = readPlain(ck, scales);
      return {
        code: (r, c) => code[r * input + c] as number,
        zero: () => 0,
        scale: (r) => scale[isRow ? r : 0] as number,
        groupOf: () => 0,
      };
    });
  },
};

/** `qweight` I32 [in/8, out]; `qzeros` [groups, out/8] are stored one lower by version 1 of the format; `g_idx` gives the groups. */
export const gptq: Layout = {
  describe(ck, stem, [out, input]) {
    const codes = `${stem}.qweight`;
    if (!ck.tensors.has(codes)) return null;
    const bits = bitsOf(ck, codes, input, out, 0);
    if (bits === null) return null;
    const [scales, zeros, indices] = [`${stem}.scales`, `${stem}.qzeros`, `${stem}.g_idx`];
    const groups = groupCount(ck, scales, out, 0);
    const perWord = 32 / bits;
    expectTensor(ck, zeros, words, [groups, Math.ceil(out / perWord)]);
    const uses = [codes, scales, zeros, ...present(ck, indices)];
    return values(`GPTQ INT${bits}`, uses, input, () => {
      const [packed, zero, scale] = [wordsOf(ck, codes)(), wordsOf(ck, zeros)(), readPlain(ck, scales)];
      const zeroColumns = Math.ceil(out / perWord);
      const added = ck.quantization?.checkpoint_format === 'gptq_v2' ? 0 : 1;
      return {
        code: (r, c) => field(packed[Math.floor(c / perWord) * out + r] as number, c % perWord, bits),
        zero: (r, g) =>
          field(zero[g * zeroColumns + Math.floor(r / perWord)] as number, r % perWord, bits) + added,
        scale: (r, g) => scale[g * out + r] as number,
        groupOf: groupsOf(ck, indices, [input, groups]),
      };
    });
  },
};

/** Where AWQ puts column k of eight in a word. */
const awqNibbles = [0, 4, 1, 5, 2, 6, 3, 7] as const;

/** `qweight` I32 [in, out/8], `qzeros` [groups, out/8], `scales` [groups, out]. */
export const awq: Layout = {
  describe(ck, stem, [out, input]) {
    const codes = `${stem}.qweight`;
    if (!ck.tensors.has(codes)) return null;
    if (!hasShape(ck, codes, [input, out / 8]))
      throw unexpectedShape(ck, codes, `GPTQ [${input / 8}, ${out}] or AWQ [${input}, ${out / 8}]`);
    const version = String(ck.quantization?.version ?? 'gemm').toLowerCase();
    if (version !== 'gemm')
      throw new UserError(
        'bad_checkpoint',
        `quantization_config.version is '${version}', of AWQ known is gemm`,
        {
          param: 'quantization_config.version',
          hint: 'Use an AWQ checkpoint in the GEMM layout.',
        },
      );
    const [scales, zeros] = [`${stem}.scales`, `${stem}.qzeros`];
    const groups = groupCount(ck, scales, out, 0);
    expectTensor(ck, zeros, words, [groups, out / 8]);
    return values('AWQ INT4', [codes, scales, zeros], input, () => {
      const [packed, zero, scale] = [wordsOf(ck, codes)(), wordsOf(ck, zeros)(), readPlain(ck, scales)];
      const at = (word: number, row: number): number => field(word, awqNibbles[row % 8] as number, 4);
      return {
        code: (r, c) => at(packed[(c * out) / 8 + Math.floor(r / 8)] as number, r),
        zero: (r, g) => at(zero[(g * out) / 8 + Math.floor(r / 8)] as number, r),
        scale: (r, g) => scale[g * out + r] as number,
        groupOf: groupsOf(ck, '', [input, groups]),
      };
    });
  },
};
