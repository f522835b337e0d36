/**
 * One step: a forward over the rows of all works, then per sequence the walk down its draft tree.
 * Plain decoding is the walk down an empty tree.
 */
import type { Backend, Buffer } from '../backends/index.ts';
import { topLogprobs } from '../sampling/index.ts';
import { assert, present } from '../util/index.ts';
import type { Work } from './batch.ts';
import { childOf } from './draft-tree.ts';
import { allows } from './guide/guide.ts';
import type { Sequence } from './sequence.ts';
import type { TokenLogprob } from './types.ts';

/** The logits of one forward as the sampler needs them: arg max for greedy rows, whole rows for the rest. */
export class LogitRows {
  readonly #backend: Backend;
  readonly #logits: Buffer;
  readonly #shape: { rows: number; width: number; usable: number };
  readonly #greedyBuffer: Buffer;
  #greedy: Int32Array | null = null;

  constructor(
    backend: Backend,
    logits: Buffer,
    shape: { rows: number; width: number; usable: number },
    greedyBuffer: Buffer,
  ) {
    this.#backend = backend;
    this.#logits = logits;
    this.#shape = shape;
    this.#greedyBuffer = greedyBuffer;
  }

  async argmax(row: number): Promise<number> {
    if (this.#greedy === null) {
      this.#backend.argmax(this.#greedyBuffer, this.#logits, this.#shape);
      this.#greedy = new Int32Array(this.#shape.rows);
      await this.#backend.read(this.#greedyBuffer, 0, this.#greedy);
    }
    return present(this.#greedy[row], `logit row ${row}`);
  }

  async values(row: number): Promise<Float32Array> {
    const values = new Float32Array(this.#shape.usable);
    await this.#backend.read(this.#logits, row * this.#shape.width, values);
    return values;
  }
}

export interface Walk {
  /** Accepted nodes, from a child of -1 down. */
  readonly path: number[];
  /** Answer tokens, without a stop token. */
  readonly ids: number[];
  readonly logprobs: TokenLogprob[] | null;
  readonly end: { readonly reason: 'stop' | 'length'; readonly stopId: number | null } | null;
}

/**
 * Chooses one token per visited row, with the ordinary sampler under the mask of that row, and follows the child that
 * guessed it. Log-probabilities are those of the model, before any mask.
 */
export async function walkTree(work: Work, logits: LogitRows, firstRow: number): Promise<Walk> {
  const { sequence, tree } = work;
  const path: number[] = [];
  const ids: number[] = [];
  const logprobs: TokenLogprob[] | null = sequence.request.topLogprobs === null ? null : [];
  let node = -1;
  while (true) {
    const row = firstRow + node + 1;
    const id = await chooseToken(sequence, logits, row, logprobs);
    if (sequence.stopIds.has(id)) {
      logprobs?.splice(ids.length);
      return { path, ids, logprobs, end: { reason: 'stop', stopId: id } };
    }
    sequence.addToken(id);
    sequence.sampler.accept(id);
    ids.push(id);
    if (sequence.guide !== null) {
      assert(sequence.guide.accept(id), `the mask lets token ${id} through, the form does not`);
      // Nothing but a stop token could follow: no forward has to find that out.
      if (sequence.guide.ended) return { path, ids, logprobs, end: { reason: 'stop', stopId: null } };
    }
    if (sequence.knownLen === sequence.maxLen)
      return { path, ids, logprobs, end: { reason: 'length', stopId: null } };
    node = childOf(tree, node, id);
    if (node < 0) return { path, ids, logprobs, end: null };
    path.push(node);
  }
}

async function chooseToken(
  sequence: Sequence,
  logits: LogitRows,
  row: number,
  logprobs: TokenLogprob[] | null,
): Promise<number> {
  const { sampler, request, guide } = sequence;
  const only = guide?.only ?? null;
  if (only !== null && logprobs === null) return only;
  const mask = guide?.mask() ?? null;
  if (sampler.isPlainGreedy && logprobs === null) {
    // The largest of all is the largest of those that may follow, if it may.
    const best = await logits.argmax(row);
    if (mask === null || allows(mask, best)) return best;
  }
  const values = await logits.values(row);
  const id = sampler.sample(values, sequence.knownLen, mask);
  logprobs?.push(topLogprobs(values, id, request.topLogprobs ?? 0));
  return id;
}
