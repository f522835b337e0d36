/**
 * Answers as they arrive, one a line, so that an interrupted phase goes on where it stopped. An answer is taken again only for the
 * same request bytes sent to the same endpoint; a line cut off by a kill is left out.
 */
import { createHash } from 'node:crypto';
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { BfclAnswer } from './run-samples.ts';

interface Entry extends BfclAnswer {
  readonly id: string;
  readonly body: string;
}

export const bodyHash = (body: string): string => createHash('sha256').update(body).digest('hex');

export class Journal {
  readonly #path: string;
  readonly #answers: ReadonlyMap<string, BfclAnswer>;
  #isNew: boolean;
  readonly #head: string;

  /** `origin` names what was asked; a journal of another origin is not read and is replaced. */
  constructor(path: string, origin: string) {
    this.#path = path;
    this.#head = JSON.stringify({ journal: 'bfcl_v4', origin });
    const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n') : [];
    this.#isNew = lines[0] !== this.#head;
    const entries = this.#isNew ? [] : lines.slice(1).flatMap(readEntry);
    this.#answers = new Map(entries.map(({ id, body, ...answer }) => [`${id} ${body}`, answer]));
    // Makes a cut last line harmless: what is written next begins a line of its own.
    if (!this.#isNew && lines.at(-1) !== '') appendFileSync(path, '\n');
  }

  get size(): number {
    return this.#answers.size;
  }

  find(id: string, body: string): BfclAnswer | null {
    return this.#answers.get(`${id} ${bodyHash(body)}`) ?? null;
  }

  add(id: string, body: string, answer: BfclAnswer): void {
    if (this.#isNew) writeFileSync(this.#path, `${this.#head}\n`);
    this.#isNew = false;
    const entry: Entry = { id, body: bodyHash(body), ...answer };
    appendFileSync(this.#path, `${JSON.stringify(entry)}\n`);
  }

  /** Nothing is left to go on with. */
  remove(): void {
    rmSync(this.#path, { force: true });
  }
}

function readEntry(line: string): Entry[] {
  try {
    const entry = JSON.parse(line) as Partial<Entry> | null;
    const { id, body, content, reasoning, calls, finishReason = null } = entry ?? {};
    const areTexts = [id, body, content, reasoning].every((text) => typeof text === 'string');
    if (!areTexts || !(calls === null || Array.isArray(calls))) return [];
    return [{ id, body, content, reasoning, calls, finishReason } as Entry];
  } catch {
    return [];
  }
}
