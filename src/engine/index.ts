export { meanAcceptedLength, type SpeculationFigures } from './draft/figures.ts';
export { assembleEngine, openEngine } from './open.ts';
export { defaultEngineOptions, type EngineOptions, engineOptions } from './options.ts';
export { type ScriptedAnswer, ScriptedEngine, type ScriptedOptions } from './scripted.ts';
export type {
  AnswerConstraint,
  Engine,
  EngineInfo,
  EngineStats,
  GenerateRequest,
  GenerationEvent,
  GenerationStats,
  ReuseLimit,
  TokenLogprob,
} from './types.ts';
export { openEngineWorker } from './worker-client.ts';
