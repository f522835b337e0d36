/**
 * How each weight of the manifest is stored, decided per tensor by what is present (qwen35-model 6.7), and whether anything in the
 * checkpoint would be left over.
 */
import { UserError } from '../util/index.ts';
import type { Checkpoint } from './checkpoint.ts';
import type { ExpectedWeight } from './family.ts';
import { describeQuantized, stemEndings } from './layouts/index.ts';
import { expectTensor, plainDtypes, positiveScalar, readPlain, type StoredWeight } from './layouts/layout.ts';
import { refuseFormats, refuseLeftovers } from './leftovers.ts';
import { expectedMtpWeights, expectedWeights } from './registry.ts';

const prefixes = ['model.language_model.', 'language_model.model.', 'model.'];

/** The names a weight may have in a file: with the wrapper's prefix or without. */
function aliases(name: string): string[] {
  if (name.startsWith('mtp.'))
    return [name, `model.${name}`, `language_model.${name}`, `model.language_model.${name}`];
  if (name.startsWith('model.')) return prefixes.map((prefix) => prefix + name.slice('model.'.length));
  return [name, `language_model.${name}`, `model.language_model.${name}`, `model.${name}`];
}

/** Embeddings are no linears, and may be quantized all the same. */
const isMatrix = ({ name, linear }: ExpectedWeight): boolean =>
  linear || name.endsWith('embed_tokens.weight');

/** Finds a weight and checks all of its tensors. Throws UserError naming the tensor, what was expected and what was found. */
export function describeWeight(ck: Checkpoint, expected: ExpectedWeight): StoredWeight {
  const { shape } = expected;
  const names = aliases(expected.name);
  if (isMatrix(expected)) {
    const stems = names.map((name) => name.replace(/\.weight$/, ''));
    const stem = stems.find((each) => stemEndings.some((ending) => ck.tensors.has(each + ending)));
    const stored =
      stem === undefined ? null : describeQuantized(ck, stem, shape as unknown as readonly [number, number]);
    if (stored !== null) return stored;
  }
  const tensor = names.find((alias) => ck.tensors.has(alias)) ?? expected.name;
  expectTensor(ck, tensor, plainDtypes, shape);
  const width = shape.slice(1).reduce((product, dim) => product * dim, 1);
  return {
    kind: 'plain',
    tensor,
    uses: [tensor],
    rows: ({ from, count }) => readPlain(ck, tensor, from * width, count * width),
  };
}

/** True when the checkpoint has MTP weights: then all of them must be there. */
export function hasMtp(ck: Checkpoint): boolean {
  return [...ck.tensors.keys()].some((name) => /^(model\.|language_model\.)*mtp\./.test(name));
}

/** Names of the scales of the FP8 cache of an attention layer that the checkpoint has. */
function kvScaleNames(ck: Checkpoint, stem: string): { k: string | undefined; v: string | undefined } {
  const find = (...names: string[]): string | undefined =>
    names.flatMap(aliases).find((alias) => ck.tensors.has(alias));
  return {
    k: find(`${stem}.k_proj.k_scale`, `${stem}.k_scale`),
    v: find(`${stem}.v_proj.v_scale`, `${stem}.v_scale`),
  };
}

/** Scales of the FP8 cache of an attention layer, 1 where the file has none. `stem` e.g. `model.layers.3.self_attn`. */
export function kvScales(ck: Checkpoint, stem: string): { k: number; v: number } {
  const { k, v } = kvScaleNames(ck, stem);
  return {
    k: k === undefined ? 1 : positiveScalar(ck, k),
    v: v === undefined ? 1 : positiveScalar(ck, v),
  };
}

/** Attention layers that have scales of the FP8 cache, that of MTP included. */
export function attentionStems(ck: Checkpoint): string[] {
  const stems = ck.config.layerTypes.flatMap((type, i) =>
    type === 'full_attention' ? [`model.layers.${i}.self_attn`] : [],
  );
  return hasMtp(ck) ? [...stems, 'mtp.layers.0.self_attn'] : stems;
}

/** Checks that every weight of the model is there and sound, and that nothing else is. */
export function validateCheckpoint(ck: Checkpoint): void {
  const weights = [...expectedWeights(ck.config), ...(hasMtp(ck) ? expectedMtpWeights(ck.config) : [])];
  const used = new Set<string>();
  const stems = attentionStems(ck);
  refuseFormats(ck);
  for (const weight of weights) for (const name of describeWeight(ck, weight).uses) used.add(name);
  for (const stem of stems) {
    kvScales(ck, stem);
    for (const name of Object.values(kvScaleNames(ck, stem))) if (name !== undefined) used.add(name);
  }
  if (ck.config.tied) for (const name of tiedHead(ck)) used.add(name);
  refuseLeftovers(ck, used);
}

/** The tensors of a head beside a tied embedding: a quantized one is used, a plain one has to be the embedding. */
function tiedHead(ck: Checkpoint): readonly string[] {
  const { vocabSize, hiddenSize } = ck.config;
  const shape = [vocabSize, hiddenSize];
  const names = aliases('lm_head.weight').map((name) => name.replace(/\.weight$/, ''));
  if (!names.some((stem) => stemEndings.some((ending) => ck.tensors.has(stem + ending)))) return [];
  const head = describeWeight(ck, { name: 'lm_head.weight', shape, linear: true });
  if (head.kind !== 'plain') return head.uses;
  const embedding = describeWeight(ck, { name: 'model.embed_tokens.weight', shape, linear: false });
  const band = Math.max(1, Math.floor(2 ** 22 / hiddenSize));
  for (let from = 0; from < vocabSize; from += band) {
    const range = { from, count: Math.min(band, vocabSize - from) };
    const [a, b] = [head.rows(range), embedding.rows(range)];
    if (Buffer.compare(bytes(a), bytes(b)) !== 0)
      throw new UserError(
        'bad_checkpoint',
        `tensor '${head.tensor}' differs from the embedding, although tie_word_embeddings is true`,
        {
          param: head.tensor,
          hint: 'Set tie_word_embeddings to false in config.json, or remove the tensor.',
        },
      );
  }
  return head.uses;
}

const bytes = ({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength);
