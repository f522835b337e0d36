/** What library users need: open a model and ask it, or serve it. The benchmark, tokenizer and chat have entries of their own. */
export type { ChatMessage, ToolDef } from './chat/index.ts';
export {
  type Answer,
  type ChatRequest,
  Completion,
  chatRequest,
  collectAnswer,
  type Delta,
  type ModelOptions,
  openModel,
  openScript,
  type ScriptOptions,
  type TextRequest,
  type Usage,
} from './completion/index.ts';
export type { Engine, EngineOptions } from './engine/index.ts';
export { defaultSampling, type SamplingParams, validateSampling } from './sampling/index.ts';
export { type Server, type ServerOptions, startServer } from './server/index.ts';
export { UserError } from './util/index.ts';
