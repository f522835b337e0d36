/**
 * What a build depends on, in 16 hex digits: every tensor's name, type, shape and a sample of its bytes, the files that are copied
 * along, and the format. Samples instead of whole tensors, because a start of the server should not read 50 GB: fine-tuning and
 * merging change values everywhere.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Checkpoint } from '../checkpoint/index.ts';
import { engineFormat } from './engine-folder.ts';

/** Files of a checkpoint that an engine folder keeps. */
export const copiedFiles = [
  'config.json',
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'generation_config.json',
] as const;

/** Raised when the same checkpoint and recipe give other bytes than before. */
const packing = 2;
const sampleBytes = 4096;

export function fingerprint(ck: Checkpoint): string {
  const hash = createHash('sha256').update(`${engineFormat} ${packing}\n`);
  for (const name of copiedFiles) {
    const file = join(ck.folder, name);
    if (existsSync(file)) hash.update(`${name}\n`).update(readFileSync(file));
  }
  for (const { name, dtype, shape, bytes } of ck.tensors.values()) {
    hash.update(`\n${name} ${dtype} ${shape}\n`);
    const sample = Math.min(bytes, sampleBytes);
    const starts = bytes > sampleBytes ? [0, Math.floor((bytes - sample) / 2), bytes - sample] : [0];
    for (const from of starts) hash.update(ck.read(name, { from, bytes: sample }));
  }
  return hash.digest('hex').slice(0, 16);
}
