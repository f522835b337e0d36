export { checkpointSource } from './checkpoint-source.ts';
export type { ForwardResult, Model, MtpInput, Pools } from './model.ts';
export { loadQwen35, stateChunk } from './qwen35.ts';
export { ropeOf } from './rope.ts';
export type { WeightSource } from './weight-source.ts';
