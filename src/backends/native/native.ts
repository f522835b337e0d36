/** The back-end that runs C++ kernels. Ops are synchronous calls into the addon; memory stays native. */
import { assert } from '../../util/index.ts';
import type {
  Backend,
  Batch,
  Buffer,
  CommitPath,
  DeltaRule,
  KvDtype,
  KvPool,
  KvSpec,
  QkvPrep,
  Routes,
  StatePool,
  StateSpec,
  Weight,
  WeightFile,
  WeightFormat,
  WeightSpec,
} from '../backend.ts';
import { type Addon, type DeviceHandle, loadAddon } from './addon.ts';

const formats: Record<WeightFormat, number> = {
  ...{ 'nvfp4-tile': 0, bf16: 1, f32: 2, fp8: 3 },
  ...{ 'fp8-row': 4, 'fp8-128': 5, 'fp8-64': 6, 'fp8-32': 7 },
};
const kvTypes: Record<KvDtype, number> = { fp8: 0, bf16: 1, f32: 2 };

/** A state pool's shape in the order that the addon reads. */
const stateFields = [
  ...(['layers', 'keyHeads', 'valueHeads', 'keyDim', 'valueDim', 'convKernel', 'chunk'] as const),
  ...(['hiddenDim', 'slots', 'maxNodes', 'snapshots'] as const),
];

/** Whether the addon can be used; `reason` is null when it can, `detail` names the kernels. */
export function tryNative(): { readonly reason: string | null; readonly detail: string } {
  const addon = loadAddon();
  if (typeof addon === 'string') return { reason: addon, detail: '' };
  try {
    const device = addon.open(0);
    const detail = addon.detail(device);
    addon.close(device);
    return { reason: null, detail };
  } catch (error) {
    return { reason: (error as Error).message, detail: '' };
  }
}

/** `threads` 0 = one per core. */
export function openNative(threads: number): Backend {
  const addon = loadAddon();
  assert(typeof addon !== 'string', String(addon));
  return new Native(addon, threads || Number(process.env.COPSE_THREADS ?? 0));
}

/** A batch as the addon reads it: rows, segments, seven numbers each, their pages and parents, positions. */
function flatten({ rows, positions, segments }: Batch): Int32Array {
  const lists = segments.reduce((sum, { pages, nodeParents }) => sum + pages.length + nodeParents.length, 0);
  const flat = new Int32Array(2 + 7 * segments.length + lists + rows);
  flat[0] = rows;
  flat[1] = segments.length;
  let at = 2;
  let list = 2 + 7 * segments.length;
  for (const { slot, firstRow, ctxLen, chainLen, nodeStart, nodeParents, pages } of segments) {
    flat.set([slot, firstRow, ctxLen, chainLen, nodeStart, nodeParents.length, pages.length], at);
    flat.set(pages, list);
    flat.set(nodeParents, list + pages.length);
    at += 7;
    list += pages.length + nodeParents.length;
  }
  flat.set(positions, list);
  return flat;
}

class Native implements Backend {
  readonly name = 'native';
  readonly detail: string;
  readonly #addon: Addon;
  readonly #device: DeviceHandle;
  /** A batch passes through many ops: it is flattened once. */
  readonly #flat = new WeakMap<Batch, Int32Array>();
  /** Ids of the experts of a layer, which are the same list in every step. */
  readonly #experts = new WeakMap<readonly Weight[], Int32Array>();

  constructor(addon: Addon, threads: number) {
    this.#addon = addon;
    this.#device = addon.open(threads);
    const forced = process.env.COPSE_ISA === undefined ? 'detected' : 'chosen by COPSE_ISA';
    this.detail = `${addon.detail(this.#device)} (${forced})`;
  }

  alloc(count: number): Buffer {
    return { id: this.#addon.alloc(this.#device, count), bytes: 4 * count };
  }

  free(buffer: Buffer): void {
    this.#addon.release(this.#device, buffer.id);
  }

  upload(values: Float32Array): Buffer {
    const buffer = this.alloc(values.length);
    this.write(buffer, 0, values);
    return buffer;
  }

  async read(src: Buffer, from: number, dst: Float32Array | Int32Array): Promise<void> {
    this.#addon.read(this.#device, src.id, from, dst);
  }

  write(dst: Buffer, from: number, values: Float32Array | Int32Array): void {
    this.#addon.write(this.#device, dst.id, from, values);
  }

  openWeights(path: string): WeightFile {
    const file = this.#addon.openFile(this.#device, path);
    return {
      path,
      weight: (spec, offset, bytes) => {
        const { format, outDim, inDim, scale } = spec;
        const id = this.#addon.fileWeight(
          this.#device,
          file,
          formats[format],
          outDim,
          inDim,
          scale,
          offset,
          bytes,
        );
        return { ...spec, id };
      },
      close: () => this.#addon.closeFile(this.#device, file),
    };
  }

