/** Where each weight goes in `weights.safetensors`, known before the first byte is packed. */

import { isScaledFp8, scaledFp8Format } from '../backends/index.ts';
import {
  type Checkpoint,
  describeWeight,
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  hasMtp,
} from '../checkpoint/index.ts';
import { nvfp4Block } from '../dtypes/index.ts';
import { bytesOf, pageBytes, type Recipe, safetensorsDtype, type WeightFormat } from './engine-folder.ts';

export interface Place {
  readonly weight: ExpectedWeight;
  /** The checkpoint's weight that it is made from. */
  readonly from: ExpectedWeight;
  readonly format: WeightFormat;
  /** From the start of the file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface Layout {
  readonly header: Uint8Array;
  readonly places: readonly Place[];
  readonly fileBytes: number;
}

/** Small projections that gate the recurrence stay in full precision, as every published recipe leaves them. */
const keptLinears = /\.in_proj_[ab]\.weight$/;

/** The format of a weight in the engine folder: what is quantized already is kept, the rest follows the recipe. */
function chooseFormat(ck: Checkpoint, weight: ExpectedWeight, recipe: Recipe): WeightFormat {
  const stored = describeWeight(ck, weight);
  if (weight.linear) {
    if (stored.kind === 'nvfp4') return 'nvfp4-tile';
    if (stored.kind === 'fp8') return 'fp8';
    if (stored.kind === 'fp8-scaled') return scaledFp8Format(stored.group, weight.shape[1] ?? 0);
  }
  const isMatrix = weight.linear || weight.name.endsWith('embed_tokens.weight');
  if (!isMatrix) return 'f32';
  const kept = keptLinears.test(weight.name) || (weight.shape[1] ?? 0) % nvfp4Block !== 0;
  if (weight.linear && recipe === 'nvfp4' && !kept) return 'nvfp4-tile';
  return stored.kind === 'plain' && ck.tensors.get(stored.tensor)?.dtype !== 'BF16' ? 'f32' : 'bf16';
}

type Choice = Pick<Place, 'weight' | 'from' | 'format'>;

function choices(ck: Checkpoint, recipe: Recipe): Choice[] {
  const all = [...expectedWeights(ck.config), ...(hasMtp(ck) ? expectedMtpWeights(ck.config) : [])];
  const own = all.map((weight) => ({ weight, from: weight, format: chooseFormat(ck, weight, recipe) }));
  return ck.config.tied ? [...own, ...tiedHead(ck, recipe)] : own;
}

/**
 * The head of a tied model is packed on its own when it is quantized, from the embedding or from a quantized head that the
 * checkpoint has beside it; otherwise the embedding serves as head.
 */
function tiedHead(ck: Checkpoint, recipe: Recipe): Choice[] {
  const shape = [ck.config.vocabSize, ck.config.hiddenSize];
  const head: ExpectedWeight = { name: 'lm_head.weight', shape, linear: true };
  const embedding: ExpectedWeight = { name: 'model.embed_tokens.weight', shape, linear: true };
  const from = hasQuantizedHead(ck, head) ? head : embedding;
  const format = chooseFormat(ck, from, recipe);
  return format === 'bf16' || format === 'f32' ? [] : [{ weight: head, from, format }];
}

function hasQuantizedHead(ck: Checkpoint, head: ExpectedWeight): boolean {
  const tensors = [...ck.tensors.values()];
  const codes = tensors.find(({ name }) => /(^|\.)lm_head\.weight(_packed)?$/.test(name));
  return (
    codes !== undefined && /^(U8|F8_E4M3)$/.test(codes.dtype) && describeWeight(ck, head).kind !== 'plain'
  );
}

const pagesUp = (bytes: number): number => Math.ceil(bytes / pageBytes) * pageBytes;

/** The header is padded with spaces to whole pages; padding tensors fill the gaps, as the format allows no holes. */
export function layOut(ck: Checkpoint, recipe: Recipe): Layout {
  const entries: Record<string, unknown> = {};
  const places: Place[] = [];
  let at = 0;
  for (const choice of choices(ck, recipe)) {
    const { name, shape } = choice.weight;
    const bytes = bytesOf(choice.format, shape);
    entries[name] = {
      dtype: safetensorsDtype[choice.format],
      shape: choice.format === 'nvfp4-tile' || isScaledFp8(choice.format) ? [bytes] : shape,
      data_offsets: [at, at + bytes],
    };
    places.push({ ...choice, offset: at, bytes });
    const end = pagesUp(at + bytes);
    const gap = end - at - bytes;
    if (gap > 0)
      entries[`__pad.${places.length}`] = { dtype: 'U8', shape: [gap], data_offsets: [at + bytes, end] };
    at = end;
  }
  const text = Buffer.from(JSON.stringify(entries));
  const header = Buffer.alloc(pagesUp(8 + text.length), ' ');
  header.writeBigUInt64LE(BigInt(header.length - 8), 0);
  text.copy(header, 8);
  const placed = places.map((place) => ({ ...place, offset: place.offset + header.length }));
  return { header, places: placed, fileBytes: at + header.length };
}
