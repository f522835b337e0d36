export {
  type BytePart,
  type Checkpoint,
  maxJsonBytes,
  memoryCheckpoint,
  openCheckpoint,
  readJson,
} from './checkpoint.ts';
export { type LayerType, type ModelConfig, tokenIds, type YarnConfig } from './config.ts';
export type { ExpectedWeight } from './family.ts';
export { type RowRange, readPlain as readF32, type StoredWeight } from './layouts/layout.ts';

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
  attentionStems,
  describeWeight,
  hasMtp,
  kvScales,
  validateCheckpoint,
} from './weights.ts';
