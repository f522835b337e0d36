export { checkpointSource } from './checkpoint-source.ts';
export type { ForwardResult, Model, MtpInput, Pools } from './model.ts';
export { stateChunk } from './qwen35/model.ts';
export { loadModel } from './registry.ts';
export { ropeOf } from './rope.ts';
export type { WeightSource } from './weight-source.ts';
