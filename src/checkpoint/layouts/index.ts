/** The layouts of quantized matrices, in the order they are tried; each looks at the tensors of one weight alone. */
import type { Checkpoint } from '../checkpoint.ts';
import { fp8 } from './fp8.ts';
import { awq, byteIntegers, gptq, packedIntegers } from './integers.ts';
import { expectTensor, type Layout, plainDtypes, readPlain, type StoredWeight } from './layout.ts';
import { modelOptNvfp4, packedNvfp4 } from './nvfp4.ts';

const layouts: readonly Layout[] = [packedNvfp4, packedIntegers, gptq, awq, modelOptNvfp4, fp8, byteIntegers];

/** null when the weight of this stem is in no quantized layout. */
export function describeQuantized(
  ck: Checkpoint,
  stem: string,
  shape: readonly [number, number],
): StoredWeight | null {
  for (const layout of layouts) {
    const stored = layout.describe(ck, stem, shape);
    if (stored !== null) return withInputScale(ck, stem, shape[1], stored);
  }
  return null;
}

/** AWQ of ModelOpt: the input is multiplied by `pre_quant_scale` [in] first, which is the same as multiplying the columns. */
function withInputScale(ck: Checkpoint, stem: string, input: number, stored: StoredWeight): StoredWeight {
  const name = `${stem}.pre_quant_scale`;
  if (!ck.tensors.has(name)) return stored;
  expectTensor(ck, name, plainDtypes, [input]);
  const scales = readPlain(ck, name);
  return {
    kind: 'values',
    format: `${stored.kind === 'values' ? stored.format : stored.kind} with input scales (AWQ)`,
    uses: [...stored.uses, name],
    rows: (range) => stored.rows(range).map((value, i) => value * (scales[i % input] as number)),
  };
}

/** The name of a stem's tensor that says that it is there in some layout. */
export const stemEndings = ['.weight', '.weight_packed', '.qweight'] as const;
