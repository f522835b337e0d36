/**
 * Which weights a model of the family has, and how each is stored. What is quantized is decided per tensor by what is
 * present (qwen35-model 6.7); JSON descriptions of the quantization are not needed.
 */
import { bf16ToF32, dequantizeNvfp4, e4m3Decode, f16ToF32 } from '../dtypes/index.ts';
import { UserError } from '../util/index.ts';
import type { Checkpoint } from './checkpoint.ts';
import type { Qwen35Config } from './config.ts';

export interface ExpectedWeight {
  /** Name without the wrapper's prefix, e.g. `model.layers.0.mlp.up_proj.weight`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** Matrices [out, in] that `linear` multiplies; the rest are embeddings, norms, conv and small vectors. */
  readonly linear: boolean;
}

const linear = (name: string, out: number, input: number): ExpectedWeight => ({
  name,
  shape: [out, input],
  linear: true,
});
const plain = (name: string, ...shape: number[]): ExpectedWeight => ({ name, shape, linear: false });

function mlp(p: string, c: Qwen35Config): ExpectedWeight[] {
  return [
    linear(`${p}mlp.gate_proj.weight`, c.intermediateSize, c.hiddenSize),
    linear(`${p}mlp.up_proj.weight`, c.intermediateSize, c.hiddenSize),
    linear(`${p}mlp.down_proj.weight`, c.hiddenSize, c.intermediateSize),
  ];
}

function attention(p: string, c: Qwen35Config): ExpectedWeight[] {
  return [
    linear(`${p}self_attn.q_proj.weight`, 2 * c.heads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.k_proj.weight`, c.kvHeads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.v_proj.weight`, c.kvHeads * c.headDim, c.hiddenSize),
    linear(`${p}self_attn.o_proj.weight`, c.hiddenSize, c.heads * c.headDim),
    plain(`${p}self_attn.q_norm.weight`, c.headDim),
    plain(`${p}self_attn.k_norm.weight`, c.headDim),
  ];
}

function deltaNet(p: string, c: Qwen35Config): ExpectedWeight[] {
  const keyDim = c.linKeyHeads * c.linKeyDim;
  const valueDim = c.linValueHeads * c.linValueDim;
  return [
    linear(`${p}linear_attn.in_proj_qkv.weight`, 2 * keyDim + valueDim, c.hiddenSize),
    linear(`${p}linear_attn.in_proj_z.weight`, valueDim, c.hiddenSize),
    linear(`${p}linear_attn.in_proj_b.weight`, c.linValueHeads, c.hiddenSize),
    linear(`${p}linear_attn.in_proj_a.weight`, c.linValueHeads, c.hiddenSize),
    linear(`${p}linear_attn.out_proj.weight`, c.hiddenSize, valueDim),
    plain(`${p}linear_attn.conv1d.weight`, 2 * keyDim + valueDim, 1, c.convKernel),
    plain(`${p}linear_attn.A_log`, c.linValueHeads),
    plain(`${p}linear_attn.dt_bias`, c.linValueHeads),
    plain(`${p}linear_attn.norm.weight`, c.linValueDim),
  ];
}

function norms(p: string, c: Qwen35Config): ExpectedWeight[] {
  return [
    plain(`${p}input_layernorm.weight`, c.hiddenSize),
    plain(`${p}post_attention_layernorm.weight`, c.hiddenSize),
  ];
}

/** All weights of the text model, without MTP. */
export function expectedWeights(c: Qwen35Config): ExpectedWeight[] {
  const layers = c.layerTypes.flatMap((type, i) => {
    const p = `model.layers.${i}.`;
    return [...norms(p, c), ...(type === 'full_attention' ? attention(p, c) : deltaNet(p, c)), ...mlp(p, c)];
  });
  const head = c.tied ? [] : [linear('lm_head.weight', c.vocabSize, c.hiddenSize)];
  return [
    plain('model.embed_tokens.weight', c.vocabSize, c.hiddenSize),
    ...layers,
    plain('model.norm.weight', c.hiddenSize),
    ...head,
  ];
}

/** The MTP layer's weights. */
export function expectedMtpWeights(c: Qwen35Config): ExpectedWeight[] {
  const p = 'mtp.layers.0.';
  return [
    linear('mtp.fc.weight', c.hiddenSize, 2 * c.hiddenSize),
    plain('mtp.pre_fc_norm_embedding.weight', c.hiddenSize),
    plain('mtp.pre_fc_norm_hidden.weight', c.hiddenSize),
    plain('mtp.norm.weight', c.hiddenSize),
    ...norms(p, c),
    ...attention(p, c),
    ...mlp(p, c),
  ];
}

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

function scalar(ck: Checkpoint, name: string): number {
  const info = ck.tensors.get(name);
  if (info === undefined) throw wrong(name, 'is missing, expected one F32 value');
  if (info.dtype !== 'F32' || info.bytes !== 4)
    throw wrong(name, `is ${info.dtype} [${info.shape.join(', ')}], expected one F32 value`);
  const bytes = ck.read(name);
  return new DataView(bytes.buffer, bytes.byteOffset, 4).getFloat32(0, true);
}

