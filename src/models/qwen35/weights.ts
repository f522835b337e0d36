/** The weights of a hybrid model (qwen35-model 3), by layer, as the forward uses them. */
import type { Backend, Buffer, Weight } from '../../backends/index.ts';
import type { WeightSource } from '../weight-source.ts';

export interface AttentionWeights {
  readonly kind: 'attention';
  /** Layer of the KV pool: attention layers counted alone. */
  readonly kvLayer: number;
  readonly kScale: number;
  readonly vScale: number;
  readonly q: Weight;
  readonly k: Weight;
  readonly v: Weight;
  readonly o: Weight;
  readonly qNorm: Buffer;
  readonly kNorm: Buffer;
}

export interface DeltaNetWeights {
  readonly kind: 'deltaNet';
  /** Layer of the state pool: gated-delta-net layers counted alone. */
  readonly stateLayer: number;
  readonly qkv: Weight;
  readonly z: Weight;
  readonly b: Weight;
  readonly a: Weight;
  readonly out: Weight;
  /** [channels, convKernel] */
  readonly conv: Buffer;
  readonly aLog: Buffer;
  readonly dtBias: Buffer;
  readonly norm: Buffer;
}

export interface LayerWeights {
  readonly inputNorm: Buffer;
  readonly mixer: AttentionWeights | DeltaNetWeights;
  readonly postNorm: Buffer;
  readonly gate: Weight;
  readonly up: Weight;
  readonly down: Weight;
}

export interface MtpWeights {
  readonly fc: Weight;
  readonly embeddingNorm: Buffer;
  readonly hiddenNorm: Buffer;
  readonly norm: Buffer;
  readonly layer: LayerWeights;
}

export interface Qwen35Weights {
  readonly embed: Weight;
  readonly head: Weight;
  readonly norm: Buffer;
  readonly layers: readonly LayerWeights[];
  readonly mtp: MtpWeights | null;
  /** Attention layers, that of MTP included. */
  readonly kvLayers: number;
  readonly stateLayers: number;
  /** Everything uploaded, to be freed with the model. */
  readonly buffers: readonly Buffer[];
}

/** Reads names in one place: matrices stay where the source has them, vectors are uploaded. */
class Reader {
  readonly buffers: Buffer[] = [];
  readonly #backend: Backend;
  readonly #source: WeightSource;

  constructor(backend: Backend, source: WeightSource) {
    this.#backend = backend;
    this.#source = source;
  }

  vector(name: string): Buffer {
    const buffer = this.#backend.upload(this.#source.vector(name));
    this.buffers.push(buffer);
    return buffer;
  }

  layer(p: string, mixer: AttentionWeights | DeltaNetWeights): LayerWeights {
    return {
      inputNorm: this.vector(`${p}input_layernorm.weight`),
      mixer,
      postNorm: this.vector(`${p}post_attention_layernorm.weight`),
      gate: this.#source.matrix(`${p}mlp.gate_proj.weight`),
      up: this.#source.matrix(`${p}mlp.up_proj.weight`),
      down: this.#source.matrix(`${p}mlp.down_proj.weight`),
    };
  }

  attention(layerPrefix: string, kvLayer: number): AttentionWeights {
    const stem = `${layerPrefix}self_attn`;
    const scales = this.#source.kvScales(stem);
    return {
      kind: 'attention',
      kvLayer,
      kScale: scales.k,
      vScale: scales.v,
      q: this.#source.matrix(`${stem}.q_proj.weight`),
      k: this.#source.matrix(`${stem}.k_proj.weight`),
      v: this.#source.matrix(`${stem}.v_proj.weight`),
      o: this.#source.matrix(`${stem}.o_proj.weight`),
      qNorm: this.vector(`${stem}.q_norm.weight`),
      kNorm: this.vector(`${stem}.k_norm.weight`),
    };
  }

  deltaNet(layerPrefix: string, stateLayer: number): DeltaNetWeights {
    const stem = `${layerPrefix}linear_attn`;
    return {
      kind: 'deltaNet',
      stateLayer,
      qkv: this.#source.matrix(`${stem}.in_proj_qkv.weight`),
      z: this.#source.matrix(`${stem}.in_proj_z.weight`),
      b: this.#source.matrix(`${stem}.in_proj_b.weight`),
      a: this.#source.matrix(`${stem}.in_proj_a.weight`),
      out: this.#source.matrix(`${stem}.out_proj.weight`),
      conv: this.vector(`${stem}.conv1d.weight`),
      aLog: this.vector(`${stem}.A_log`),
      dtBias: this.vector(`${stem}.dt_bias`),
      norm: this.vector(`${stem}.norm.weight`),
    };
  }
}

export function readWeights(backend: Backend, source: WeightSource): Qwen35Weights {
  const reader = new Reader(backend, source);
  let kvLayers = 0;
  let stateLayers = 0;
  const layers = source.config.layerTypes.map((type, i) => {
    const p = `model.layers.${i}.`;
    const mixer =
      type === 'full_attention' ? reader.attention(p, kvLayers++) : reader.deltaNet(p, stateLayers++);
    return reader.layer(p, mixer);
  });
  const embed = source.matrix('model.embed_tokens.weight');
  const mtp = source.has('mtp.fc.weight')
    ? {
        fc: source.matrix('mtp.fc.weight'),
        embeddingNorm: reader.vector('mtp.pre_fc_norm_embedding.weight'),
        hiddenNorm: reader.vector('mtp.pre_fc_norm_hidden.weight'),
        norm: reader.vector('mtp.norm.weight'),
        layer: reader.layer('mtp.layers.0.', reader.attention('mtp.layers.0.', kvLayers++)),
      }
    : null;
  return {
    embed,
    head: source.has('lm_head.weight') ? source.matrix('lm_head.weight') : embed,
    norm: reader.vector('model.norm.weight'),
    layers,
    mtp,
    kvLayers,
    stateLayers,
    buffers: reader.buffers,
  };
}
