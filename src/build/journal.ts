/**
 * Which weights of an unfinished build are in place. One line of JSON per weight is appended after its bytes were written; a
 * build that was killed reads it back and checks the bytes by their checksums. The first line tells which build it belongs to.
 */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../util/index.ts';
import { type EngineWeight, isEngineFolder } from './engine-folder.ts';

export const journalName = 'build.journal';

export class Journal {
  readonly #path: string;
  readonly #done = new Map<string, EngineWeight>();

  private constructor(path: string, lines: readonly string[]) {
    this.#path = path;
    for (const line of lines) this.#restore(line);
  }

  /** The journal of an earlier try at the same build, or a new one in an empty folder. */
  static open(partial: string, source: string): Journal {
    const path = join(partial, journalName);
    const [head, ...lines] = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
    if (head === source) return new Journal(path, lines);
    clear(partial);
    mkdirSync(partial, { recursive: true });
    writeFileSync(path, `${source}\n`);
    return new Journal(path, []);
  }

  /** The last line may be cut off: that weight is packed again. */
  #restore(line: string): void {
    try {
      const { name, ...weight } = JSON.parse(line) as EngineWeight & { name: string };
      this.#done.set(name, weight);
    } catch {}
  }

  get(name: string): EngineWeight | undefined {
    return this.#done.get(name);
  }

  add(name: string, weight: EngineWeight): void {
    appendFileSync(this.#path, `${JSON.stringify({ name, ...weight })}\n`);
  }
}

/** Removes an abandoned build, never anything else. */
function clear(partial: string): void {
  if (!existsSync(partial)) return;
  const isBuild = existsSync(join(partial, journalName)) || isEngineFolder(partial);
  if (!isBuild && readdirSync(partial).length > 0)
    throw new UserError('io', `${partial} is in the way: it is not an unfinished build`, {
      hint: 'Move it elsewhere, or choose another output folder.',
    });
  rmSync(partial, { recursive: true, force: true });
}
