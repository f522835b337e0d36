export { type CacheOptions, type CacheStats, Lease, PrefixCache, type Reuse } from './cache.ts';
export { type PromptShape, snapshotPositions } from './policy.ts';
