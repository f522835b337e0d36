/**
 * Hugging Face configs of hybrid models of the qwen3_5 kind, text-only or inside the multimodal wrapper. Field rules: qwen35-model 1.1 to 1.5; defaults are those of transformers.
 */
import { UserError } from '../util/index.ts';
import { show } from './show.ts';

export type LayerType = 'linear_attention' | 'full_attention';

export interface YarnConfig {
  readonly factor: number;
  readonly originalMaxPositions: number;
  readonly betaFast: number;
  readonly betaSlow: number;
  /** null = 0.1 ln(factor) + 1 */
  readonly attentionFactor: number | null;
}

export interface ModelConfig {
  readonly modelType: string;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly intermediateSize: number;
  readonly layerTypes: readonly LayerType[];
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly ropeTheta: number;
  readonly yarn: YarnConfig | null;
  readonly linKeyHeads: number;
  readonly linValueHeads: number;
  readonly linKeyDim: number;
  readonly linValueDim: number;
  readonly convKernel: number;
  readonly eps: number;
  readonly tied: boolean;
  /** Declared MTP layers; the weights may still be absent. */
  readonly mtpLayers: number;
  readonly maxPositions: number;
  readonly eosTokenIds: readonly number[];
}

type Json = Record<string, unknown>;

const bad = (message: string, param: string): UserError =>
  new UserError('bad_checkpoint', `config.json: ${message}`, { param });

const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * A config whose text model is of one of `modelTypes`. Throws UserError('bad_checkpoint') that names the key, what was expected and
 * what was found.
 */
export function parseHybridConfig(json: Json, modelTypes: readonly string[]): ModelConfig {
  const type = String(json.model_type);
  if (json.text_config !== undefined && !isObject(json.text_config))
    throw bad('text_config is not an object', 'text_config');
  const text = isObject(json.text_config) ? json.text_config : json;
  const textType = text.model_type ?? type;
  if (typeof textType !== 'string' || !modelTypes.includes(textType))
    throw bad(
      `text_config.model_type is ${show(textType)}, known are ${modelTypes.join(', ')}`,
      'text_config.model_type',
    );
  const read = new Fields(text);
  const headDim = read.count('head_dim', 256);
  const rope = ropeOf(text, headDim);
  const config: ModelConfig = {
    modelType: type,
    vocabSize: read.count('vocab_size', 248_320),
    hiddenSize: read.count('hidden_size', 4096),
    intermediateSize: read.count('intermediate_size', 12_288),
    layerTypes: layerTypesOf(text, read),
    heads: read.count('num_attention_heads', 16),
    kvHeads: read.count('num_key_value_heads', 4),
    headDim,
    ...rope,
    linKeyHeads: read.count('linear_num_key_heads', 16),
    linValueHeads: read.count('linear_num_value_heads', 32),
    linKeyDim: read.count('linear_key_head_dim', 128),
    linValueDim: read.count('linear_value_head_dim', 128),
    convKernel: read.count('linear_conv_kernel_dim', 4),
    eps: read.number('rms_norm_eps', 1e-6),
    tied: text.tie_word_embeddings === true || json.tie_word_embeddings === true,
    mtpLayers: read.count('mtp_num_hidden_layers', 0, 0),
    maxPositions: read.count('max_position_embeddings', 32_768),
    eosTokenIds: tokenIds(text.eos_token_id ?? json.eos_token_id),
  };
  checkRelations(config, text);
  return Object.freeze({
    ...config,
    layerTypes: Object.freeze(config.layerTypes),
    eosTokenIds: Object.freeze(config.eosTokenIds),
  });
}

/** `eos_token_id` as a list, from a number, a list or nothing. */
export function tokenIds(value: unknown): number[] {
  const list = Array.isArray(value) ? value : [value];
  return list.filter((id): id is number => Number.isSafeInteger(id) && (id as number) >= 0);
}

class Fields {
  readonly #json: Json;

  constructor(json: Json) {
    this.#json = json;
  }

  number(key: string, fallback: number): number {
    const value = this.#json[key] ?? fallback;
    if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0)
      throw bad(`${key} is ${show(value)}, expected a positive number`, key);
    return value;
  }

  count(key: string, fallback: number, least = 1): number {
    const value = this.#json[key] ?? fallback;
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < least || value > 2 ** 31)
      throw bad(`${key} is ${show(value)}, expected a whole number from ${least}`, key);
    return value;
  }
}

