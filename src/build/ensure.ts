/** `serve` on a checkpoint builds its engine folder once and keeps it. */
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { openCheckpoint } from '../checkpoint/index.ts';
import { UserError } from '../util/index.ts';
import { type BuildProgress, buildEngine, fingerprint } from './build.ts';
import { isEngineFolder, openEngineFolder, type Recipe } from './engine-folder.ts';

export interface EnsureOptions {
  readonly recipe: Recipe;
  readonly onProgress?: (progress: BuildProgress) => void;
}

/** Where the engine folder of a checkpoint is kept: under `$COPSE_CACHE`, else under `~/.cache/copse`. */
export function engineCachePath(checkpoint: string, recipe: Recipe): string {
  const root = process.env.COPSE_CACHE ?? join(homedir(), '.cache', 'copse');
  return join(root, `${fingerprint(openCheckpoint(checkpoint))}-${recipe}`);
}

/** The engine folder of a checkpoint, built when it is not there; an engine folder is returned as it is. */
export async function ensureEngine(path: string, { recipe, onProgress }: EnsureOptions): Promise<string> {
  if (!existsSync(path))
    throw new UserError('bad_option', `${path} does not exist`, {
      hint: 'Name a checkpoint folder or an engine folder.',
    });
  if (isEngineFolder(path)) return path;
  const out = engineCachePath(path, recipe);
  if (isUsable(out)) return out;
  const unlock = await lock(`${out}.lock`);
  try {
    if (!isUsable(out))
      buildEngine({ checkpoint: path, out, recipe, ...(onProgress === undefined ? {} : { onProgress }) });
    return out;
  } finally {
    unlock();
  }
}

function isUsable(path: string): boolean {
  try {
    openEngineFolder(path);
    return true;
  } catch {
    return false;
  }
}

/** One builder at a time. A lock whose process is gone is taken over. */
async function lock(path: string): Promise<() => void> {
  mkdirSync(dirname(path), { recursive: true });
  while (true) {
    try {
      const fd = openSync(path, 'wx');
      writeSync(fd, String(process.pid));
      closeSync(fd);
      return () => rmSync(path, { force: true });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST')
        throw new UserError('io', `can not write ${path}: ${(error as Error).message}`);
      if (isStale(path)) rmSync(path, { force: true });
      else await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

function isStale(path: string): boolean {
  try {
    const pid = Number(readFileSync(path, 'utf8'));
    // An empty lock is one whose owner is about to write its number, unless it stays empty.
    if (!Number.isInteger(pid) || pid <= 0) return Date.now() - statSync(path).mtimeMs > 5000;
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH';
  }
}
