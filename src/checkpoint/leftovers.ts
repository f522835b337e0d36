/** Tensors that no weight of the model consists of: what may be left over, and why everything else is refused. */
import { UserError } from '../util/index.ts';
import type { Checkpoint } from './checkpoint.ts';
import { shorten } from './show.ts';

/** Tensors that change nothing a text model computes. */
const allowed: readonly { readonly pattern: RegExp; readonly reason: string }[] = [
  {
    pattern: /^(model\.|language_model\.)*(visual|vision_tower)\./,
    reason: 'vision tower, of no use for text',
  },
  { pattern: /\.rotary_emb\.inv_freq$/, reason: 'rotary frequencies, computed from the config' },
];

const usable = 'bf16, FP8, NVFP4, GPTQ, AWQ or compressed-tensors INT4';

/** Formats that would be read wrong, by a tensor that gives them away. */
const foreign: readonly { readonly pattern: RegExp; readonly format: string; readonly instead: string }[] = [
  {
    pattern: /\.(absmax|quant_map|nested_absmax|nested_quant_map)$|\.quant_state\.|\.SCB$/,
    format: 'bitsandbytes',
    instead: usable,
  },
  {
    pattern: /\.svdquant_lora_[ab]$|\.weight_quantizer\._svdquant/,
    format: 'ModelOpt NVFP4_SVD, whose low-rank part is not computed',
    instead: 'ModelOpt NVFP4 or NVFP4_AWQ',
  },
  { pattern: /nvfp4_csf/, format: 'NVFP4 with CSF scales', instead: 'ModelOpt NVFP4' },
  {
    pattern: /\.lora_(A|B|embedding_[AB])(\.|$)/,
    format: 'a LoRA adapter',
    instead: 'the model with the adapter merged',
  },
  {
    pattern: /\.(codebooks|Q_codebook|qidxs|trellis|W_q)$/i,
    format: 'codebook quantization (AQLM, QuIP, EXL3, HQQ)',
    instead: usable,
  },
  { pattern: /\.q_(weight|scale|groups|invperm|perm|scale_max)$/, format: 'EXL2', instead: usable },
  {
    pattern: /^(model\.)?(score|classifier|v_head|value_head|reward_head|qa_outputs)\./,
    format: 'a model with a classification head',
    instead: 'a causal language model',
  },
];

/** Throws UserError('bad_checkpoint') naming a tensor that no weight uses and that is not allowed to be left over. */
export function refuseLeftovers(ck: Checkpoint, used: ReadonlySet<string>): void {
  const left = [...ck.tensors.keys()].filter(
    (name) => !used.has(name) && !allowed.some(({ pattern }) => pattern.test(name)),
  );
  if (left.length === 0) return;
  const names = left.slice(0, 3).map((name) => `'${shorten(name)}'`);
  const more = left.length > names.length ? ` and ${left.length - names.length} more` : '';
  throw new UserError(
    'bad_checkpoint',
    `${names.join(', ')}${more}: no part of a model of the type ${ck.config.modelType} as it is described by config.json`,
    {
      param: left[0] as string,
      hint: 'What is not computed would change the answers. Use a checkpoint without these tensors, or report the layout.',
    },
  );
}

/** Throws UserError('bad_checkpoint') naming the tensor, its format and what would work. */
export function refuseFormats(ck: Checkpoint): void {
  for (const { name, dtype } of ck.tensors.values()) {
    if (allowed.some(({ pattern }) => pattern.test(name))) continue;
    const known = foreign.find(({ pattern }) => pattern.test(name));
    if (known !== undefined) throw unreadable(name, known.format, known.instead);
    const stem = name.replace(/\.weight$/, '');
    if (dtype === 'U32' && stem !== name && ck.tensors.has(`${stem}.scales`))
      throw unreadable(name, 'MLX quantization', usable);
    if (dtype === 'F8_E5M2') throw unreadable(name, 'FP8 in E5M2', 'FP8 in E4M3, bf16 or NVFP4');
  }
}

const unreadable = (name: string, format: string, instead: string): UserError =>
  new UserError('bad_checkpoint', `tensor '${shorten(name)}' belongs to ${format}, which can not be read`, {
    param: name,
    hint: `What works: ${instead}.`,
  });
