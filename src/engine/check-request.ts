/** What a request must be before it may wait for a place. */
import { assert, UserError } from '../util/index.ts';
import type { EngineInfo, GenerateRequest } from './types.ts';

/** Throws UserError that names the value and the limit. */
export function checkRequest(request: GenerateRequest, info: EngineInfo, usableVocab: number): void {
  const { ids, maxTokens, boundaries } = request;
  if (ids.length === 0)
    throw new UserError('invalid_request', 'the prompt has 0 tokens, at least 1 is needed');
  if (!Number.isInteger(maxTokens) || maxTokens < 1)
    throw new UserError('invalid_request', `max_tokens is ${maxTokens}, at least 1 is needed`, {
      param: 'max_tokens',
    });
  if (ids.length >= info.contextTokens)
    throw new UserError(
      'context_length_exceeded',
      `the prompt has ${ids.length} tokens and leaves no room for an answer, the limit is ${info.contextTokens}`,
    );
  const bad = ids.find((id) => id < 0 || id >= usableVocab);
  if (bad !== undefined)
    throw new UserError(
      'invalid_request',
      `the prompt contains token ${bad}, the vocabulary has ${usableVocab}`,
    );
  const ordered = boundaries.every((at, i) => at > (boundaries[i - 1] ?? 0) && at <= ids.length);
  assert(ordered, `boundaries ${boundaries.join(',')} ascend within ${ids.length} tokens`);
}
