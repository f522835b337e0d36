/**
 * The hybrid models of the qwen3_5 family (qwen35-model 2 and 4): gated attention and gated delta net by layer type, SwiGLU, and
 * the MTP layer. A forward is a list of ops; all arithmetic, state and acceptance of rows is the back-end's.
 */
import type { Backend, Batch, Buffer, RopeSpec } from '../../backends/index.ts';
import type { ModelConfig } from '../../checkpoint/index.ts';
import { assert, present } from '../../util/index.ts';
import type { ForwardResult, Model, MtpInput, Pools } from '../model.ts';
import { ropeOf } from '../rope.ts';
import type { WeightSource } from '../weight-source.ts';
import {
  type AttentionWeights,
  type DeltaNetWeights,
  type LayerWeights,
  type Qwen35Weights,
  readWeights,
} from './weights.ts';

/** Tokens between materialized states (C of architecture, section 7). */
export const stateChunk = 32;

/** The model owns the source from here on and closes it. */
export function loadQwen35(
  backend: Backend,
  source: WeightSource,
  { maxRows }: { readonly maxRows: number },
): Model {
  assert(Number.isSafeInteger(maxRows) && maxRows > 0, `a forward of at most ${maxRows} rows`);
  return new Qwen35Model(backend, source, maxRows);
}

type Activations = ReturnType<typeof activationWidths>;

/** Width of a row of each activation. */
function activationWidths(c: ModelConfig) {
  const qWidth = c.heads * c.headDim;
  const kvWidth = c.kvHeads * c.headDim;
  const valueWidth = c.linValueHeads * c.linValueDim;
  const channels = 2 * c.linKeyHeads * c.linKeyDim + valueWidth;
  return {
    x: c.hiddenSize,
    normed: c.hiddenSize,
    mixed: c.hiddenSize,
    gathered: c.hiddenSize,
    hidden: c.hiddenSize,
    mtpHidden: c.hiddenSize,
    mtpInput: 2 * c.hiddenSize,
    gate: c.intermediateSize,
    up: c.intermediateSize,
    qg: 2 * qWidth,
    q: qWidth,
    qGate: qWidth,
    attended: qWidth,
    rawK: kvWidth,
    k: kvWidth,
    v: kvWidth,
    m: channels,
    qkv: channels,
    z: valueWidth,
    o: valueWidth,
    b: c.linValueHeads,
    a: c.linValueHeads,
  };
}

class Qwen35Model implements Model {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly maxPositions: number;
  readonly maxRows: number;
  readonly hasMtp: boolean;
  readonly kvShape: Model['kvShape'];
  readonly stateShape: Model['stateShape'];
  readonly #backend: Backend;
  readonly #source: WeightSource;
  readonly #config: ModelConfig;
  readonly #weights: Qwen35Weights;
  readonly #rope: RopeSpec;
  readonly #act: Record<keyof Activations, Buffer>;
  readonly #logits: { main: Buffer; mtp: Buffer };

  constructor(backend: Backend, source: WeightSource, maxRows: number) {
    const c = source.config;
    this.#backend = backend;
    this.#source = source;
    this.#config = c;
    this.#weights = readWeights(backend, source);
    this.#rope = ropeOf(c);
    this.vocabSize = c.vocabSize;
    this.hiddenSize = c.hiddenSize;
    this.maxPositions = c.maxPositions;
    this.maxRows = maxRows;
    this.hasMtp = this.#weights.mtp !== null;
    this.kvShape = { layers: this.#weights.kvLayers, kvHeads: c.kvHeads, headDim: c.headDim };
    this.stateShape = {
      layers: this.#weights.stateLayers,
      keyHeads: c.linKeyHeads,
      valueHeads: c.linValueHeads,
      keyDim: c.linKeyDim,
      valueDim: c.linValueDim,
      convKernel: c.convKernel,
      chunk: stateChunk,
      hiddenDim: this.hasMtp ? c.hiddenSize : 0,
    };
    const widths = Object.entries(activationWidths(c));
    this.#act = Object.fromEntries(
      widths.map(([name, width]) => [name, backend.alloc(maxRows * width)]),
    ) as Record<keyof Activations, Buffer>;
    this.#logits = { main: backend.alloc(c.vocabSize), mtp: backend.alloc(c.vocabSize) };
  }

