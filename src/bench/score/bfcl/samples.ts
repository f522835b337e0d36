/**
 * The samples of a run: the first rows of each subset file, subsets in alphabetical order. Nothing is drawn by chance. Every row is
 * checked when it is read, so that a broken file is refused before the first request.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { UserError } from '../../../util/index.ts';
import { byCodePoint } from '../../run/python.ts';
import type { ExpectedCall, Language } from './check-call.ts';
import { JsonError, readJson } from './json.ts';
import { type Dict, isDict, isList, type Value } from './value.ts';

export type Category = 'non_live' | 'live' | 'hallucination';

export const subsetsOf: Readonly<Record<Category, readonly string[]>> = {
  non_live: [
    'simple_python',
    'simple_java',
    'simple_javascript',
    'multiple',
    'parallel',
    'parallel_multiple',
  ],
  live: ['live_simple', 'live_multiple', 'live_parallel', 'live_parallel_multiple'],
  hallucination: ['irrelevance', 'live_irrelevance'],
};

export interface SelectionParams {
  readonly categories: readonly Category[];
  /** Percentage of a subset by category; all of it where none is given. */
  readonly category_sample_pct: Readonly<Partial<Record<Category, number>>>;
  /** Subsets up to this size are taken whole. */
  readonly subset_floor: number;
}

export interface Message {
  readonly role: string;
  readonly content: string;
}

export interface BfclSample {
  readonly id: string;
  readonly subset: string;
  readonly category: Category;
  readonly language: Language;
  readonly messages: readonly Message[];
  /** Documentation as it stands in the file. */
  readonly functions: readonly Dict[];
  /** null where no call is the right answer. */
  readonly expected: readonly ExpectedCall[] | null;
}

const languages: Readonly<Record<string, Language>> = {
  simple_java: 'java',
  simple_javascript: 'javascript',
};

/** Throws UserError('bad_dataset') that names the file and the line. */
export function selectSamples(folder: string, params: SelectionParams): BfclSample[] {
  if (!existsSync(folder) || !statSync(folder).isDirectory())
    throw new UserError('bad_dataset', `${folder} is not a folder`, {
      param: 'bfcl',
      hint: 'Name the data folder of bfcl-eval, the one with BFCL_v4_simple_python.json.',
    });
  const subsets = params.categories.flatMap((category) =>
    subsetsOf[category].map((subset) => ({ subset, category })),
  );
  return subsets
    .sort((a, b) => byCodePoint(a.subset, b.subset))
    .flatMap(({ subset, category }) => readSubset(folder, subset, category, params));
}

/** sha256 over the ids, one a line. */
export function hashOfIds(samples: readonly BfclSample[]): string {
  return createHash('sha256')
    .update(samples.map(({ id }) => id).join('\n'))
    .digest('hex');
}

export function sampleCount(size: number, percent: number, floor: number): number {
  return size <= floor ? size : Math.max(1, Math.floor((size * percent) / 100));
}

function readSubset(
  folder: string,
  subset: string,
  category: Category,
  params: SelectionParams,
): BfclSample[] {
  const name = `BFCL_v4_${subset}.json`;
  const rows = readRows(join(folder, name));
  const count = sampleCount(rows.length, params.category_sample_pct[category] ?? 100, params.subset_floor);
  const answers = category === 'hallucination' ? null : readAnswers(join(folder, 'possible_answer', name));
  return rows.slice(0, count).map((row) => {
    const id = idOf(row);
    const expected = answers === null ? null : answers.get(id);
    if (expected === undefined) throw broken(row, `'${id}' has no row in possible_answer/${name}`);
    const [messages, functions] = [messagesOf(row), functionsOf(row)];
    return { id, subset, category, language: languages[subset] ?? 'python', messages, functions, expected };
  });
}

interface Row {
  readonly value: Dict;
  readonly place: string;
}

const broken = ({ place }: Row, message: string): UserError =>
  new UserError('bad_dataset', `${place}: ${message}`);

function readRows(path: string): Row[] {
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(path));
  } catch (cause) {
    throw new UserError('bad_dataset', `can not read ${path}: ${(cause as Error).message}`, { cause });
  }
  const rows = text
    .split('\n')
    .flatMap((line, i) => (line.trim() === '' ? [] : [readRow(line, `${path}:${i + 1}`)]));
  if (rows.length === 0) throw new UserError('bad_dataset', `${path} has no rows`);
  const seen = new Set<string>();
  for (const row of rows) {
    const id = idOf(row);
    if (seen.has(id)) throw broken(row, `the id '${id}' is there twice`);
    seen.add(id);
  }
  return rows;
}

function readRow(line: string, place: string): Row {
  let value: Value;
  try {
    value = readJson(line);
  } catch (error) {
    if (!(error instanceof JsonError)) throw error;
    throw new UserError('bad_dataset', `${place}: not JSON: ${error.message}`);
  }
  if (!isDict(value)) throw new UserError('bad_dataset', `${place}: the row is not an object`);
  return { value, place };
}

function idOf(row: Row): string {
  const id = row.value.get('id');
  if (typeof id !== 'string' || id === '') throw broken(row, "'id' is not a text");
  return id;
}

function listAt(row: Row, key: string): readonly Value[] {
  const list = row.value.get(key);
  if (!isList(list) || list.length === 0) throw broken(row, `'${key}' is not a list with entries`);
  return list;
}

function messagesOf(row: Row): Message[] {
  return listAt(row, 'question').flatMap((turn) => {
    if (!isList(turn)) throw broken(row, "a turn of 'question' is not a list");
    return turn.map((message) => {
      const role = isDict(message) ? message.get('role') : undefined;
      const content = isDict(message) ? (message.get('content') ?? '') : undefined;
      if (typeof role !== 'string' || typeof content !== 'string')
        throw broken(row, "a message of 'question' is not an object with role and content");
      return { role, content };
    });
  });
}

function functionsOf(row: Row): Dict[] {
  return listAt(row, 'function').map((entry) => {
    if (!isDict(entry) || typeof entry.get('name') !== 'string')
      throw broken(row, "an entry of 'function' has no name");
    const parameters = entry.get('parameters');
    if (!isDict(parameters) || !isDict(parameters.get('properties')))
      throw broken(row, `function '${String(entry.get('name'))}' has no properties of parameters`);
    return entry;
  });
}

function readAnswers(path: string): Map<string, ExpectedCall[]> {
  return new Map(
    readRows(path).map((row) => [
      idOf(row),
      listAt(row, 'ground_truth').map((call) => expectedCall(call, row)),
    ]),
  );
}

function expectedCall(call: Value, row: Row): ExpectedCall {
  const [entry, ...others] = isDict(call) ? [...call] : [];
  if (entry === undefined || others.length > 0)
    throw broken(row, 'an answer is not an object of one function');
  const [name, options] = entry;
  if (!isDict(options)) throw broken(row, `the options of '${name}' are not an object`);
  for (const [param, accepted] of options)
    if (!isList(accepted)) throw broken(row, `the options of '${name}.${param}' are not a list`);
  return { name, options };
}
