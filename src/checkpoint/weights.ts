/**
 * How each weight is stored. What is quantized is decided per tensor by what is present (qwen35-model 6.7); JSON descriptions of
 * the quantization are not needed.
 */
import { UserError } from '../util/index.ts';
import type { Checkpoint } from './checkpoint.ts';
import { readF32 } from './dequantize.ts';
import type { ExpectedWeight } from './family.ts';
import { expectedMtpWeights, expectedWeights } from './registry.ts';

/** How a weight is stored; names are those of the checkpoint. */
export type StoredWeight =
  | { readonly kind: 'plain'; readonly tensor: string }
  | {
      readonly kind: 'nvfp4';
      readonly codes: string;
      readonly scales: string;
      readonly scale2: number;
      readonly inputScale: number | null;
    }
  | {
      readonly kind: 'fp8';
      readonly tensor: string;
      readonly scale: number;
      readonly inputScale: number | null;
    }
  | {
      readonly kind: 'fp8-block';
      readonly tensor: string;
      readonly scales: string;
      readonly block: readonly [number, number];
    };

const prefixes = ['model.language_model.', 'language_model.model.', 'model.'];

/** The names a weight may have in a file: with the wrapper's prefix or without. */
function aliases(name: string): string[] {
  if (name.startsWith('mtp.'))
    return [name, `model.${name}`, `language_model.${name}`, `model.language_model.${name}`];
  if (name.startsWith('model.')) return prefixes.map((prefix) => prefix + name.slice('model.'.length));
  return [name, `language_model.${name}`, `model.language_model.${name}`, `model.${name}`];
}

const plainDtypes = new Set(['BF16', 'F16', 'F32']);

const wrong = (name: string, message: string): UserError =>
  new UserError('bad_checkpoint', `tensor '${name}' ${message}`, { param: name });

/** One value in any float type, as a shape of [] or [1]. Scales are finite and not negative. */
function scalar(ck: Checkpoint, name: string): number {
  const info = ck.tensors.get(name);
  const expected = 'expected one value of BF16/F16/F32';
  if (info === undefined) throw wrong(name, `is missing, ${expected}`);
  if (!plainDtypes.has(info.dtype) || info.shape.some((dim) => dim !== 1))
    throw wrong(name, `is ${info.dtype} [${info.shape.join(', ')}], ${expected}`);
  const value = readF32(ck, name)[0] as number;
  if (!Number.isFinite(value) || value < 0) throw wrong(name, `is ${value}, expected a finite scale from 0`);
  return value;
}

function positiveScalar(ck: Checkpoint, name: string): number {
  const value = scalar(ck, name);
  if (value === 0) throw wrong(name, 'is 0, expected a scale above 0');
  return value;
}

/** null where there is none, and for 0, which exporters write for a layer that calibration never reached. */
function optionalScalar(ck: Checkpoint, name: string): number | null {
  return ck.tensors.has(name) ? scalar(ck, name) || null : null;
}

function expectTensor(
  ck: Checkpoint,
  name: string,
  dtypes: ReadonlySet<string>,
  shape: readonly number[],
): void {
  const found = ck.tensors.get(name);
  const expected = `expected ${[...dtypes].join('/')} [${shape.join(', ')}]`;
  if (found === undefined) throw wrong(name, `is missing, ${expected}`);
  const sameShape = found.shape.length === shape.length && found.shape.every((dim, i) => dim === shape[i]);
  if (!dtypes.has(found.dtype) || !sameShape)
    throw wrong(name, `is ${found.dtype} [${found.shape.join(', ')}], ${expected}`);
}

const codesNvfp4 = new Set(['U8']);
const codesE4m3 = new Set(['F8_E4M3']);

