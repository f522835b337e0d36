/**
 * What is computed. A model declares the memory of its per-layer state and issues a forward as ops.
 * It owns its activation buffers, sized for `maxRows`; results stay valid until the next forward.
 */
import type { Backend, Batch, Buffer, KvPool, KvSpec, StatePool, StateSpec } from '../backends/index.ts';
import type { WeightSource } from './weight-source.ts';

export interface Pools {
  readonly kv: KvPool;
  readonly state: StatePool;
}

export interface ForwardResult {
  /** [logitRows.length, vocabSize] */
  readonly logits: Buffer;
  /** [rows, hiddenSize] after the final norm: the input of the head and of the MTP layer. */
  readonly hidden: Buffer;
}

export interface MtpInput {
  /** Row i of the batch consumes the token batch.ids[i] (= token p+1) and row i of `hidden` (position p = batch.positions[i]). */
  readonly hidden: Buffer;
  /** Rows whose logits are wanted. */
  readonly logitRows: Int32Array;
}

export interface Model {
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly maxPositions: number;
  readonly maxRows: number;
  readonly hasMtp: boolean;
  /** Everything of the KV spec that the model knows; the MTP layer, if present, is the last layer. */
  readonly kvShape: Omit<KvSpec, 'dtype' | 'pageTokens' | 'pages' | 'slots' | 'maxNodes'>;
  readonly stateShape: Omit<StateSpec, 'slots' | 'maxNodes' | 'snapshots'>;
  /** One forward over the batch; logits only for `logitRows` (row indices, ascending; may be empty). Rows <= maxRows. */
  forward(batch: Batch, logitRows: Int32Array, pools: Pools): ForwardResult;
  /** One MTP step (qwen35-model 4.1); `hidden` of the result is the post-norm output y of each row. Throws without MTP weights. */
  forwardMtp(batch: Batch, input: MtpInput, pools: Pools): ForwardResult;
  close(): void;
}

/** How the registry makes a model of one type. */
export type LoadModel = (
  backend: Backend,
  source: WeightSource,
  limits: { readonly maxRows: number },
) => Model;
