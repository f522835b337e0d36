/**
 * The model's own draft layer (qwen35-model 4). Slot p takes the hidden row of position p and the token at p + 1. It is
 * filled with true hidden rows behind every forward, in prefill too; draft passes recycle the layer's own output and
 * leave their keys in scratch memory.
 */
import type { Backend, Buffer, Segment } from '../../backends/index.ts';
import type { Model, Pools } from '../../models/index.ts';
import { assert, present } from '../../util/index.ts';
import type { Sequence } from '../sequence.ts';
import type { DepthList } from './shared-tree.ts';

/** Rows of the target's forward that the accepted part of a sequence came from. */
export interface FillWork {
  readonly sequence: Sequence;
  /** Rows of `hidden` for the positions from the first unfilled slot on. */
  readonly rows: readonly number[];
  /** True when the candidates for the next token are wanted. */
  readonly drafts: boolean;
}

export interface DraftGroup {
  readonly sequence: Sequence;
  /** Parents of all nodes so far, these included. */
  readonly parents: readonly number[];
  /** The new nodes, last in `parents`. */
  readonly nodes: readonly { readonly id: number; readonly depth: number; readonly fromRow: number }[];
}

interface Pass {
  readonly segments: Segment[];
  readonly ids: number[];
  readonly positions: number[];
  readonly rows: number[];
}

export class MtpLayer {
  readonly #backend: Backend;
  readonly #model: Model;
  readonly #pools: Pools;
  readonly #usable: number;
  readonly #topK: number;
  readonly #input: Buffer;
  readonly #best: { ids: Buffer; logProbs: Buffer };
  /** Filled slots per sequence. */
  readonly #filled = new WeakMap<Sequence, number>();
  /** Output rows of the last fill that drafting starts from; passes for one sequence must not disturb another. */
  readonly #starts: Buffer;
  #output: Buffer | null = null;

