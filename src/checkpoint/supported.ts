/** Config keys that change what is computed, and that would otherwise be passed over. */
import { UserError } from '../util/index.ts';
import { show } from './show.ts';

type Json = Readonly<Record<string, unknown>>;

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const refuse = (key: string, value: unknown, known: string, hint?: string): UserError =>
  new UserError('bad_checkpoint', `config.json: ${key} is ${show(value)}, ${known}`, {
    param: key,
    ...(hint === undefined ? {} : { hint }),
  });

const isOff = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  value === false ||
  value === 0 ||
  (Array.isArray(value) && value.length === 0);

/** Keys of the text model that are nothing unless they are off. */
const mustBeOff = [
  'use_sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
  'logit_scale',
  'mlp_bias',
] as const;

/** Throws UserError('bad_checkpoint') naming the key, what was found and what would work. */
export function refuseUnsupported(json: Json): void {
  const text = isObject(json.text_config) ? json.text_config : json;
  const classes = Array.isArray(json.architectures) ? json.architectures.map(String) : [];
  const headed = classes.find((name) => /Classification|Reward|QuestionAnswering|Embedding/.test(name));
  if (headed !== undefined)
    throw refuse('architectures', headed, 'a model with a classification head is no language model');
  const gate = text.output_gate_type ?? json.output_gate_type;
  if (!isOff(gate) && gate !== 'swish' && gate !== 'silu')
    throw refuse('output_gate_type', gate, 'known are swish and silu');
  for (const key of mustBeOff) if (!isOff(text[key])) throw refuse(key, text[key], 'this is not computed');
  for (const from of [json, text])
    for (const key of ['quantization_config', 'compression_config'])
      if (isObject(from[key])) checkQuantization(key, from[key]);
}

const algorithms = /^NVFP4_SVD|SVDQUANT/i;

/** `hf_quant_config.json` or the config's own description of the quantization. */
export function checkQuantization(key: string, quantization: Json): void {
  const transform = quantization.transform_config;
  if (!isOff(transform) && !(isObject(transform) && Object.keys(transform.config_groups ?? {}).length === 0))
    throw refuse(
      `${key}.transform_config`,
      transform,
      'transforms of weights and activations are not computed',
      'Use a checkpoint that was quantized without transforms (Hadamard, SpinQuant, QuIP).',
    );
  const algorithm = quantization.quant_algo ?? quantization.quant_method;
  if (typeof algorithm === 'string' && algorithms.test(algorithm))
    throw refuse(
      `${key}.quant_algo`,
      algorithm,
      'its low-rank part is not computed',
      'What works: ModelOpt NVFP4 or NVFP4_AWQ.',
    );
}