function layerTypesOf(text: Json, read: Fields): LayerType[] {
  const layers = read.count('num_hidden_layers', 32);
  if (layers > 4096) throw bad(`num_hidden_layers is ${layers}, the limit is 4096`, 'num_hidden_layers');
  const interval = read.count('full_attention_interval', 4);
  const given = text.layer_types;
  if (given === undefined || given === null)
    return Array.from({ length: layers }, (_, i) =>
      (i + 1) % interval === 0 ? 'full_attention' : 'linear_attention',
    );
  if (!Array.isArray(given) || given.length !== layers)
    throw bad(
      `layer_types has ${Array.isArray(given) ? given.length : 'no'} entries, num_hidden_layers is ${layers}`,
      'layer_types',
    );
  const unknown = given.find((type) => type !== 'full_attention' && type !== 'linear_attention');
  if (unknown !== undefined) throw bad(`layer_types contains ${show(unknown)}`, 'layer_types');
  return [...(given as LayerType[])];
}

type Rope = Pick<ModelConfig, 'rotaryDim' | 'ropeTheta' | 'yarn'>;

/** Loaders differ in which of the two keys wins, so they have to mean the same. */
function ropeOf(text: Json, headDim: number): Rope {
  const { rope_parameters: parameters, rope_scaling: scaling } = text;
  const chosen = isObject(parameters) ? parameters : isObject(scaling) ? scaling : {};
  const rope = ropeBy(text, chosen, headDim);
  if (isObject(parameters) && isObject(scaling)) {
    const other = ropeBy(
      text,
      { ...parameters, ...scaling, rope_type: scaling.rope_type ?? scaling.type ?? 'default' },
      headDim,
    );
    if (JSON.stringify(rope) !== JSON.stringify(other))
      throw bad('rope_scaling and rope_parameters disagree, remove the one that is wrong', 'rope_scaling');
  }
  return rope;
}

function ropeBy(text: Json, rope: Json, headDim: number): Rope {
  const fields = new Fields({ ...text, ...rope });
  const partial = fields.number('partial_rotary_factor', 0.25);
  const rotaryDim = Math.floor(headDim * partial);
  if (rotaryDim < 2 || rotaryDim > headDim || rotaryDim % 2 !== 0)
    throw bad(
      `partial_rotary_factor ${partial} of head_dim ${headDim} gives ${rotaryDim} rotated channels`,
      'partial_rotary_factor',
    );
  const named = rope.rope_type ?? rope.type ?? 'default';
  // Legacy name of the default with three position axes, which are one for text.
  const type = named === 'mrope' ? 'default' : named;
  if (type !== 'default' && type !== 'yarn')
    throw bad(`rope_type is ${show(type)}, known are default and yarn`, 'rope_type');
  const yarn =
    type === 'default'
      ? null
      : {
          factor: fields.number('factor', 1),
          originalMaxPositions: fields.count('original_max_position_embeddings', 262_144),
          betaFast: fields.number('beta_fast', 32),
          betaSlow: fields.number('beta_slow', 1),
          attentionFactor:
            (rope.attention_factor ?? null) === null ? null : fields.number('attention_factor', 1),
        };
  return { rotaryDim, ropeTheta: fields.number('rope_theta', 10_000_000), yarn };
}

function checkRelations(config: ModelConfig, text: Json): void {
  if (config.heads % config.kvHeads !== 0)
    throw bad(
      `${config.heads} attention heads do not divide into ${config.kvHeads} KV heads`,
      'num_key_value_heads',
    );
  if (config.linValueHeads % config.linKeyHeads !== 0)
    throw bad(
      `${config.linValueHeads} value heads do not divide into ${config.linKeyHeads} key heads`,
      'linear_num_value_heads',
    );
  if (config.mtpLayers > 1)
    throw bad(`mtp_num_hidden_layers is ${config.mtpLayers}, known is 1`, 'mtp_num_hidden_layers');
  if (text.hidden_act !== undefined && text.hidden_act !== 'silu')
    throw bad(`hidden_act is ${show(text.hidden_act)}, known is silu`, 'hidden_act');
  if (text.attn_output_gate === false)
    throw bad('attn_output_gate is false, the family has the gate', 'attn_output_gate');
  if (text.attention_bias === true)
    throw bad('attention_bias is true, the family has no biases', 'attention_bias');
}
