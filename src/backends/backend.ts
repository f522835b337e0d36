/**
 * The seam between models and arithmetic: memory, weights and the table of ops.
 *
 * Ops are issued in order and may run later; only `read` waits. The `reference` back-end (plain TypeScript)
 * defines every op, a fast back-end is right when it agrees. All activations are fp32, row-major [rows, width].
 *
 * Canonical arithmetic (architecture, section 7): what an op computes for a row depends on that row, its
 * ancestors and its absolute position alone. Not on the other rows of the call, on the slicing of prefill,
 * on the tree around it, or on the number of threads. Reduction orders are fixed per output element.
 *
 * A sequence's rows are a known chain (prompt slice, or the one token chosen last), then draft nodes.
 * Chain rows are committed by the forward itself; nodes leave a trace in per-slot scratch memory only, until
 * `commitNodes` moves an accepted path into pages and state.
 */
import { assert } from '../util/index.ts';

/** Device memory. `id` means something to its back-end only. */
export interface Buffer {
  readonly id: number;
  readonly bytes: number;
}

/** How a weight matrix [outDim, inDim] is stored. */
export type WeightFormat =
  /** Tiles of 16 outputs x 16 inputs, 144 bytes each (dtypes: `packTiles`), with one fp32 tensor scale. */
  | 'nvfp4-tile'
  /** Row-major. */
  | 'bf16'
  | 'f32'
  /** Row-major E4M3 with one fp32 tensor scale. */
  | 'fp8'
  /**
   * Row-major E4M3, then from a multiple of 4 bytes on fp32 scales [outDim, ceil(inDim / group)]: one per row, or one per 128, 64
   * or 32 inputs. A value is its code times its scale, rounded to fp32.
   */
  | ScaledFp8;

export type ScaledFp8 = keyof typeof scaledFp8Groups;

/** Inputs that share a scale; null = the whole row. */
export const scaledFp8Groups = { 'fp8-row': null, 'fp8-128': 128, 'fp8-64': 64, 'fp8-32': 32 } as const;

export const isScaledFp8 = (format: WeightFormat): format is ScaledFp8 => format in scaledFp8Groups;

/** The format of scaled FP8 with a scale per `group` inputs; asserts that there is one. */
export function scaledFp8Format(group: number, inDim: number): ScaledFp8 {
  const formats = Object.entries(scaledFp8Groups) as [ScaledFp8, number | null][];
  const found = formats.find(([, inputs]) => (inputs === null ? group >= inDim : group === inputs));
  assert(found !== undefined, `${group} inputs per scale are a format`);
  return found[0];
}

/** Where the scales of scaled FP8 lie behind the codes, and how many there are per output. */
export function scaledFp8Layout(
  format: ScaledFp8,
  [outDim, inDim]: readonly [number, number],
): { readonly offset: number; readonly group: number; readonly perRow: number; readonly bytes: number } {
  const group = scaledFp8Groups[format] ?? inDim;
  const offset = Math.ceil((outDim * inDim) / 4) * 4;
  const perRow = Math.ceil(inDim / group);
  return { offset, group, perRow, bytes: offset + 4 * outDim * perRow };
}

export interface WeightSpec {
  readonly format: WeightFormat;
  readonly outDim: number;
  readonly inDim: number;
  /** Tensor scale of nvfp4-tile (`weight_scale_2`) and fp8 (`weight_scale`); 1 otherwise. */
  readonly scale: number;
}

/** A weight matrix that `linear` and `embed` accept. */
export interface Weight extends WeightSpec {
  readonly id: number;
}

/** A file whose bytes back weights: mapped by `native`, read by `reference`. Close it after the last use. */
export interface WeightFile {
  readonly path: string;
  weight(spec: WeightSpec, byteOffset: number, bytes: number): Weight;
  close(): void;
}

export type KvDtype = 'fp8' | 'bf16' | 'f32';

/**
 * Paged K and V of all attention layers. Page layout [layer][k|v][kvHead][pageTokens][headDim]; K is stored
 * after norm and rope. `slots` x `maxNodes` scratch rows hold the K and V of draft nodes.
 */
export interface KvSpec {
  readonly dtype: KvDtype;
  readonly layers: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly pageTokens: number;
  readonly pages: number;
  readonly slots: number;
  readonly maxNodes: number;
}

export interface KvPool extends KvSpec {
  readonly id: number;
  readonly pageBytes: number;
}

