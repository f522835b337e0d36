export { type Checkpoint, memoryCheckpoint, openCheckpoint, readJson } from './checkpoint.ts';
export { type LayerType, parseConfig, type Qwen35Config, tokenIds, type YarnConfig } from './config.ts';
export {
  dtypeBytes,
  readAt,
  readSafetensorsHeader,
  type TensorDtype,
  type TensorInfo,
} from './safetensors.ts';
export {
  dequantize,
  describeWeight,
  type ExpectedWeight,
  expectedMtpWeights,
  expectedWeights,
  hasMtp,
  kvScales,
  readF32,
  type StoredWeight,
  validateCheckpoint,
} from './weights.ts';
