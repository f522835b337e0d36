/**
 * Recurrent state of each slot and layer, its log, and snapshots of both (the scheme of `StateSpec`).
 *
 * Invariant: with n = `tokens` and k = floor(n / C), half j % 2 holds S after C*j tokens for j = k - 1 and k, and log rows
 * p % 2C hold (k-hat, R, g) of the positions p in [C*max(0, k-1), n). Draft nodes use the rows behind the ring and the window:
 * node i has log row 2C + i and input row convKernel - 1 + i.
 */
import { assert } from '../../util/index.ts';
import type { CommitPath, StatePool, StateSpec } from '../backend.ts';

export interface StateLayer {
  /** Tokens that the log and S include. */
  tokens: number;
  /** Tokens that the conv window includes. */
  windowTokens: number;
  /** [2][valueHeads][keyDim][valueDim] */
  readonly s: Float32Array;
  /** [2C + maxNodes][keyHeads][keyDim], L2-normed keys */
  readonly k: Float32Array;
  /** [2C + maxNodes][valueHeads][valueDim], the corrections R */
  readonly r: Float32Array;
  /** [2C + maxNodes][valueHeads], log decays */
  readonly g: Float32Array;
  /** [convKernel - 1 + maxNodes][channels], raw conv inputs, oldest first */
  readonly inputs: Float32Array;
}

interface Slot {
  readonly layers: readonly StateLayer[];
  readonly hidden: Float32Array;
}

interface Snapshot {
  readonly tokens: number;
  readonly values: readonly Float32Array[];
}

type StateShape = Omit<StateSpec, 'slots' | 'maxNodes' | 'snapshots'>;

export const channelsOf = ({ keyHeads, keyDim, valueHeads, valueDim }: StateShape): number =>
  2 * keyHeads * keyDim + valueHeads * valueDim;

/** Values per row of each array of a layer. */
const widths = (spec: StateShape): { s: number; k: number; r: number; g: number; inputs: number } => ({
  s: spec.valueHeads * spec.keyDim * spec.valueDim,
  k: spec.keyHeads * spec.keyDim,
  r: spec.valueHeads * spec.valueDim,
  g: spec.valueHeads,
  inputs: channelsOf(spec),
});

/** Memory of one snapshot: both halves of S, the whole ring of the log and the conv window of all layers, and the hidden row. */
export function snapshotBytesOf(spec: StateShape): number {
  const { s, k, r, g, inputs } = widths(spec);
  const perLayer = 2 * s + 2 * spec.chunk * (k + r + g) + (spec.convKernel - 1) * inputs;
  return 4 * (spec.layers * perLayer + spec.hiddenDim);
}

export class StateStore {
  readonly pool: StatePool;
  readonly #slots: (Slot | null)[];
  readonly #snapshots: (Snapshot | null)[];

  constructor(id: number, spec: StateSpec) {
    const { layers, slots, snapshots, maxNodes, keyHeads, valueHeads, keyDim, valueDim, hiddenDim } = spec;
    const counts = { layers, slots, snapshots, maxNodes, keyHeads, valueHeads, keyDim, valueDim, hiddenDim };
    for (const [name, count] of Object.entries(counts))
      assert(Number.isSafeInteger(count) && count >= 0, `${name} of the state pool is ${count}`);
    assert(spec.chunk > 0 && spec.convKernel > 1, 'the state pool has a chunk and a conv window');
    assert(
      spec.valueHeads % spec.keyHeads === 0,
      `${spec.valueHeads} value heads share ${spec.keyHeads} key heads`,
    );
    this.pool = Object.freeze({ ...spec, id, snapshotBytes: snapshotBytesOf(spec) });
    this.#slots = new Array<Slot | null>(spec.slots).fill(null);
    this.#snapshots = new Array<Snapshot | null>(spec.snapshots).fill(null);
  }

  layer(slot: number, layer: number): StateLayer {
    const state = this.#slot(slot).layers[layer];
    assert(state !== undefined, `state layer ${layer} of ${this.pool.layers}`);
    return state;
  }

  hidden(slot: number): Float32Array {
    return this.#slot(slot).hidden;
  }

  reset(slot: number): void {
    const { hidden, layers } = this.#slot(slot);
    hidden.fill(0);
    for (const layer of layers) {
      layer.tokens = 0;
      layer.windowTokens = 0;
      for (const values of [layer.s, layer.k, layer.r, layer.g, layer.inputs]) values.fill(0);
    }
  }

  save(slot: number, tokens: number, snapshot: number): void {
    this.#checkSnapshot(snapshot);
    this.checkTokens(slot, tokens);
    this.#snapshots[snapshot] = { tokens, values: this.#committed(slot).map((part) => part.slice()) };
  }

