/**
 * Reads a report folder, copse's own or the official tool's. Nothing is taken for granted: a run may have been killed, and other
 * versions add fields. What is missing or broken is null, with the reason.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { parse } from 'yaml';
import { UserError } from '../../util/index.ts';

export type Json =
  | null
  | boolean
  | number
  | string
  | readonly Json[]
  | { readonly [key: string]: Json | undefined };

export interface Part {
  readonly value: Json | null;
  /** Why there is no value; null when there is one. */
  readonly problem: string | null;
}

export interface ReportFolder {
  readonly path: string;
  readonly name: string;
  readonly config: Part;
  readonly summary: Part;
  readonly scores: Part;
  readonly accuracy: Part;
  /** Of copse alone. */
  readonly report: Part;
  readonly verdicts: Part;
}

/** Throws UserError when there is no such folder. */
export function openReportFolder(path: string): ReportFolder {
  if (!existsSync(path) || !statSync(path).isDirectory())
    throw new UserError('not_found', `${path} is no report folder: it does not exist`, { param: 'dir' });
  const read = (name: string, parser: (text: string) => unknown): Part => {
    const file = join(path, name);
    if (!existsSync(file)) return { value: null, problem: `${name} is missing` };
    try {
      return { value: parser(readFileSync(file, 'utf8')) as Json, problem: null };
    } catch (error) {
      return { value: null, problem: `${name} can not be read: ${(error as Error).message.split('\n')[0]}` };
    }
  };
  return {
    path,
    name: basename(resolve(path)),
    config: read('config.yaml', (text) => parse(text)),
    summary: read('performance/result_summary.json', JSON.parse),
    scores: read('scores.json', JSON.parse),
    accuracy: read('accuracy/accuracy_results.json', JSON.parse),
    report: read('report.json', JSON.parse),
    verdicts: read('accuracy/verdicts.json', JSON.parse),
  };
}

/** The value at a path of keys, undefined where something on the way is no object. */
export function at(value: Json | undefined, ...keys: readonly string[]): Json | undefined {
  let here: Json | undefined = value;
  for (const key of keys) {
    if (typeof here !== 'object' || here === null || Array.isArray(here)) return undefined;
    here = (here as { readonly [key: string]: Json | undefined })[key];
  }
  return here;
}

/** A number, or text that is one; null otherwise. */
export function numeric(value: Json | undefined): number | null {
  if (typeof value === 'number') return value;
  if (typeof value !== 'string' || value.trim() === '') return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

export function list(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : [];
}

/** The accuracy entry that the gates look at: the first with scores by subset. */
export function gatedEntry(folder: ReportFolder): Json | undefined {
  return list(at(folder.accuracy.value, 'accuracy_scores')).find(
    (entry) => at(entry, 'breakdown', 'subset_scores') !== undefined,
  );
}