function optionalScalar(ck: Checkpoint, name: string): number | null {
  return ck.tensors.has(name) ? scalar(ck, name) : null;
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

/** Finds a weight and checks all of its tensors. Throws UserError naming the tensor, what was expected and what was found. */
export function describeWeight(ck: Checkpoint, expected: ExpectedWeight): StoredWeight {
  const base = (alias: string): string => alias.replace(/\.weight$/, '');
  const names = aliases(expected.name);
  const name =
    names.find((alias) => ck.tensors.has(alias) || ck.tensors.has(`${base(alias)}.weight_packed`)) ??
    expected.name;
  const stem = base(name);
  const [out, input] = expected.shape as [number, number];
  if (ck.tensors.has(`${stem}.weight_packed`)) {
    expectTensor(ck, `${stem}.weight_packed`, new Set(['U8']), [out, input / 2]);
    expectTensor(ck, `${stem}.weight_scale`, new Set(['F8_E4M3']), [out, input / 16]);
    const global = scalar(ck, `${stem}.weight_global_scale`);
    const inputGlobal = optionalScalar(ck, `${stem}.input_global_scale`);
    const inputScale = inputGlobal === null ? null : Math.fround(1 / inputGlobal);
    return {
      kind: 'nvfp4',
      codes: `${stem}.weight_packed`,
      scales: `${stem}.weight_scale`,
      scale2: Math.fround(1 / global),
      inputScale,
    };
  }
  const dtype = ck.tensors.get(name)?.dtype;
  if (expected.linear && dtype === 'U8') {
    expectTensor(ck, name, new Set(['U8']), [out, input / 2]);
    expectTensor(ck, `${stem}.weight_scale`, new Set(['F8_E4M3']), [out, input / 16]);
    const scale2 = scalar(ck, `${stem}.weight_scale_2`);
    return {
      kind: 'nvfp4',
      codes: name,
      scales: `${stem}.weight_scale`,
      scale2,
      inputScale: optionalScalar(ck, `${stem}.input_scale`),
    };
  }
  if (expected.linear && dtype === 'F8_E4M3') {
    expectTensor(ck, name, new Set(['F8_E4M3']), expected.shape);
    const scales = `${stem}.weight_scale_inv`;
    if (!ck.tensors.has(scales))
      return {
        kind: 'fp8',
        tensor: name,
        scale: scalar(ck, `${stem}.weight_scale`),
        inputScale: optionalScalar(ck, `${stem}.input_scale`),
      };
    expectTensor(ck, scales, plainDtypes, [Math.ceil(out / 128), Math.ceil(input / 128)]);
    return { kind: 'fp8-block', tensor: name, scales, block: [128, 128] };
  }
  expectTensor(ck, name, plainDtypes, expected.shape);
  return { kind: 'plain', tensor: name };
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
    return name === undefined ? 1 : scalar(ck, name);
  };
  return {
    k: find(`${stem}.k_proj.k_scale`, `${stem}.k_scale`),
    v: find(`${stem}.v_proj.v_scale`, `${stem}.v_scale`),
  };
}

/** A plain tensor's values in fp32. */
export function readF32(ck: Checkpoint, name: string): Float32Array {
  const info = ck.tensors.get(name);
  const bytes = ck.read(name).slice();
  const values = new Float32Array(info === undefined ? 0 : info.shape.reduce((a, b) => a * b, 1));
  if (info?.dtype === 'F32') return new Float32Array(bytes.buffer, 0, values.length);
  const halves = new Uint16Array(bytes.buffer, 0, values.length);
  if (info?.dtype === 'BF16') bf16ToF32(halves, values);
  else if (info?.dtype === 'F16') f16ToF32(halves, values);
  else throw wrong(name, `is ${info?.dtype}, expected BF16/F16/F32`);
  return values;
}

/** Any weight's values in fp32, [out, in] or of its plain shape. */
export function dequantize(ck: Checkpoint, stored: StoredWeight, shape: readonly number[]): Float32Array {
  if (stored.kind === 'plain') return readF32(ck, stored.tensor);
  if (stored.kind === 'nvfp4')
    return dequantizeNvfp4({
      codes: ck.read(stored.codes),
      scales: ck.read(stored.scales),
      scale2: stored.scale2,
    });
  const codes = ck.read(stored.tensor);
  if (stored.kind === 'fp8')
    return Float32Array.from(codes, (code) => (e4m3Decode[code] as number) * stored.scale);
  const [, input] = shape as [number, number];
  const scales = readF32(ck, stored.scales);
  const perRow = Math.ceil(input / stored.block[1]);
  return Float32Array.from(codes, (code, i) => {
    const row = Math.floor(i / input / stored.block[0]);
    return (
      (e4m3Decode[code] as number) *
      (scales[row * perRow + Math.floor((i % input) / stored.block[1])] as number)
    );
  });
}

/** Checks that every weight of the model is there and sound. */
export function validateCheckpoint(ck: Checkpoint): void {
  const weights = [...expectedWeights(ck.config), ...(hasMtp(ck) ? expectedMtpWeights(ck.config) : [])];
  for (const weight of weights) describeWeight(ck, weight);
}