  restore(slot: number, tokens: number, snapshot: number): void {
    this.#checkSnapshot(snapshot);
    const saved = this.#snapshots[snapshot];
    assert(saved, `snapshot ${snapshot} was saved`);
    assert(saved.tokens === tokens, `snapshot ${snapshot} is of ${saved.tokens} tokens, asked for ${tokens}`);
    this.#committed(slot).forEach((part, i) => {
      part.set(saved.values[i] as Float32Array);
    });
    for (const layer of this.#slot(slot).layers) {
      layer.tokens = tokens;
      layer.windowTokens = tokens;
    }
  }

  discard(snapshots: Int32Array): void {
    for (const snapshot of snapshots) {
      this.#checkSnapshot(snapshot);
      this.#snapshots[snapshot] = null;
    }
  }

  /** Every layer of the slot has seen exactly these tokens. */
  checkTokens(slot: number, tokens: number): void {
    this.#slot(slot).layers.forEach((layer, i) => {
      const { tokens: logged, windowTokens } = layer;
      assert(
        logged === tokens && windowTokens === tokens,
        `layer ${i} of slot ${slot} is at ${tokens} tokens, it is at ${logged} (log) and ${windowTokens} (window)`,
      );
    });
  }

  /** Node rows become committed rows, in order; `afterRow` is called when a layer has one more. */
  commit(path: CommitPath, afterRow: (layer: StateLayer) => void): void {
    const { convKernel, maxNodes, layers } = this.pool;
    this.checkTokens(path.slot, path.ctxLen);
    for (let i = 0; i < layers; i++) {
      const layer = this.layer(path.slot, i);
      for (const node of path.nodes) {
        assert(node >= 0 && node < maxNodes, `node ${node} is below ${maxNodes}`);
        this.copyLogRow(layer, 2 * this.pool.chunk + node, layer.tokens % (2 * this.pool.chunk));
        this.pushInput(layer, this.inputRow(layer, convKernel - 1 + node));
        layer.tokens++;
        afterRow(layer);
      }
    }
  }

  inputRow(layer: StateLayer, row: number): Float32Array {
    const { inputs } = widths(this.pool);
    return layer.inputs.subarray(row * inputs, (row + 1) * inputs);
  }

  /** The window moves on by one token. */
  pushInput(layer: StateLayer, input: Float32Array): void {
    const rows = this.pool.convKernel - 1;
    layer.inputs.copyWithin(0, input.length, rows * input.length);
    this.inputRow(layer, rows - 1).set(input);
    layer.windowTokens++;
  }

  copyLogRow(layer: StateLayer, from: number, to: number): void {
    const { k, r, g } = widths(this.pool);
    layer.k.copyWithin(to * k, from * k, (from + 1) * k);
    layer.r.copyWithin(to * r, from * r, (from + 1) * r);
    layer.g.copyWithin(to * g, from * g, (from + 1) * g);
  }

  #slot(slot: number): Slot {
    const { slots, layers, chunk, maxNodes, convKernel, hiddenDim } = this.pool;
    assert(Number.isInteger(slot) && slot >= 0 && slot < slots, `slot ${slot} is below ${slots}`);
    const width = widths(this.pool);
    const logRows = 2 * chunk + maxNodes;
    const made = this.#slots[slot] ?? {
      hidden: new Float32Array(hiddenDim),
      layers: Array.from({ length: layers }, () => ({
        tokens: 0,
        windowTokens: 0,
        s: new Float32Array(2 * width.s),
        k: new Float32Array(logRows * width.k),
        r: new Float32Array(logRows * width.r),
        g: new Float32Array(logRows * width.g),
        inputs: new Float32Array((convKernel - 1 + maxNodes) * width.inputs),
      })),
    };
    this.#slots[slot] = made;
    return made;
  }

  #committed(slot: number): Float32Array[] {
    const { chunk, convKernel } = this.pool;
    const width = widths(this.pool);
    const ring = 2 * chunk;
    const { hidden, layers } = this.#slot(slot);
    const parts = layers.flatMap(({ s, k, r, g, inputs }) => [
      s,
      k.subarray(0, ring * width.k),
      r.subarray(0, ring * width.r),
      g.subarray(0, ring * width.g),
      inputs.subarray(0, (convKernel - 1) * width.inputs),
    ]);
    return [hidden, ...parts];
  }

  #checkSnapshot(snapshot: number): void {
    const { snapshots } = this.pool;
    assert(
      Number.isInteger(snapshot) && snapshot >= 0 && snapshot < snapshots,
      `snapshot ${snapshot} is below ${snapshots}`,
    );
  }
}
