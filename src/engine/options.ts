/** Everything the engine can be told, with its defaults; the CLI's flags are made from it. */
import type { KvDtype } from '../backends/index.ts';
import { UserError } from '../util/index.ts';
import { parseDraftMode } from './draft/mode.ts';

export interface EngineOptions {
  /** Engine folder. */
  readonly folder: string;
  readonly backend: 'auto' | 'native' | 'reference';
  /** Compute threads; 0 = one per core. */
  readonly threads: number;
  /** Budget of KV pages and snapshots together, bytes. */
  readonly cacheBytes: number;
  readonly kvDtype: KvDtype;
  /** Longest prompt plus answer; 0 = what the model and the budget allow. */
  readonly contextTokens: number;
  /** Sequences that share a step. */
  readonly maxSequences: number;
  /** Requests that may wait for a place. */
  readonly maxWaiting: number;
  /** Prompt tokens computed per step, all sequences together. */
  readonly prefillTokens: number;
  readonly pageTokens: number;
  /** How to speculate: off, auto, chain:STEPS, tree:STEPSxTOPKxNODES, full:STEPSxTOPKxNODES. */
  readonly speculation: string;
  /** Tokens of finished sequences that drafts may come from, per tenant; 0 = none. */
  readonly draftHistory: number;
  /** Ids from here on are padding and never chosen; 0 = the model's whole vocabulary. */
  readonly usableVocab: number;
  /** Ids that end answers. With some, what constrained answers need of the vocabulary is made when the engine opens. */
  readonly stopIds: readonly number[];
}

export const defaultEngineOptions: Omit<EngineOptions, 'folder'> = {
  backend: 'auto',
  threads: 0,
  cacheBytes: 1024 ** 3,
  kvDtype: 'fp8',
  contextTokens: 0,
  maxSequences: 4,
  maxWaiting: 256,
  prefillTokens: 512,
  pageTokens: 32,
  speculation: 'auto',
  draftHistory: 0,
  usableVocab: 0,
  stopIds: [],
};

const limits: Partial<Record<keyof EngineOptions, readonly [number, number]>> = {
  threads: [0, 256],
  cacheBytes: [1024 ** 2, 2 ** 50],
  contextTokens: [0, 2 ** 24],
  maxSequences: [1, 64],
  maxWaiting: [0, 100_000],
  prefillTokens: [1, 8192],
  pageTokens: [8, 256],
  draftHistory: [0, 2 ** 18],
  usableVocab: [0, 2 ** 24],
};

const choices: Partial<Record<keyof EngineOptions, readonly string[]>> = {
  backend: ['auto', 'native', 'reference'],
  kvDtype: ['fp8', 'bf16', 'f32'],
};

/** Fills in the defaults; unknown names and values out of range are refused. */
export function engineOptions(given: Partial<EngineOptions> & { folder: string }): EngineOptions {
  const known: ReadonlySet<string> = new Set([...Object.keys(defaultEngineOptions), 'folder']);
  for (const [name, value] of Object.entries(given)) {
    if (!known.has(name)) throw new UserError('bad_option', `unknown engine option '${name}'`);
    const range = limits[name as keyof EngineOptions];
    if (range !== undefined && value !== undefined) checkRange(name, value, range);
    const allowed = choices[name as keyof EngineOptions];
    if (allowed !== undefined && value !== undefined && !allowed.includes(String(value)))
      throw new UserError(
        'bad_option',
        `${name} is '${String(value)}', expected one of ${allowed.join(', ')}`,
      );
  }
  if (given.speculation !== undefined) parseDraftMode(given.speculation);
  const defined = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  return Object.freeze({ ...defaultEngineOptions, folder: given.folder, ...defined });
}

function checkRange(name: string, value: unknown, [low, high]: readonly [number, number]): void {
  if (typeof value === 'number' && Number.isInteger(value) && value >= low && value <= high) return;
  throw new UserError(
    'bad_option',
    `${name} is ${String(value)}, expected a whole number from ${low} to ${high}`,
  );
}