/**
 * Recurrent state of all gated-delta-net layers, with the log of architecture section 7.
 *
 * With n committed tokens, C = `chunk`, k = floor(n / C): a slot holds S at C*max(0,k-1) and at C*k
 * (S of multiple j lives in half j % 2), the log rows (k-hat, R, g) of positions [C*max(0,k-1), n) in a ring
 * of 2C rows indexed by position % 2C, and the last `convKernel - 1` raw conv inputs. A row at position p
 * is computed from S at base(p) = C*max(0, floor(p/C)-1) and its ancestors since then, so nodes may be at
 * most C deep below the last chain row. S at a new multiple of C is materialized when the row before it is committed.
 *
 * `snapshots` are fixed-size copies of one slot at some n, including its `hidden` row.
 */
export interface StateSpec {
  readonly layers: number;
  readonly keyHeads: number;
  readonly valueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly convKernel: number;
  readonly chunk: number;
  /** Width of the hidden row kept per slot (the MTP input); 0 for none. */
  readonly hiddenDim: number;
  readonly slots: number;
  readonly maxNodes: number;
  readonly snapshots: number;
}

export interface StatePool extends StateSpec {
  readonly id: number;
  readonly snapshotBytes: number;
}

/** The rows of one sequence in a forward. */
export interface Segment {
  /** Slot of the sequence in the pools. */
  readonly slot: number;
  /** First row in the batch; chain rows come first, then the nodes. */
  readonly firstRow: number;
  /** Committed tokens before this forward. */
  readonly ctxLen: number;
  /** Rows at positions ctxLen .. ctxLen + chainLen - 1, committed by this forward. May be 0 for MTP drafting. */
  readonly chainLen: number;
  /** Page ids by page index; covers at least ctxLen + chainLen tokens. */
  readonly pages: Int32Array;
  /** Parent node of every draft node so far, -1 = the last chain row (or the last committed token). Topological order. */
  readonly nodeParents: Int32Array;
  /** Nodes nodeStart .. nodeParents.length - 1 are rows of this forward; earlier ones are still in scratch (then chainLen is 0). */
  readonly nodeStart: number;
}

export interface Batch {
  readonly rows: number;
  readonly ids: Int32Array;
  /** Absolute position of each row: chain row i = ctxLen + i, node = ctxLen + chainLen + depth (child of -1: depth 0). */
  readonly positions: Int32Array;
  readonly segments: readonly Segment[];
}

export interface RopeSpec {
  /** Rotated channels per head, the first ones. */
  readonly rotaryDim: number;
  /** [rotaryDim / 2] inverse frequencies (YaRN already applied). */
  readonly invFreq: Float32Array;
  /** Factor on cos and sin (1 without YaRN). */
  readonly scale: number;
}

export interface QkvPrep {
  /** [rows, heads, headDim] */
  readonly q: Buffer;
  /** [rows, heads * headDim] */
  readonly gate: Buffer;
  /** [rows, kvHeads, headDim] */
  readonly k: Buffer;
  /** Input [rows, heads, 2 * headDim]: query then gate of each head. */
  readonly qg: Buffer;
  /** Input [rows, kvHeads, headDim], the raw k projection. */
  readonly rawK: Buffer;
  /** [headDim] raw weights w of rms1p (the op multiplies by 1 + w). */
  readonly qNorm: Buffer;
  readonly kNorm: Buffer;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly eps: number;
  readonly rope: RopeSpec;
}

/** Which experts compute which rows, as `route` chose them. */
export interface Routes {
  /** int32 [rows, k]: ids of experts, best first, no id twice in a row. */
  readonly experts: Buffer;
  readonly rows: number;
  readonly k: number;
  /** Where the choices of a row take their input: `row` = x [rows, inDim], one for all; `choice` = x [rows * k, inDim], one each. */
  readonly input: 'row' | 'choice';
}

export interface DeltaRule {
  /** Output [rows, valueHeads, valueDim], before the gated norm. */
  readonly out: Buffer;
  /** Conv output after SiLU [rows, 2*keyHeads*keyDim + valueHeads*valueDim]: Q | K | V. The op applies L2 norm and the q scale. */
  readonly qkv: Buffer;
  /** [rows, valueHeads]: projections b and a; beta = sigmoid(b), g = -exp(aLog) * softplus(a + dtBias). */
  readonly b: Buffer;
  readonly a: Buffer;
  /** [valueHeads] */
  readonly aLog: Buffer;
  readonly dtBias: Buffer;
}

