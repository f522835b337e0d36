export { checkAssets } from './assets.ts';
export { type Answer, Completion, type CompletionParts, collectAnswer } from './complete.ts';
export { type ModelOptions, openModel, stopIdsOf } from './open.ts';
export type { PromptBreak } from './recent-prompts.ts';
export { openScript, type ScriptOptions } from './script.ts';
export {
  type AnswerFormat,
  type ChatRequest,
  chatRequest,
  type Delta,
  type GenerationOptions,
  type TextLogprob,
  type TextRequest,
  type ToolChoice,
  type Usage,
} from './types.ts';
