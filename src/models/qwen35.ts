/**
 * The Qwen3.5 family: gated full attention and gated delta nets, with an optional multi-token-prediction layer.
 * Mathematics: qwen35-model sections 2 and 4. Norm weights are raw (the op adds 1), linear weights have no biases.
 */
import type { Backend, Batch, Buffer, Weight } from '../backends/index.ts';
import { assert, present } from '../util/index.ts';
import type { ForwardResult, Model, MtpInput, Pools } from './model.ts';
import { ropeOf } from './rope.ts';
import type { WeightSource } from './weight-source.ts';

/** Positions between two materialized states of the delta rule; drafts may be as deep. */
export const deltaChunk = 32;

interface Mlp {
  readonly gate: Weight;
  readonly up: Weight;
  readonly down: Weight;
}

interface AttentionWeights {
  readonly kind: 'attention';
  /** Layer index in the KV pool. */
  readonly kvLayer: number;
  readonly q: Weight;
  readonly k: Weight;
  readonly v: Weight;
  readonly o: Weight;
  readonly qNorm: Buffer;
  readonly kNorm: Buffer;
  readonly kScale: number;
  readonly vScale: number;
}

interface DeltaWeights {
  readonly kind: 'delta';
  /** Layer index in the state pool. */
  readonly stateLayer: number;
  readonly qkv: Weight;
  readonly z: Weight;
  readonly b: Weight;
  readonly a: Weight;
  readonly out: Weight;
  readonly conv: Buffer;
  readonly aLog: Buffer;
  readonly dtBias: Buffer;
  readonly norm: Buffer;
}

interface Layer {
  readonly inputNorm: Buffer;
  readonly mixer: AttentionWeights | DeltaWeights;
  readonly mlpNorm: Buffer;
  readonly mlp: Mlp;
}

interface MtpWeights {
  readonly embeddingNorm: Buffer;
  readonly hiddenNorm: Buffer;
  readonly fc: Weight;
  readonly layer: Layer;
  readonly norm: Buffer;
}

/** Activation buffers; the comment is the width of a row. */
interface Activations {
  readonly h: Buffer; // hidden
  readonly x: Buffer; // hidden
  readonly y: Buffer; // hidden
  readonly pair: Buffer; // 2 * hidden
  readonly wide: Buffer; // qg, or the delta net's q|k|v
  readonly mixed: Buffer; // conv output
  readonly gate: Buffer; // attention gate, or z
  readonly q: Buffer;
  readonly k: Buffer;
  readonly rawK: Buffer;
  readonly v: Buffer;
  readonly core: Buffer; // attention or delta output
  readonly a: Buffer;
  readonly b: Buffer;
  readonly up: Buffer; // intermediate
  readonly gateUp: Buffer; // intermediate
  readonly headIn: Buffer; // hidden, logit rows
  readonly logits: Buffer; // vocab, logit rows
}

export interface Qwen35Options {
  /** Rows of one forward. */
  readonly maxRows: number;
  /** Rows whose logits may be asked for at once. */
  readonly maxLogitRows: number;
}

export function loadQwen35(backend: Backend, source: WeightSource, options: Qwen35Options): Model {
  return new Qwen35(backend, source, options);
}

class Qwen35 implements Model {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly maxPositions: number;
  readonly maxRows: number;
  readonly hasMtp: boolean;
  readonly kvShape: Model['kvShape'];
  readonly stateShape: Model['stateShape'];
  readonly #backend: Backend;
  readonly #config: WeightSource['config'];
  readonly #maxLogitRows: number;
  readonly #rope: ReturnType<typeof ropeOf>;
  readonly #embed: Weight;
  readonly #layers: readonly Layer[];
  readonly #norm: Buffer;
  readonly #head: Weight;
  readonly #mtp: MtpWeights | null;
  readonly #act: Activations;
  /** Post-norm rows of the last target forward and of the last MTP forward. */
  readonly #hidden: Buffer;
  readonly #mtpHidden: Buffer;

  constructor(backend: Backend, source: WeightSource, { maxRows, maxLogitRows }: Qwen35Options) {
    const config = source.config;
    this.#backend = backend;
    this.#config = config;
    this.#maxLogitRows = maxLogitRows;
    this.maxRows = maxRows;
    this.vocabSize = config.vocabSize;
    this.hiddenSize = config.hiddenSize;
    this.maxPositions = config.maxPositions;
    this.hasMtp = source.hasMtp;
    this.#rope = ropeOf(config);
    const load = new Loader(backend, source);
    this.#embed = source.matrix('model.embed_tokens.weight');
    this.#layers = config.layerTypes.map((_, i) => load.layer(i));
    this.#norm = load.vector('model.norm.weight');
    this.#head = source.matrix('lm_head.weight');
    this.#mtp = source.hasMtp ? load.mtp() : null;
    this.kvShape = { layers: load.kvLayers, kvHeads: config.kvHeads, headDim: config.headDim };
    this.stateShape = {
      layers: load.stateLayers,
      keyHeads: config.linKeyHeads,
      valueHeads: config.linValueHeads,
      keyDim: config.linKeyDim,
      valueDim: config.linValueDim,
      convKernel: config.convKernel,
      chunk: deltaChunk,
      hiddenDim: source.hasMtp ? config.hiddenSize : 0,
    };
    this.#act = allocate(backend, config, { maxRows, maxLogitRows });
    this.#hidden = backend.alloc(maxRows * config.hiddenSize);
    this.#mtpHidden = backend.alloc(maxRows * config.hiddenSize);
  }

