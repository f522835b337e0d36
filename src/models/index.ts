export type { ForwardResult, Model, MtpInput, Pools } from './model.ts';
export { deltaChunk, loadQwen35, type Qwen35Options } from './qwen35.ts';
export { checkpointSource, type WeightSource } from './weight-source.ts';
