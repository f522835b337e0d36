/**
 * The back-end that defines every op: plain TypeScript, one thread, written to be read beside the formulas.
 * Ops run at once. Storage is fp32 (or the pool's dtype); sums within an op are in double precision and rounded once, in an
 * order that depends on the row alone. Misuse (freed memory, rows past a buffer, unknown slots or pages) throws.
 */
import { assert, present } from '../../util/index.ts';
import type {
  Backend,
  Batch,
  Buffer,
  CommitPath,
  DeltaRule,
  KvPool,
  KvSpec,
  QkvPrep,
  Routes,
  StatePool,
  StateSpec,
  Weight,
  WeightFile,
  WeightSpec,
} from '../backend.ts';
import { attention, normAndRotate, storeKv } from './attention.ts';
import { conv, deltaRule, materializeIfDue } from './delta-net.ts';
import * as experts from './experts.ts';
import { KvStore } from './kv-store.ts';
import { linear } from './linear.ts';
import { Memory } from './memory.ts';
import * as ops from './rows.ts';
import { channelsOf, StateStore } from './state-store.ts';
import { Weights } from './weights.ts';

export function openReference(): Backend {
  return new ReferenceBackend();
}

class ReferenceBackend implements Backend {
  readonly name = 'reference';
  readonly detail = 'plain TypeScript, 1 thread';
  readonly #memory = new Memory();
  readonly #weights = new Weights();
  readonly #kv = new Map<number, KvStore>();
  readonly #states = new Map<number, StateStore>();

  // ---- memory -----------------------------------------------------------------------------------------

  alloc(count: number): Buffer {
    return this.#memory.alloc(count);
  }

  free(buffer: Buffer): void {
    this.#memory.free(buffer);
  }

  upload(values: Float32Array): Buffer {
    const buffer = this.#memory.alloc(values.length);
    this.#memory.write(buffer, 0, values);
    return buffer;
  }

  async read(src: Buffer, from: number, dst: Float32Array | Int32Array): Promise<void> {
    this.#memory.read(src, from, dst);
  }

  write(dst: Buffer, from: number, values: Float32Array | Int32Array): void {
    this.#memory.write(dst, from, values);
  }

  openWeights(path: string): WeightFile {
    this.#memory.checkOpen();
    return this.#weights.open(path);
  }

  weightFrom(spec: WeightSpec, bytes: Uint8Array): Weight {
    this.#memory.checkOpen();
    return this.#weights.add(spec, bytes);
  }