  forward(batch: Batch, logitRows: Int32Array, pools: Pools): ForwardResult {
    this.#checkRows(batch.rows, logitRows);
    const { h } = this.#act;
    this.#backend.embed(h, this.#embed, batch.ids);
    for (const layer of this.#layers) this.#layer(layer, batch, pools);
    this.#rms(this.#hidden, h, this.#norm, batch.rows);
    return { logits: this.#logits(this.#hidden, logitRows), hidden: this.#hidden };
  }

  forwardMtp(batch: Batch, { hidden, logitRows }: MtpInput, pools: Pools): ForwardResult {
    const mtp = present(this.#mtp, 'MTP weights');
    this.#checkRows(batch.rows, logitRows);
    const { h, x, y, pair } = this.#act;
    const { rows } = batch;
    const dim = this.hiddenSize;
    this.#backend.embed(h, this.#embed, batch.ids);
    this.#rms(x, h, mtp.embeddingNorm, rows);
    this.#rms(y, hidden, mtp.hiddenNorm, rows);
    this.#backend.concatRows(pair, x, y, { rows, dimA: dim, dimB: dim });
    this.#backend.linear(h, mtp.fc, pair, rows);
    this.#layer(mtp.layer, batch, pools);
    this.#rms(this.#mtpHidden, h, mtp.norm, rows);
    return { logits: this.#logits(this.#mtpHidden, logitRows), hidden: this.#mtpHidden };
  }

  close(): void {
    for (const buffer of [...Object.values(this.#act), this.#hidden, this.#mtpHidden])
      this.#backend.free(buffer);
  }

  #checkRows(rows: number, logitRows: Int32Array): void {
    assert(rows >= 1 && rows <= this.maxRows, `${rows} rows, the limit is ${this.maxRows}`);
    assert(
      logitRows.length <= this.#maxLogitRows,
      `${logitRows.length} logit rows, the limit is ${this.#maxLogitRows}`,
    );
  }

  #rms(out: Buffer, x: Buffer, w: Buffer, rows: number): void {
    this.#backend.rmsNorm(out, x, w, { rows, dim: this.hiddenSize, eps: this.#config.eps });
  }

  #logits(hidden: Buffer, rows: Int32Array): Buffer {
    const { headIn, logits } = this.#act;
    if (rows.length > 0) {
      this.#backend.gatherRows(headIn, hidden, rows, this.hiddenSize);
      this.#backend.linear(logits, this.#head, headIn, rows.length);
    }
    return logits;
  }

  #layer(layer: Layer, batch: Batch, pools: Pools): void {
    const { h, x, y, up, gateUp } = this.#act;
    const { rows } = batch;
    this.#rms(x, h, layer.inputNorm, rows);
    if (layer.mixer.kind === 'attention') this.#attention(layer.mixer, batch, pools);
    else this.#delta(layer.mixer, batch, pools);
    this.#backend.add(h, y, rows * this.hiddenSize);
    this.#rms(x, h, layer.mlpNorm, rows);
    this.#backend.linear(gateUp, layer.mlp.gate, x, rows);
    this.#backend.linear(up, layer.mlp.up, x, rows);
    this.#backend.siluMul(up, gateUp, up, rows * this.#config.intermediateSize);
    this.#backend.linear(y, layer.mlp.down, up, rows);
    this.#backend.add(h, y, rows * this.hiddenSize);
  }

  /** y = gated attention of x */
  #attention(w: AttentionWeights, batch: Batch, { kv }: Pools): void {
    const { x, y, wide, gate, q, k, rawK, v, core } = this.#act;
    const { heads, kvHeads, headDim, eps } = this.#config;
    const { rows } = batch;
    const backend = this.#backend;
    backend.linear(wide, w.q, x, rows);
    backend.linear(rawK, w.k, x, rows);
    backend.linear(v, w.v, x, rows);
    const { qNorm, kNorm, kScale, vScale } = w;
    backend.prepareQkv(
      { q, gate, k, qg: wide, rawK, qNorm, kNorm, heads, kvHeads, headDim, eps, rope: this.#rope },
      batch,
    );
    backend.storeKv(kv, w.kvLayer, { k, v, kScale, vScale }, batch);
    backend.attention(core, { q, pool: kv, layer: w.kvLayer, heads, kScale, vScale }, batch);
    backend.sigmoidMul(core, core, gate, rows * heads * headDim);
    backend.linear(y, w.o, core, rows);
  }

  /** y = gated delta net of x */
  #delta(w: DeltaWeights, batch: Batch, { state }: Pools): void {
    const { x, y, wide, mixed, gate, a, b, core } = this.#act;
    const { linValueHeads, linValueDim, eps } = this.#config;
    const { rows } = batch;
    const backend = this.#backend;
    backend.linear(wide, w.qkv, x, rows);
    backend.linear(gate, w.z, x, rows);
    backend.linear(b, w.b, x, rows);
    backend.linear(a, w.a, x, rows);
    backend.conv(mixed, wide, w.conv, state, w.stateLayer, batch);
    backend.deltaRule(
      { out: core, qkv: mixed, b, a, aLog: w.aLog, dtBias: w.dtBias },
      state,
      w.stateLayer,
      batch,
    );
    backend.gatedRmsNorm(core, core, gate, w.norm, { rows: rows * linValueHeads, dim: linValueDim, eps });
    backend.linear(y, w.out, core, rows);
  }
}

class Loader {
  kvLayers = 0;
  stateLayers = 0;
  readonly #backend: Backend;
  readonly #source: WeightSource;

  constructor(backend: Backend, source: WeightSource) {
    this.#backend = backend;
    this.#source = source;
  }

  vector(name: string): Buffer {
    return this.#backend.upload(this.#source.vector(name));
  }

  layer(index: number): Layer {
    const p = `model.layers.${index}.`;
    const isAttention = this.#source.config.layerTypes[index] === 'full_attention';
    return this.#block(p, isAttention ? this.#attention(`${p}self_attn`) : this.#delta(`${p}linear_attn.`));
  }

  mtp(): MtpWeights {
    const p = 'mtp.layers.0.';
    return {
      embeddingNorm: this.vector('mtp.pre_fc_norm_embedding.weight'),
      hiddenNorm: this.vector('mtp.pre_fc_norm_hidden.weight'),
      fc: this.#source.matrix('mtp.fc.weight'),
      layer: this.#block(p, this.#attention(`${p}self_attn`)),
      norm: this.vector('mtp.norm.weight'),
    };
  }

  #block(p: string, mixer: Layer['mixer']): Layer {
    const matrix = (name: string): Weight => this.#source.matrix(`${p}mlp.${name}_proj.weight`);
    return {
      inputNorm: this.vector(`${p}input_layernorm.weight`),
      mixer,
      mlpNorm: this.vector(`${p}post_attention_layernorm.weight`),
      mlp: { gate: matrix('gate'), up: matrix('up'), down: matrix('down') },
    };
  }

  #attention(stem: string): AttentionWeights {
    const matrix = (name: string): Weight => this.#source.matrix(`${stem}.${name}_proj.weight`);
    const scales = this.#source.kvScales(stem);
    return {
      kind: 'attention',
      kvLayer: this.kvLayers++,
      q: matrix('q'),
      k: matrix('k'),
      v: matrix('v'),
      o: matrix('o'),
      qNorm: this.vector(`${stem}.q_norm.weight`),
      kNorm: this.vector(`${stem}.k_norm.weight`),
      kScale: scales.k,
      vScale: scales.v,
    };
  }

