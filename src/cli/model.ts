/** From the path a person names to an engine folder, built with progress when it has to be. */
import { existsSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { ensureEngine, isEngineFolder, type Recipe } from '../build/index.ts';
import { type Checkpoint, openCheckpoint, validateCheckpoint } from '../checkpoint/index.ts';
import { checkAssets } from '../completion/index.ts';
import { openProgress } from './progress.ts';

/** A checkpoint that can be packed and served; everything that speaks against it is said here. Throws UserError. */
export function checkedCheckpoint(path: string): Checkpoint {
  const ck = openCheckpoint(path);
  validateCheckpoint(ck);
  checkAssets(path, ck.config.vocabSize);
  return ck;
}

export async function engineFolderOf(
  path: string,
  options: { readonly recipe: Recipe; readonly quiet: boolean },
): Promise<string> {
  if (existsSync(path) && !isEngineFolder(path)) checkedCheckpoint(path);
  const progress = openProgress('packing', { quiet: options.quiet });
  try {
    return await ensureEngine(path, {
      recipe: options.recipe,
      onProgress: ({ done, total, weight }) => progress.update(done, total, weight),
    });
  } finally {
    progress.stop();
  }
}

/** The name a model is served under when none is given: that of its folder. */
export function modelNameOf(path: string): string {
  return basename(resolve(path));
}