export interface CommitPath {
  readonly slot: number;
  /** Committed tokens before the path, i.e. ctxLen + chainLen of the forward that computed the nodes. */
  readonly ctxLen: number;
  /** Accepted nodes, from a child of -1 down. May be empty. */
  readonly nodes: Int32Array;
  /** Page table covering ctxLen + nodes.length tokens. */
  readonly pages: Int32Array;
}

export interface Backend {
  readonly name: 'reference' | 'native';
  /** Which kernels were chosen and why, for `inspect`: e.g. `avx512-vnni, 2 threads (detected)`. */
  readonly detail: string;

  // ---- memory -------------------------------------------------------------------------------------------
  /** Zeroed memory of n fp32 (or int32) values. */
  alloc(count: number): Buffer;
  /** Takes effect after the ops before it. */
  free(buffer: Buffer): void;
  upload(values: Float32Array): Buffer;
  /** Waits for the ops before it, then copies `dst.length` values from value index `from` on. */
  read(src: Buffer, from: number, dst: Float32Array | Int32Array): Promise<void>;
  write(dst: Buffer, from: number, values: Float32Array | Int32Array): void;
  openWeights(path: string): WeightFile;
  /** A weight from memory (tests, plain checkpoints): bytes in the layout of `spec.format`. */
  weightFrom(spec: WeightSpec, bytes: Uint8Array): Weight;
  createKvPool(spec: KvSpec): KvPool;
  createStatePool(spec: StateSpec): StatePool;
  /** Gives the physical memory of unused pages / snapshots back to the system; their content becomes undefined. */
  discardPages(pool: KvPool, pages: Int32Array): void;
  discardSnapshots(pool: StatePool, snapshots: Int32Array): void;
  /** Frees everything. Using the back-end afterwards is an error. */
  close(): void;

  // ---- ops: rows ----------------------------------------------------------------------------------------
  /** out[r] = table[ids[r]], table bf16 or f32 [vocab, dim]. */
  embed(out: Buffer, table: Weight, ids: Int32Array): void;
  /** out = x * rsqrt(mean(x^2) + eps) * (1 + w), per row of `dim`. `out` may be `x`. */
  rmsNorm(out: Buffer, x: Buffer, w: Buffer, shape: { rows: number; dim: number; eps: number }): void;
  /**
   * out[r, o] = scale * sum_i W[o, i] x[r, i]. nvfp4-tile: x is quantized per row in groups of 128 inputs to int8
   * (scale = max|x| / 127; code = x * (127 / max|x|) in fp32, to the nearest, ties to even), int32 within a block of 16,
   * fp32 beyond, groups summed in order. Other formats: fp32 activations, fp32 accumulation. `out` is not `x`.
   */
  linear(out: Buffer, weight: Weight, x: Buffer, rows: number): void;
  /** x += y over count values. */
  add(x: Buffer, y: Buffer, count: number): void;
  /** out = silu(gate) * up; silu(a) = a / (1 + exp(-a)). `out` may be an input. */
  siluMul(out: Buffer, gate: Buffer, up: Buffer, count: number): void;
  /** out = x * sigmoid(gate). `out` may be an input. */
  sigmoidMul(out: Buffer, x: Buffer, gate: Buffer, count: number): void;
  /** out[i] = src[rows[i]], rows of `dim`. */
  gatherRows(out: Buffer, src: Buffer, rows: Int32Array, dim: number): void;
  /** dst[r] = [a[r] ; b[r]], widths dimA and dimB (the MTP input). */
  concatRows(dst: Buffer, a: Buffer, b: Buffer, shape: { rows: number; dimA: number; dimB: number }): void;

  // ---- ops: mixture of experts --------------------------------------------------------------------------
  /**
   * The k best of softmax(logits[r, 0..experts)), best first, ties to the lower id: ids (int32) and probabilities, both [rows, k].
   * The softmax runs over all experts; with `renormalize` the k probabilities of a row are divided by their sum.
   */
  route(
    out: { experts: Buffer; weights: Buffer },
    logits: Buffer,
    shape: { rows: number; experts: number; k: number; renormalize: boolean },
  ): void;
  /**
   * out[r * k + j] = `linear` of experts[ids[r, j]] over the row's input, bit for bit; out [rows * k, outDim]. The experts have one
   * shape. Rows are sorted by expert inside, so that the weights of a chosen expert are read once and the others never.
   */
  groupedLinear(out: Buffer, experts: readonly Weight[], x: Buffer, routes: Routes): void;
  /** out[r] = sum over j, in order, of weights[r, j] * y[r * k + j]; y [rows * k, dim]. `out` is not `y`. */
  mixExperts(out: Buffer, y: Buffer, weights: Buffer, shape: { rows: number; k: number; dim: number }): void;
  /** x[r] += sigmoid(gate[r]) * y[r]; x and y [rows, dim], gate [rows]. */
  addGated(x: Buffer, y: Buffer, gate: Buffer, shape: { rows: number; dim: number }): void;

