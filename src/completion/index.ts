export { type Answer, Completion, type CompletionParts, collectAnswer } from './complete.ts';
export { type ModelOptions, openModel, stopIdsOf } from './open.ts';
export type { ChatRequest, Delta, GenerationOptions, TextLogprob, TextRequest, Usage } from './types.ts';
