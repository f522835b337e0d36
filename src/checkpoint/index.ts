export {
  type BytePart,
  type Checkpoint,
  maxJsonBytes,
  memoryCheckpoint,
  openCheckpoint,
  readJson,
} from './checkpoint.ts';
export { type LayerType, type ModelConfig, tokenIds, type YarnConfig } from './config.ts';
export { dequantize, dequantizeRows, type RowRange, readF32 } from './dequantize.ts';
export type { ExpectedWeight } from './family.ts';
export { expectedMtpWeights, expectedWeights, modelTypes, parseConfig } from './registry.ts';
export {
  dtypeBytes,
  maxHeaderBytes,
  maxRank,
  maxTensors,
  readAt,
  readSafetensorsHeader,
  type TensorDtype,
  type TensorInfo,
} from './safetensors.ts';
export {
  describeWeight,
  hasMtp,
  kvScales,
  type StoredWeight,
  validateCheckpoint,
} from './weights.ts';
