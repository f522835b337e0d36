/** Messages between the engine's worker thread and the client that stands in for it. */
import type { UserError } from '../util/index.ts';
import type { EngineOptions } from './options.ts';
import type { EngineInfo, EngineStats, GenerateRequest, GenerationEvent } from './types.ts';

export type ToWorker =
  | { readonly type: 'generate'; readonly id: number; readonly request: GenerateRequest }
  | { readonly type: 'cancel'; readonly id: number }
  | { readonly type: 'stats'; readonly id: number }
  | { readonly type: 'close' };

/** Errors keep their code across the thread border. */
export interface PlainError {
  readonly message: string;
  readonly stack: string;
  readonly user: Pick<UserError, 'code' | 'hint' | 'param'> | null;
}

export type FromWorker =
  | { readonly type: 'opened'; readonly info: EngineInfo }
  | { readonly type: 'failed'; readonly error: PlainError }
  | { readonly type: 'event'; readonly id: number; readonly event: GenerationEvent }
  | { readonly type: 'done'; readonly id: number; readonly error: PlainError | null }
  | { readonly type: 'stats'; readonly id: number; readonly stats: EngineStats }
  | { readonly type: 'closed' };

export interface WorkerInput {
  readonly options: EngineOptions;
}