  forward(batch: Batch, logitRows: Int32Array, pools: Pools): ForwardResult {
    const { x, hidden } = this.#act;
    this.#checkRows(batch, logitRows);
    this.#backend.embed(x, this.#weights.embed, batch.ids.subarray(0, batch.rows));
    for (const layer of this.#weights.layers) this.#layer(layer, batch, pools);
    this.#norm(hidden, x, this.#weights.norm, batch.rows);
    return { logits: this.#head('main', hidden, logitRows), hidden };
  }

  forwardMtp(batch: Batch, input: MtpInput, pools: Pools): ForwardResult {
    const { x, normed, mixed, mtpInput, mtpHidden } = this.#act;
    const mtp = present(this.#weights.mtp, 'the MTP layer of this model');
    const { rows } = batch;
    const dim = this.hiddenSize;
    this.#checkRows(batch, input.logitRows);
    this.#backend.embed(x, this.#weights.embed, batch.ids.subarray(0, rows));
    this.#norm(normed, x, mtp.embeddingNorm, rows);
    this.#norm(mixed, input.hidden, mtp.hiddenNorm, rows);
    this.#backend.concatRows(mtpInput, normed, mixed, { rows, dimA: dim, dimB: dim });
    this.#backend.linear(x, mtp.fc, mtpInput, rows);
    this.#layer(mtp.layer, batch, pools);
    this.#norm(mtpHidden, x, mtp.norm, rows);
    return { logits: this.#head('mtp', mtpHidden, input.logitRows), hidden: mtpHidden };
  }

  close(): void {
    const { main, mtp } = this.#logits;
    for (const buffer of [...Object.values(this.#act), ...this.#weights.buffers, main, mtp])
      this.#backend.free(buffer);
    this.#source.close();
  }

  #checkRows(batch: Batch, logitRows: Int32Array): void {
    assert(batch.rows > 0 && batch.rows <= this.maxRows, `${batch.rows} rows, at most ${this.maxRows}`);
    assert(batch.ids.length >= batch.rows, `${batch.rows} rows have tokens, got ${batch.ids.length}`);
    const outside = logitRows.find((row) => row < 0 || row >= batch.rows);
    assert(outside === undefined, `logit row ${outside} is one of ${batch.rows} rows`);
  }

  /** x += mixer(norm(x)); x += mlp(norm(x)) */
  #layer(layer: LayerWeights, batch: Batch, pools: Pools): void {
    const { x, normed, mixed, gate, up } = this.#act;
    const { rows } = batch;
    const count = rows * this.hiddenSize;
    this.#norm(normed, x, layer.inputNorm, rows);
    if (layer.mixer.kind === 'attention') this.#attention(layer.mixer, batch, pools);
    else this.#deltaNet(layer.mixer, batch, pools);
    this.#backend.add(x, mixed, count);
    this.#norm(normed, x, layer.postNorm, rows);
    this.#backend.linear(gate, layer.gate, normed, rows);
    this.#backend.linear(up, layer.up, normed, rows);
    this.#backend.siluMul(gate, gate, up, rows * this.#config.intermediateSize);
    this.#backend.linear(mixed, layer.down, gate, rows);
    this.#backend.add(x, mixed, count);
  }

  /** mixed = o_proj(attention * sigmoid(gate)) */
  #attention(w: AttentionWeights, batch: Batch, pools: Pools): void {
    const { normed, mixed, qg, q, qGate, attended, rawK, k, v } = this.#act;
    const { heads, kvHeads, headDim, eps } = this.#config;
    const { rows } = batch;
    const { kvLayer: layer, kScale, vScale, qNorm, kNorm } = w;
    const backend = this.#backend;
    backend.linear(qg, w.q, normed, rows);
    backend.linear(rawK, w.k, normed, rows);
    backend.linear(v, w.v, normed, rows);
    const shape = { heads, kvHeads, headDim, eps, rope: this.#rope };
    backend.prepareQkv({ q, gate: qGate, k, qg, rawK, qNorm, kNorm, ...shape }, batch);
    backend.storeKv(pools.kv, layer, { k, v, kScale, vScale }, batch);
    backend.attention(attended, { q, pool: pools.kv, layer, heads, kScale, vScale }, batch);
    backend.sigmoidMul(attended, attended, qGate, rows * heads * headDim);
    backend.linear(mixed, w.o, attended, rows);
  }

  /** mixed = out_proj(gated norm of the delta rule) */
  #deltaNet(w: DeltaNetWeights, batch: Batch, pools: Pools): void {
    const { normed, mixed, m, qkv, z, o, b, a } = this.#act;
    const { linValueHeads, linValueDim, eps } = this.#config;
    const { rows } = batch;
    const { aLog, dtBias, stateLayer } = w;
    const backend = this.#backend;
    backend.linear(m, w.qkv, normed, rows);
    backend.linear(z, w.z, normed, rows);
    backend.linear(b, w.b, normed, rows);
    backend.linear(a, w.a, normed, rows);
    backend.conv(qkv, m, w.conv, pools.state, stateLayer, batch);
    backend.deltaRule({ out: o, qkv, b, a, aLog, dtBias }, pools.state, stateLayer, batch);
    backend.gatedRmsNorm(o, o, z, w.norm, { rows: rows * linValueHeads, dim: linValueDim, eps });
    backend.linear(mixed, w.out, o, rows);
  }

  #norm(out: Buffer, x: Buffer, w: Buffer, rows: number): void {
    this.#backend.rmsNorm(out, x, w, { rows, dim: this.hiddenSize, eps: this.#config.eps });
  }

  #head(kind: 'main' | 'mtp', hidden: Buffer, logitRows: Int32Array): Buffer {
    const { gathered } = this.#act;
    const rows = logitRows.length;
    if (this.#logits[kind].bytes < rows * this.vocabSize * 4) this.#growLogits(kind, rows);
    if (rows === 0) return this.#logits[kind];
    this.#backend.gatherRows(gathered, hidden, logitRows, this.hiddenSize);
    this.#backend.linear(this.#logits[kind], this.#weights.head, gathered, rows);
    return this.#logits[kind];
  }

  /** Few rows want logits as a rule, and a row may be a megabyte wide: memory follows the need, by doubling. */
  #growLogits(kind: 'main' | 'mtp', rows: number): void {
    const rounded = Math.min(this.maxRows, 2 ** Math.ceil(Math.log2(rows)));
    this.#backend.free(this.#logits[kind]);
    this.#logits[kind] = this.#backend.alloc(Math.max(rows, rounded) * this.vocabSize);
  }
}
