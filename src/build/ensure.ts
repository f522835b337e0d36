/** `serve` on a checkpoint builds its engine folder once and keeps it. */
import { existsSync, mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { type Checkpoint, openCheckpoint, validateCheckpoint } from '../checkpoint/index.ts';
import { UserError } from '../util/index.ts';
import { type BuildProgress, buildLocked, lockPath, writing } from './build.ts';
import { isEngineFolder, openEngineFolder, type Recipe } from './engine-folder.ts';
import { fingerprint } from './fingerprint.ts';
import { type FolderLock, tryLock } from './folder-lock.ts';

export interface EnsureOptions {
  readonly recipe: Recipe;
  readonly onProgress?: (progress: BuildProgress) => void;
}

/** How often a waiting process looks whether the building one is done. */
const waitMs = 100;

/** Where the engine folder of a checkpoint is kept: under `$COPSE_CACHE`, else under `~/.cache/copse`. */
export function engineCachePath(checkpoint: string, recipe: Recipe): string {
  return cachePath(openCheckpoint(checkpoint), recipe);
}

function cachePath(ck: Checkpoint, recipe: Recipe): string {
  const root = process.env.COPSE_CACHE || join(homedir(), '.cache', 'copse');
  return join(root, `${fingerprint(ck)}-${recipe}`);
}

/** The engine folder of a checkpoint, built when it is not there; an engine folder is returned as it is. */
export async function ensureEngine(path: string, { recipe, onProgress }: EnsureOptions): Promise<string> {
  if (!existsSync(path))
    throw new UserError('bad_option', `${path} does not exist`, {
      hint: 'Name a checkpoint folder or an engine folder.',
    });
  if (isEngineFolder(path)) return path;
  const ck = openCheckpoint(path);
  validateCheckpoint(ck);
  const out = cachePath(ck, recipe);
  if (isUsable(out)) return out;
  const lock = await lockFor(out);
  if (isUsable(out)) {
    lock.release();
    return out;
  }
  const progress = onProgress === undefined ? {} : { onProgress };
  return writing(out, () => buildLocked(ck, { checkpoint: path, out, recipe, ...progress }, lock));
}

function isUsable(path: string): boolean {
  try {
    openEngineFolder(path);
    return true;
  } catch (error) {
    if (error instanceof UserError) return false;
    throw error;
  }
}

async function lockFor(out: string): Promise<FolderLock> {
  writing(out, () => mkdirSync(dirname(out), { recursive: true }));
  while (true) {
    const lock = writing(out, () => tryLock(lockPath(out)));
    if (lock !== null) return lock;
    await new Promise((done) => setTimeout(done, waitMs));
  }
}
