/** The families of models that can be read, by `model_type`. A new one is a file in `families/` and a line here. */
import { UserError } from '../util/index.ts';
import type { ModelConfig } from './config.ts';
import { qwen35 } from './families/qwen35.ts';
import type { ExpectedWeight, ModelFamily } from './family.ts';
import { show } from './show.ts';
import { refuseUnsupported } from './supported.ts';

const families: readonly ModelFamily[] = [qwen35];
const byType = new Map(
  families.flatMap((family) => family.modelTypes.map((type) => [type, family] as const)),
);

/** Every `model_type` that can be read. */
export const modelTypes: readonly string[] = [...byType.keys()];

function familyOf(modelType: unknown): ModelFamily {
  const family = typeof modelType === 'string' ? byType.get(modelType) : undefined;
  if (family === undefined)
    throw new UserError(
      'bad_checkpoint',
      `config.json: model_type is ${show(modelType)}, known are ${modelTypes.join(', ')}`,
      { param: 'model_type' },
    );
  return family;
}

/** Throws UserError('bad_checkpoint') that names the key, what was expected and what was found. */
export function parseConfig(json: unknown): ModelConfig {
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new UserError('bad_checkpoint', 'config.json: is not an object', { param: '' });
  const config = json as Record<string, unknown>;
  const family = familyOf(config.model_type);
  refuseUnsupported(config);
  return family.parseConfig(config);
}

/** All weights of the text model, without MTP. */
export const expectedWeights = (config: ModelConfig): ExpectedWeight[] =>
  familyOf(config.modelType).weights(config);

/** The MTP layer's weights. */
export const expectedMtpWeights = (config: ModelConfig): ExpectedWeight[] =>
  familyOf(config.modelType).mtpWeights(config);