  weightFrom(spec: WeightSpec, bytes: Uint8Array): Weight {
    const { format, outDim, inDim, scale } = spec;
    return {
      ...spec,
      id: this.#addon.memoryWeight(this.#device, formats[format], outDim, inDim, scale, bytes),
    };
  }

  createKvPool(spec: KvSpec): KvPool {
    const { dtype, layers, kvHeads, headDim, pageTokens, pages, slots, maxNodes } = spec;
    const id = this.#addon.createKv(
      this.#device,
      kvTypes[dtype],
      layers,
      kvHeads,
      headDim,
      pageTokens,
      pages,
      slots,
      maxNodes,
    );
    return { ...spec, id, pageBytes: this.#addon.pageBytes(this.#device, id) };
  }

  createStatePool(spec: StateSpec): StatePool {
    const shape = stateFields.map((field) => spec[field]);
    const id = this.#addon.createState(this.#device, ...shape);
    return { ...spec, id, snapshotBytes: this.#addon.snapshotBytes(this.#device, id) };
  }

  discardPages(pool: KvPool, pages: Int32Array): void {
    this.#addon.discardPages(this.#device, pool.id, pages);
  }

  discardSnapshots(pool: StatePool, snapshots: Int32Array): void {
    this.#addon.discardSnapshots(this.#device, pool.id, snapshots);
  }

  close(): void {
    this.#addon.close(this.#device);
  }

  embed(out: Buffer, table: Weight, ids: Int32Array): void {
    this.#addon.embed(this.#device, out.id, table.id, ids);
  }

  rmsNorm(
    out: Buffer,
    x: Buffer,
    w: Buffer,
    { rows, dim, eps }: { rows: number; dim: number; eps: number },
  ): void {
    this.#addon.rmsNorm(this.#device, out.id, x.id, w.id, rows, dim, eps);
  }

  linear(out: Buffer, weight: Weight, x: Buffer, rows: number): void {
    this.#addon.linear(this.#device, out.id, weight.id, x.id, rows);
  }

  add(x: Buffer, y: Buffer, count: number): void {
    this.#addon.add(this.#device, x.id, y.id, count);
  }

  siluMul(out: Buffer, gate: Buffer, up: Buffer, count: number): void {
    this.#addon.siluMul(this.#device, out.id, gate.id, up.id, count);
  }

  sigmoidMul(out: Buffer, x: Buffer, gate: Buffer, count: number): void {
    this.#addon.sigmoidMul(this.#device, out.id, x.id, gate.id, count);
  }

  gatherRows(out: Buffer, src: Buffer, rows: Int32Array, dim: number): void {
    this.#addon.gatherRows(this.#device, out.id, src.id, rows, dim);
  }

  concatRows(
    dst: Buffer,
    a: Buffer,
    b: Buffer,
    { rows, dimA, dimB }: { rows: number; dimA: number; dimB: number },
  ): void {
    this.#addon.concatRows(this.#device, dst.id, a.id, b.id, rows, dimA, dimB);
  }

  route(
    out: { experts: Buffer; weights: Buffer },
    logits: Buffer,
    shape: { rows: number; experts: number; k: number; renormalize: boolean },
  ): void {
    const { rows, experts, k, renormalize } = shape;
    const ids = [out.experts.id, out.weights.id, logits.id];
    this.#addon.route(this.#device, ...ids, rows, experts, k, renormalize ? 1 : 0);
  }

  groupedLinear(out: Buffer, experts: readonly Weight[], x: Buffer, routes: Routes): void {
    let ids = this.#experts.get(experts);
    if (ids === undefined) {
      ids = Int32Array.from(experts, ({ id }) => id);
      this.#experts.set(experts, ids);
    }
    const { rows, k, input } = routes;
    const perInput = input === 'row' ? k : 1;
    this.#addon.groupedLinear(this.#device, out.id, x.id, routes.experts.id, ids, rows * k, perInput);
  }

  mixExperts(
    out: Buffer,
    y: Buffer,
    weights: Buffer,
    { rows, k, dim }: { rows: number; k: number; dim: number },
  ): void {
    this.#addon.mixExperts(this.#device, out.id, y.id, weights.id, rows, k, dim);
  }

  addGated(x: Buffer, y: Buffer, gate: Buffer, { rows, dim }: { rows: number; dim: number }): void {
    this.#addon.addGated(this.#device, x.id, y.id, gate.id, rows, dim);
  }

  prepareQkv(args: QkvPrep, batch: Batch): void {
    const { q, gate, k, qg, rawK, qNorm, kNorm, heads, kvHeads, headDim, eps, rope } = args;
    const ids = [q.id, gate.id, k.id, qg.id, rawK.id, qNorm.id, kNorm.id];
    this.#addon.prepareQkv(
      this.#device,
      ...ids,
      heads,
      kvHeads,
      headDim,
      eps,
      rope.invFreq,
      rope.scale,
      this.#flatOf(batch),
    );
  }