  constructor(parts: { backend: Backend; model: Model; pools: Pools; usable: number; topK: number }) {
    this.#backend = parts.backend;
    this.#model = parts.model;
    this.#pools = parts.pools;
    this.#usable = parts.usable;
    this.#topK = parts.topK;
    const { maxRows, hiddenSize } = parts.model;
    this.#input = parts.backend.alloc(maxRows * hiddenSize);
    this.#starts = parts.backend.alloc(maxRows * hiddenSize);
    this.#best = {
      ids: parts.backend.alloc(maxRows * parts.topK),
      logProbs: parts.backend.alloc(maxRows * parts.topK),
    };
  }

  /**
   * A sequence begins: of a restored prefix of P tokens the slots 0 .. P - 2 are there, and slot P - 1 is made now from the
   * hidden row that was kept with the snapshot and the token that follows in this prompt.
   */
  start(sequence: Sequence): void {
    const { cachedLen } = sequence;
    if (cachedLen > 0) {
      this.#backend.loadHidden(this.#input, 0, this.#pools.state, sequence.slot);
      const segment = chainSegment(sequence, 0, cachedLen - 1, 1);
      const ids = sequence.tokens.slice(cachedLen, cachedLen + 1);
      this.#forward([segment], ids, Int32Array.of(cachedLen - 1), []);
    }
    this.#filled.set(sequence, cachedLen);
  }

  /** Fills the slots of what a forward computed; returns the candidates for the next token where `drafts` is set. */
  async fill(
    works: readonly FillWork[],
    hidden: Buffer,
  ): Promise<Map<Sequence, { list: DepthList; row: number }>> {
    const segments: Segment[] = [];
    const rows: number[] = [];
    const ids: number[] = [];
    const positions: number[] = [];
    const wanted: { sequence: Sequence; row: number }[] = [];
    for (const work of works) {
      const { sequence } = work;
      const from = present(this.#filled.get(sequence), 'filled slots');
      const to = from + work.rows.length;
      assert(
        to <= sequence.computedLen && to < sequence.knownLen,
        `${to} slots of ${sequence.computedLen} computed tokens`,
      );
      if (to === from) continue;
      segments.push(chainSegment(sequence, rows.length, from, work.rows.length));
      for (const [i, row] of work.rows.entries()) {
        rows.push(row);
        ids.push(present(sequence.tokens[from + i + 1], 'token'));
        positions.push(from + i);
      }
      if (work.drafts) wanted.push({ sequence, row: rows.length - 1 });
      this.#filled.set(sequence, to);
    }
    if (rows.length === 0) return new Map();
    this.#backend.gatherRows(this.#input, hidden, Int32Array.from(rows), this.#model.hiddenSize);
    const ends = wanted.map(({ row }) => row);
    const lists = await this.#candidates({ segments, ids, positions, rows: ends });
    if (ends.length > 0) {
      const output = present(this.#output, 'output');
      this.#backend.gatherRows(this.#starts, output, Int32Array.from(ends), this.#model.hiddenSize);
    }
    return new Map(wanted.map(({ sequence }, i) => [sequence, { list: present(lists[i], 'list'), row: i }]));
  }

  /**
   * One draft pass: per new node the candidates for the token after it, and its row for the next pass. `fromRow` of a node counts
   * in the fill's results in the first pass of a sequence, in the last pass's afterwards.
   */
  async expand(
    groups: readonly DraftGroup[],
    from: 'fill' | 'pass',
  ): Promise<{ list: DepthList; row: number }[][]> {
    const segments: Segment[] = [];
    const fromRows: number[] = [];
    const ids: number[] = [];
    const positions: number[] = [];
    for (const { sequence, parents, nodes } of groups) {
      const ctxLen = present(this.#filled.get(sequence), 'filled slots');
      segments.push({
        slot: sequence.slot,
        firstRow: ids.length,
        ctxLen,
        chainLen: 0,
        pages: present(sequence.lease, 'lease').pages,
        nodeParents: Int32Array.from(parents),
        nodeStart: parents.length - nodes.length,
      });
      for (const node of nodes) {
        ids.push(node.id);
        fromRows.push(node.fromRow);
        positions.push(ctxLen + node.depth);
      }
    }
    const source = from === 'fill' ? this.#starts : present(this.#output, 'output of the pass before');
    this.#backend.gatherRows(this.#input, source, Int32Array.from(fromRows), this.#model.hiddenSize);
    const lists = await this.#candidates({ segments, ids, positions, rows: ids.map((_, row) => row) });
    let row = 0;
    return groups.map(({ nodes }) => nodes.map(() => ({ list: present(lists[row], 'list'), row: row++ })));
  }

  async #candidates({ segments, ids, positions, rows }: Pass): Promise<DepthList[]> {
    const logits = this.#forward(segments, Int32Array.from(ids), Int32Array.from(positions), rows);
    if (rows.length === 0) return [];
    const k = this.#topK;
    this.#backend.topK(this.#best, logits, {
      rows: rows.length,
      width: this.#model.vocabSize,
      usable: this.#usable,
      k,
    });
    const bestIds = new Int32Array(rows.length * k);
    const logProbs = new Float32Array(rows.length * k);
    await this.#backend.read(this.#best.ids, 0, bestIds);
    await this.#backend.read(this.#best.logProbs, 0, logProbs);
    return rows.map((_, i) => ({
      ids: [...bestIds.subarray(i * k, (i + 1) * k)],
      logProbs: [...logProbs.subarray(i * k, (i + 1) * k)],
    }));
  }

  #forward(segments: Segment[], ids: Int32Array, positions: Int32Array, logitRows: number[]): Buffer {
    const batch = { rows: ids.length, ids, positions, segments };
    const input = { hidden: this.#input, logitRows: Int32Array.from(logitRows) };
    const { logits, hidden } = this.#model.forwardMtp(batch, input, this.#pools);
    this.#output = hidden;
    return logits;
  }
}

function chainSegment(sequence: Sequence, firstRow: number, ctxLen: number, chainLen: number): Segment {
  const pages = present(sequence.lease, 'lease').pages;
  return {
    slot: sequence.slot,
    firstRow,
    ctxLen,
    chainLen,
    pages,
    nodeParents: new Int32Array(0),
    nodeStart: 0,
  };
}
