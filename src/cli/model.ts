/** From the path a person names to an engine folder, built with progress when it has to be. */
import { basename, resolve } from 'node:path';
import { ensureEngine, type Recipe } from '../build/index.ts';
import { openProgress } from './progress.ts';

export async function engineFolderOf(
  path: string,
  options: { readonly recipe: Recipe; readonly quiet: boolean },
): Promise<string> {
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
