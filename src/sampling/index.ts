export { defaultSampling, type SamplingParams } from './params.ts';
