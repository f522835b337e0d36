export type { ForwardResult, Model, MtpInput, Pools } from './model.ts';
