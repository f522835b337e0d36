/**
 * One builder per output folder, also across processes and containers: a lock file that its owner touches while it works. A lock
 * is stale when its process is gone from this host, or when it was not touched for long; it is then taken over.
 */
import {
  closeSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeSync,
} from 'node:fs';
import { hostname } from 'node:os';

export interface FolderLock {
  /** Called at least every few minutes. */
  touch(): void;
  release(): void;
}

/** Far above the time of the largest weight. */
export const staleAfterMs = 10 * 60_000;
/** A lock without content is one whose owner is about to write its number, unless it stays empty. */
const emptyAfterMs = 5000;

/** null when another builder has it. Throws what the file system throws. */
export function tryLock(path: string): FolderLock | null {
  return create(path) ?? (removeStale(path) ? create(path) : null);
}

function create(path: string): FolderLock | null {
  try {
    const fd = openSync(path, 'wx');
    writeSync(fd, JSON.stringify({ pid: process.pid, host: hostname() }));
    closeSync(fd);
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return null;
    throw error;
  }
  return {
    touch: () => utimesSync(path, new Date(), new Date()),
    release: () => rmSync(path, { force: true }),
  };
}

/** True when there is no lock any more. */
function removeStale(path: string): boolean {
  try {
    const { ino, mtimeMs } = statSync(path);
    if (!isStale(readFileSync(path, 'utf8'), Date.now() - mtimeMs)) return false;
    // Two may see the same stale lock: renaming takes exactly one file away, and its number tells which.
    const aside = `${path}.${process.pid}`;
    renameSync(path, aside);
    const isTheStaleOne = statSync(aside).ino === ino;
    if (!isTheStaleOne) linkSync(aside, path);
    rmSync(aside, { force: true });
    return isTheStaleOne;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return true;
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

function isStale(text: string, ageMs: number): boolean {
  if (ageMs > staleAfterMs) return true;
  const owner = parseOwner(text);
  if (owner === null) return ageMs > emptyAfterMs;
  return owner.host === hostname() && !isRunning(owner.pid);
}

function parseOwner(text: string): { pid: number; host: string } | null {
  try {
    const { pid, host } = JSON.parse(text) as { pid?: unknown; host?: unknown };
    return Number.isInteger(pid) && (pid as number) > 0 && typeof host === 'string'
      ? { pid: pid as number, host }
      : null;
  } catch {
    return null;
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return codeOf(error) !== 'ESRCH';
  }
}

function codeOf(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException).code;
}