  #delta(p: string): DeltaWeights {
    const matrix = (name: string): Weight => this.#source.matrix(`${p}${name}.weight`);
    return {
      kind: 'delta',
      stateLayer: this.stateLayers++,
      qkv: matrix('in_proj_qkv'),
      z: matrix('in_proj_z'),
      b: matrix('in_proj_b'),
      a: matrix('in_proj_a'),
      out: matrix('out_proj'),
      conv: this.vector(`${p}conv1d.weight`),
      aLog: this.vector(`${p}A_log`),
      dtBias: this.vector(`${p}dt_bias`),
      norm: this.vector(`${p}norm.weight`),
    };
  }
}

function allocate(
  backend: Backend,
  c: WeightSource['config'],
  { maxRows, maxLogitRows }: Qwen35Options,
): Activations {
  const rows = (width: number): Buffer => backend.alloc(maxRows * width);
  const attention = c.heads * c.headDim;
  const values = c.linValueHeads * c.linValueDim;
  const channels = 2 * c.linKeyHeads * c.linKeyDim + values;
  return {
    h: rows(c.hiddenSize),
    x: rows(c.hiddenSize),
    y: rows(c.hiddenSize),
    pair: rows(2 * c.hiddenSize),
    wide: rows(Math.max(2 * attention, channels)),
    mixed: rows(channels),
    gate: rows(Math.max(attention, values)),
    q: rows(attention),
    k: rows(c.kvHeads * c.headDim),
    rawK: rows(c.kvHeads * c.headDim),
    v: rows(c.kvHeads * c.headDim),
    core: rows(Math.max(attention, values)),
    a: rows(c.linValueHeads),
    b: rows(c.linValueHeads),
    up: rows(c.intermediateSize),
    gateUp: rows(c.intermediateSize),
    headIn: backend.alloc(maxLogitRows * c.hiddenSize),
    logits: backend.alloc(maxLogitRows * c.vocabSize),
  };
}
