export { defaultSampling, type SamplingParams } from './params.ts';
export { uniform } from './random.ts';
export { type Logprob, Sampler, topLogprobs, validateSampling } from './sampler.ts';