  storeKv(
    pool: KvPool,
    layer: number,
    kv: { k: Buffer; v: Buffer; kScale: number; vScale: number },
    batch: Batch,
  ): void {
    this.#addon.storeKv(
      this.#device,
      pool.id,
      layer,
      kv.k.id,
      kv.v.id,
      kv.kScale,
      kv.vScale,
      this.#flatOf(batch),
    );
  }

  attention(
    out: Buffer,
    args: { q: Buffer; pool: KvPool; layer: number; heads: number; kScale: number; vScale: number },
    batch: Batch,
  ): void {
    const { q, pool, layer, heads, kScale, vScale } = args;
    this.#addon.attention(
      this.#device,
      out.id,
      q.id,
      pool.id,
      layer,
      heads,
      kScale,
      vScale,
      this.#flatOf(batch),
    );
  }

  conv(out: Buffer, m: Buffer, w: Buffer, pool: StatePool, layer: number, batch: Batch): void {
    this.#addon.conv(this.#device, out.id, m.id, w.id, pool.id, layer, this.#flatOf(batch));
  }

  deltaRule({ out, qkv, b, a, aLog, dtBias }: DeltaRule, pool: StatePool, layer: number, batch: Batch): void {
    this.#addon.deltaRule(
      this.#device,
      out.id,
      qkv.id,
      b.id,
      a.id,
      aLog.id,
      dtBias.id,
      pool.id,
      layer,
      this.#flatOf(batch),
    );
  }

  gatedRmsNorm(
    out: Buffer,
    o: Buffer,
    z: Buffer,
    w: Buffer,
    { rows, dim, eps }: { rows: number; dim: number; eps: number },
  ): void {
    this.#addon.gatedRmsNorm(this.#device, out.id, o.id, z.id, w.id, rows, dim, eps);
  }

  argmax(
    out: Buffer,
    logits: Buffer,
    { rows, width, usable }: { rows: number; width: number; usable: number },
  ): void {
    this.#addon.argmax(this.#device, out.id, logits.id, rows, width, usable);
  }

  topK(
    out: { ids: Buffer; logProbs: Buffer },
    logits: Buffer,
    { rows, width, usable, k }: { rows: number; width: number; usable: number; k: number },
  ): void {
    this.#addon.topK(this.#device, out.ids.id, out.logProbs.id, logits.id, rows, width, usable, k);
  }

  commitKv(
    pool: KvPool,
    { slot, ctxLen, nodes, pages }: CommitPath,
    layers: { from: number; to: number },
  ): void {
    this.#addon.commitKv(this.#device, pool.id, slot, ctxLen, nodes, pages, layers.from, layers.to);
  }

  commitState(pool: StatePool, { slot, ctxLen, nodes }: CommitPath): void {
    this.#addon.commitState(this.#device, pool.id, slot, ctxLen, nodes);
  }

  copyPage(pool: KvPool, dst: number, src: number): void {
    this.#addon.copyPage(this.#device, pool.id, dst, src);
  }

  resetState(pool: StatePool, slot: number): void {
    this.#addon.resetState(this.#device, pool.id, slot);
  }

  saveState(pool: StatePool, slot: number, tokens: number, snapshot: number): void {
    this.#addon.saveState(this.#device, pool.id, slot, tokens, snapshot);
  }

  restoreState(pool: StatePool, slot: number, tokens: number, snapshot: number): void {
    this.#addon.restoreState(this.#device, pool.id, slot, tokens, snapshot);
  }

  keepHidden(pool: StatePool, slot: number, src: Buffer, row: number): void {
    this.#addon.keepHidden(this.#device, pool.id, slot, src.id, row);
  }

  loadHidden(out: Buffer, row: number, pool: StatePool, slot: number): void {
    this.#addon.loadHidden(this.#device, out.id, row, pool.id, slot);
  }

  #flatOf(batch: Batch): Int32Array {
    let flat = this.#flat.get(batch);
    if (flat === undefined) {
      flat = flatten(batch);
      this.#flat.set(batch, flat);
    }
    return flat;
  }
}