  createKvPool(spec: KvSpec): KvPool {
    this.#memory.checkOpen();
    const store = new KvStore(this.#kv.size + 1, spec);
    this.#kv.set(store.pool.id, store);
    return store.pool;
  }

  createStatePool(spec: StateSpec): StatePool {
    this.#memory.checkOpen();
    const store = new StateStore(this.#states.size + 1, spec);
    this.#states.set(store.pool.id, store);
    return store.pool;
  }

  discardPages(pool: KvPool, pages: Int32Array): void {
    this.#kvStore(pool).discard(pages);
  }

  discardSnapshots(pool: StatePool, snapshots: Int32Array): void {
    this.#stateStore(pool).discard(snapshots);
  }

  close(): void {
    this.#memory.close();
    this.#weights.close();
    this.#kv.clear();
    this.#states.clear();
  }

  // ---- ops: rows --------------------------------------------------------------------------------------

  embed(out: Buffer, table: Weight, ids: Int32Array): void {
    const weight = this.#weights.get(table);
    assert(weight.format === 'bf16' || weight.format === 'f32', `an embedding table in ${weight.format}`);
    assert(weight.kind === 'plain', 'an embedding table is plain');
    ops.embed(this.#memory.f32(out, ids.length * weight.inDim), weight.values, ids, weight.inDim);
  }

  rmsNorm(out: Buffer, x: Buffer, w: Buffer, shape: { rows: number; dim: number; eps: number }): void {
    const { rows, dim, eps } = shape;
    const f32 = this.#views(rows * dim);
    ops.rmsNorm(f32(out), f32(x), this.#memory.f32(w, dim), eps);
  }

  linear(out: Buffer, weight: Weight, x: Buffer, rows: number): void {
    const decoded = this.#weights.get(weight);
    assert(out.id !== x.id, 'the output of linear is not its input');
    const y = this.#memory.f32(out, rows * decoded.outDim);
    linear(y, decoded, this.#memory.f32(x, rows * decoded.inDim), rows);
  }

  add(x: Buffer, y: Buffer, count: number): void {
    const f32 = this.#views(count);
    ops.add(f32(x), f32(y));
  }

  siluMul(out: Buffer, gate: Buffer, up: Buffer, count: number): void {
    const f32 = this.#views(count);
    ops.siluMul(f32(out), f32(gate), f32(up));
  }

  sigmoidMul(out: Buffer, x: Buffer, gate: Buffer, count: number): void {
    const f32 = this.#views(count);
    ops.sigmoidMul(f32(out), f32(x), f32(gate));
  }

  gatherRows(out: Buffer, src: Buffer, rows: Int32Array, dim: number): void {
    assert(out.id !== src.id, 'the output of gatherRows is not its input');
    const to = this.#memory.f32(out, rows.length * dim);
    const from = this.#memory.f32(src, src.bytes / 4);
    rows.forEach((row, i) => {
      assert(row >= 0 && (row + 1) * dim <= from.length, `row ${row} of ${from.length / dim}`);
      to.set(from.subarray(row * dim, (row + 1) * dim), i * dim);
    });
  }

  concatRows(dst: Buffer, a: Buffer, b: Buffer, shape: { rows: number; dimA: number; dimB: number }): void {
    const { rows, dimA, dimB } = shape;
    const to = this.#memory.f32(dst, rows * (dimA + dimB));
    const left = this.#memory.f32(a, rows * dimA);
    const right = this.#memory.f32(b, rows * dimB);
    for (let row = 0; row < rows; row++) {
      to.set(left.subarray(row * dimA, (row + 1) * dimA), row * (dimA + dimB));
      to.set(right.subarray(row * dimB, (row + 1) * dimB), row * (dimA + dimB) + dimA);
    }
  }

  // ---- ops: mixture of experts ------------------------------------------------------------------------

  route(
    out: { experts: Buffer; weights: Buffer },
    logits: Buffer,
    shape: { rows: number; experts: number; k: number; renormalize: boolean },
  ): void {
    const { rows, experts: width, k } = shape;
    assert(k > 0 && k <= width, `${k} of ${width} experts`);
    const values = this.#memory.f32(logits, rows * width);
    const ids = this.#memory.i32(out.experts, rows * k);
    const weights = this.#memory.f32(out.weights, rows * k);
    const cut = <T extends Int32Array | Float32Array>(list: T, row: number, per: number): T =>
      list.subarray(row * per, (row + 1) * per) as T;
    for (let r = 0; r < rows; r++)
      experts.route(
        { ids: cut(ids, r, k), weights: cut(weights, r, k) },
        cut(values, r, width),
        shape.renormalize ? 'renormalize' : 'keep',
      );
  }

  groupedLinear(out: Buffer, weights: readonly Weight[], x: Buffer, routes: Routes): void {
    assert(out.id !== x.id, 'the output of groupedLinear is not its input');
    const decoded = weights.map((weight) => this.#weights.get(weight));
    const { outDim, inDim } = present(decoded[0], 'an expert');
    assert(
      decoded.every((weight) => weight.outDim === outDim && weight.inDim === inDim),
      `experts of one shape [${outDim}, ${inDim}]`,
    );
    const choices = routes.rows * routes.k;
    const inputs = routes.input === 'row' ? routes.rows : choices;
    experts.groupedLinear(
      this.#memory.f32(out, choices * outDim),
      decoded,
      this.#memory.f32(x, inputs * inDim),
      { ids: this.#memory.i32(routes.experts, choices), perInput: routes.input === 'row' ? routes.k : 1 },
    );
  }

  mixExperts(
    out: Buffer,
    y: Buffer,
    weights: Buffer,
    { rows, k, dim }: { rows: number; k: number; dim: number },
  ): void {
    assert(out.id !== y.id, 'the output of mixExperts is not its input');
    const to = this.#memory.f32(out, rows * dim);
    experts.mixExperts(to, this.#memory.f32(y, rows * k * dim), this.#memory.f32(weights, rows * k), dim);
  }

  addGated(x: Buffer, y: Buffer, gate: Buffer, { rows, dim }: { rows: number; dim: number }): void {
    const f32 = this.#views(rows * dim);
    experts.addGated(f32(x), f32(y), this.#memory.f32(gate, rows));
  }

  // ---- ops: attention ---------------------------------------------------------------------------------

  prepareQkv(args: QkvPrep, batch: Batch): void {
    const { heads, kvHeads, headDim, rope, eps } = args;
    assert(rope.invFreq.length === rope.rotaryDim / 2 && rope.rotaryDim <= headDim, 'rope fits the head');
    assert(batch.positions.length >= batch.rows, `${batch.rows} rows have positions`);
    const qWidth = batch.rows * heads * headDim;
    const q = this.#memory.f32(args.q, qWidth);
    const gate = this.#memory.f32(args.gate, qWidth);
    const qg = this.#memory.f32(args.qg, 2 * qWidth);
    const k = this.#memory.f32(args.k, batch.rows * kvHeads * headDim);
    const rawK = this.#memory.f32(args.rawK, batch.rows * kvHeads * headDim);
    const qNorm = { weight: this.#memory.f32(args.qNorm, headDim), eps };
    const kNorm = { weight: this.#memory.f32(args.kNorm, headDim), eps };
    for (let row = 0; row < batch.rows; row++) {
      const position = batch.positions[row] as number;
      for (let at = row * heads; at < (row + 1) * heads; at++) {
        const from = 2 * at * headDim;
        normAndRotate({ values: q, from: at * headDim }, { values: qg, from }, qNorm, position, rope);
        gate.set(qg.subarray(from + headDim, from + 2 * headDim), at * headDim);
      }
      for (let at = row * kvHeads; at < (row + 1) * kvHeads; at++) {
        const from = at * headDim;
        normAndRotate({ values: k, from }, { values: rawK, from }, kNorm, position, rope);
      }
    }
  }

  storeKv(
    pool: KvPool,
    layer: number,
    kv: { k: Buffer; v: Buffer; kScale: number; vScale: number },
    batch: Batch,
  ): void {
    const f32 = this.#views(batch.rows * pool.kvHeads * pool.headDim);
    storeKv(this.#kvStore(pool), layer, { ...kv, k: f32(kv.k), v: f32(kv.v) }, batch);
  }

  attention(
    out: Buffer,
    args: { q: Buffer; pool: KvPool; layer: number; heads: number; kScale: number; vScale: number },
    batch: Batch,
  ): void {
    assert(out.id !== args.q.id, 'the output of attention is not its input');
    const f32 = this.#views(batch.rows * args.heads * args.pool.headDim);
    attention(f32(out), { ...args, q: f32(args.q), store: this.#kvStore(args.pool) }, batch);
  }

  // ---- ops: gated delta net ---------------------------------------------------------------------------

  conv(out: Buffer, m: Buffer, w: Buffer, pool: StatePool, layer: number, batch: Batch): void {
    assert(out.id !== m.id, 'the output of conv is not its input');
    const channels = channelsOf(pool);
    const f32 = this.#views(batch.rows * channels);
    const io = { out: f32(out), m: f32(m), w: this.#memory.f32(w, channels * pool.convKernel) };
    conv(io, this.#stateStore(pool), layer, batch);
  }

  deltaRule(args: DeltaRule, pool: StatePool, layer: number, batch: Batch): void {
    const { valueHeads, valueDim } = pool;
    const perHead = this.#views(batch.rows * valueHeads);
    const rows = {
      out: this.#memory.f32(args.out, batch.rows * valueHeads * valueDim),
      qkv: this.#memory.f32(args.qkv, batch.rows * channelsOf(pool)),
      b: perHead(args.b),
      a: perHead(args.a),
      aLog: this.#memory.f32(args.aLog, valueHeads),
      dtBias: this.#memory.f32(args.dtBias, valueHeads),
    };
    deltaRule(rows, this.#stateStore(pool), layer, batch);
  }

  gatedRmsNorm(
    out: Buffer,
    o: Buffer,
    z: Buffer,
    w: Buffer,
    shape: { rows: number; dim: number; eps: number },
  ): void {
    const { rows, dim, eps } = shape;
    const f32 = this.#views(rows * dim);
    ops.gatedRmsNorm(f32(out), f32(o), f32(z), this.#memory.f32(w, dim), eps);
  }

  // ---- ops: head --------------------------------------------------------------------------------------

  argmax(out: Buffer, logits: Buffer, shape: { rows: number; width: number; usable: number }): void {
    const to = this.#memory.i32(out, shape.rows);
    this.#logitRows(logits, shape).forEach((row, i) => {
      to[i] = ops.argmax(row);
    });
  }

  topK(
    out: { ids: Buffer; logProbs: Buffer },
    logits: Buffer,
    shape: { rows: number; width: number; usable: number; k: number },
  ): void {
    const { rows, usable, k } = shape;
    assert(k > 0 && k <= usable, `the best ${k} of ${usable}`);
    const ids = this.#memory.i32(out.ids, rows * k);
    const logProbs = this.#memory.f32(out.logProbs, rows * k);
    this.#logitRows(logits, shape).forEach((row, i) => {
      const best = ops.topK(row, k);
      ids.set(best.ids, i * k);
      logProbs.set(best.logProbs, i * k);
    });
  }

  // ---- ops: sequence state ----------------------------------------------------------------------------

  commitKv(pool: KvPool, path: CommitPath, layers: { from: number; to: number }): void {
    this.#kvStore(pool).commit(path, layers);
  }

  commitState(pool: StatePool, path: CommitPath): void {
    this.#stateStore(pool).commit(path, (layer) => materializeIfDue(pool, layer));
  }

  copyPage(pool: KvPool, dst: number, src: number): void {
    this.#kvStore(pool).copyPage(dst, src);
  }

  resetState(pool: StatePool, slot: number): void {
    this.#stateStore(pool).reset(slot);
  }

  saveState(pool: StatePool, slot: number, tokens: number, snapshot: number): void {
    this.#stateStore(pool).save(slot, tokens, snapshot);
  }

  restoreState(pool: StatePool, slot: number, tokens: number, snapshot: number): void {
    this.#stateStore(pool).restore(slot, tokens, snapshot);
  }

  keepHidden(pool: StatePool, slot: number, src: Buffer, row: number): void {
    const hidden = this.#stateStore(pool).hidden(slot);
    this.#memory.read(src, row * hidden.length, hidden);
  }

  loadHidden(out: Buffer, row: number, pool: StatePool, slot: number): void {
    const hidden = this.#stateStore(pool).hidden(slot);
    this.#memory.write(out, row * hidden.length, hidden);
  }

  // ---- helpers ----------------------------------------------------------------------------------------

  #views(count: number): (buffer: Buffer) => Float32Array {
    return (buffer) => this.#memory.f32(buffer, count);
  }

  #logitRows(logits: Buffer, shape: { rows: number; width: number; usable: number }): Float32Array[] {
    const { rows, width, usable } = shape;
    assert(usable > 0 && usable <= width, `${usable} usable of ${width} logits`);
    const values = this.#memory.f32(logits, rows * width);
    return Array.from({ length: rows }, (_, row) => values.subarray(row * width, row * width + usable));
  }

  #kvStore(pool: KvPool): KvStore {
    this.#memory.checkOpen();
    const store = this.#kv.get(pool.id);
    assert(store, `KV pool ${pool.id} is this back-end's`);
    return store;
  }

  #stateStore(pool: StatePool): StateStore {
    this.#memory.checkOpen();
    const store = this.#states.get(pool.id);
    assert(store, `state pool ${pool.id} is this back-end's`);
    return store;
  }
}
