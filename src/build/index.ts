export { type BuildOptions, type BuildProgress, buildEngine } from './build.ts';
export {
  type EngineFolder,
  type EngineManifest,
  type EngineWeight,
  isEngineFolder,
  type LocatedWeight,
  openEngineFolder,
  type Recipe,
  recipes,
} from './engine-folder.ts';
export { type EnsureOptions, engineCachePath, ensureEngine } from './ensure.ts';
export { fingerprint } from './fingerprint.ts';