/** Finds a weight and checks all of its tensors. Throws UserError naming the tensor, what was expected and what was found. */
export function describeWeight(ck: Checkpoint, expected: ExpectedWeight): StoredWeight {
  const names = aliases(expected.name);
  const packed = expected.linear
    ? names.map(stemOf).find((stem) => ck.tensors.has(`${stem}.weight_packed`))
    : undefined;
  if (packed !== undefined) return describePacked(ck, packed, expected.shape);
  const name = names.find((alias) => ck.tensors.has(alias)) ?? expected.name;
  const dtype = ck.tensors.get(name)?.dtype;
  if (expected.linear && dtype === 'U8') return describeNvfp4(ck, name, expected.shape);
  if (expected.linear && dtype === 'F8_E4M3') return describeFp8(ck, name, expected.shape);
  expectTensor(ck, name, plainDtypes, expected.shape);
  return { kind: 'plain', tensor: name };
}

const stemOf = (name: string): string => name.replace(/\.weight$/, '');

/** compressed-tensors: scales are reciprocals of ModelOpt's. */
function describePacked(ck: Checkpoint, stem: string, shape: readonly number[]): StoredWeight {
  const [out, input] = shape as [number, number];
  expectTensor(ck, `${stem}.weight_packed`, codesNvfp4, [out, input / 2]);
  expectTensor(ck, `${stem}.weight_scale`, codesE4m3, [out, input / 16]);
  const inputGlobal = optionalScalar(ck, `${stem}.input_global_scale`);
  return {
    kind: 'nvfp4',
    codes: `${stem}.weight_packed`,
    scales: `${stem}.weight_scale`,
    scale2: Math.fround(1 / positiveScalar(ck, `${stem}.weight_global_scale`)),
    inputScale: inputGlobal === null ? null : Math.fround(1 / inputGlobal),
  };
}

function describeNvfp4(ck: Checkpoint, name: string, shape: readonly number[]): StoredWeight {
  const stem = stemOf(name);
  const [out, input] = shape as [number, number];
  expectTensor(ck, name, codesNvfp4, [out, input / 2]);
  expectTensor(ck, `${stem}.weight_scale`, codesE4m3, [out, input / 16]);
  return {
    kind: 'nvfp4',
    codes: name,
    scales: `${stem}.weight_scale`,
    scale2: positiveScalar(ck, `${stem}.weight_scale_2`),
    inputScale: optionalScalar(ck, `${stem}.input_scale`),
  };
}

function describeFp8(ck: Checkpoint, name: string, shape: readonly number[]): StoredWeight {
  const stem = stemOf(name);
  const [out, input] = shape as [number, number];
  expectTensor(ck, name, codesE4m3, shape);
  const scales = `${stem}.weight_scale_inv`;
  if (ck.tensors.has(scales)) {
    expectTensor(ck, scales, plainDtypes, [Math.ceil(out / 128), Math.ceil(input / 128)]);
    return { kind: 'fp8-block', tensor: name, scales, block: [128, 128] };
  }
  return {
    kind: 'fp8',
    tensor: name,
    scale: positiveScalar(ck, `${stem}.weight_scale`),
    inputScale: optionalScalar(ck, `${stem}.input_scale`),
  };
}

/** True when the checkpoint has MTP weights: then all of them must be there. */
export function hasMtp(ck: Checkpoint): boolean {
  return aliases('mtp.fc.weight').some(
    (name) => ck.tensors.has(name) || ck.tensors.has(name.replace(/weight$/, 'weight_packed')),
  );
}

/** Scales of the FP8 cache of an attention layer, 1 where the file has none. `stem` e.g. `model.layers.3.self_attn`. */
export function kvScales(ck: Checkpoint, stem: string): { k: number; v: number } {
  const find = (...names: string[]): number => {
    const name = names.flatMap(aliases).find((alias) => ck.tensors.has(alias));
    return name === undefined ? 1 : positiveScalar(ck, name);
  };
  return {
    k: find(`${stem}.k_proj.k_scale`, `${stem}.k_scale`),
    v: find(`${stem}.v_proj.v_scale`, `${stem}.v_scale`),
  };
}

/** Checks that every weight of the model is there and sound. */
export function validateCheckpoint(ck: Checkpoint): void {
  const weights = [...expectedWeights(ck.config), ...(hasMtp(ck) ? expectedMtpWeights(ck.config) : [])];
  for (const weight of weights) describeWeight(ck, weight);
}
