export { type BuildOptions, type BuildProgress, buildEngine, fingerprint } from './build.ts';
export {
  type EngineFolder,
  type EngineManifest,
  type EngineWeight,
  isEngineFolder,
  type LocatedWeight,
  openEngineFolder,
  type Recipe,
} from './engine-folder.ts';
export { engineCachePath, ensureEngine } from './ensure.ts';
