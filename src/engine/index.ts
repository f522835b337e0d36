export type {
  Engine,
  EngineInfo,
  EngineStats,
  GenerateRequest,
  GenerationEvent,
  GenerationStats,
  ReuseLimit,
  TokenLogprob,
} from './types.ts';