  // ---- ops: attention -----------------------------------------------------------------------------------
  /** Splits query and gate, norms q and k per head (rms1p), rotates the first rotaryDim channels (half split). */
  prepareQkv(args: QkvPrep, batch: Batch): void;
  /**
   * Stores k / kScale and v / vScale [rows, kvHeads, headDim] in the pool's dtype: chain rows into pages, nodes into scratch.
   * What is read is the stored value times the scale.
   */
  storeKv(
    pool: KvPool,
    layer: number,
    kv: { k: Buffer; v: Buffer; kScale: number; vScale: number },
    batch: Batch,
  ): void;
  /**
   * out[r, h] = softmax(q k^T / sqrt(headDim)) v over the row's path (committed tokens, chain, ancestor nodes, itself),
   * query head h using KV head floor(h / (heads / kvHeads)). Online softmax over blocks of pageTokens at absolute positions,
   * in order, keys and values as stored. Call after `storeKv` of the same layer.
   */
  attention(
    out: Buffer,
    args: { q: Buffer; pool: KvPool; layer: number; heads: number; kScale: number; vScale: number },
    batch: Batch,
  ): void;

  // ---- ops: gated delta net -----------------------------------------------------------------------------
  /** out = silu(causal depthwise conv(m)) over the row's path, w [channels, convKernel], last tap = current row. Chain rows are committed. */
  conv(out: Buffer, m: Buffer, w: Buffer, pool: StatePool, layer: number, batch: Batch): void;
  /** The closed form of qwen35-model 5.6 from S at base(p) and the log. Chain rows are committed (log, S at multiples of C). */
  deltaRule(args: DeltaRule, pool: StatePool, layer: number, batch: Batch): void;
  /** out = w * (o * rsqrt(mean(o^2) + eps)) * silu(z), per head of `dim`; w [dim] plain. `out` may be `o`. */
  gatedRmsNorm(
    out: Buffer,
    o: Buffer,
    z: Buffer,
    w: Buffer,
    shape: { rows: number; dim: number; eps: number },
  ): void;

  // ---- ops: head ----------------------------------------------------------------------------------------
  /** out[r] (int32) = index of the largest of logits[r, 0..usable), the lowest index among equals. `width` = stored row length. */
  argmax(out: Buffer, logits: Buffer, shape: { rows: number; width: number; usable: number }): void;
  /**
   * The k best of logits[r, 0..usable) per row, best first, ties to the lower id: ids (int32) [rows, k] and
   * logProbs [rows, k] = logit - logsumexp(logits[r, 0..usable)).
   */
  topK(
    out: { ids: Buffer; logProbs: Buffer },
    logits: Buffer,
    shape: { rows: number; width: number; usable: number; k: number },
  ): void;

  // ---- ops: sequence state ------------------------------------------------------------------------------
  /** Moves an accepted path from scratch into pages (all layers, or only `layers`). */
  commitKv(pool: KvPool, path: CommitPath, layers: { from: number; to: number }): void;
  /** Moves an accepted path into the conv window, the log and, at multiples of C, into S; all layers. */
  commitState(pool: StatePool, path: CommitPath): void;
  /** dst page becomes a copy of src page (all layers). */
  copyPage(pool: KvPool, dst: number, src: number): void;
  /** The state of an empty sequence. */
  resetState(pool: StatePool, slot: number): void;
  saveState(pool: StatePool, slot: number, tokens: number, snapshot: number): void;
  restoreState(pool: StatePool, slot: number, tokens: number, snapshot: number): void;
  /** The slot's hidden row = src[row]; and back: out[0] = hidden row. */
  keepHidden(pool: StatePool, slot: number, src: Buffer, row: number): void;
  loadHidden(out: Buffer, row: number, pool: StatePool, slot: number): void;
}
