/** Values of command-line options: numbers with units, choices, and the flags that engines share. */
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isJsonObject, type JsonObject, parseLossless } from '../chat/index.ts';
import { defaultEngineOptions, type EngineOptions } from '../engine/index.ts';

const units: Record<string, number> = { '': 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** `2G`, `512MiB`, `1000000` */
export function parseBytes(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(text.trim());
  if (match === null) throw new InvalidArgumentError('expected a size such as 512M or 2G');
  return Math.floor(Number(match[1]) * (units[(match[2] ?? '').toLowerCase()] ?? 1));
}

/** The JSON text of an object. */
export function parseObject(text: string): JsonObject {
  try {
    const value = parseLossless(text);
    if (isJsonObject(value)) return value;
  } catch {
    // Said below.
  }
  throw new InvalidArgumentError(`expected the JSON of an object, such as '{"key": true}'`);
}

/** A whole number between two limits. */
export function parseCount(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (text.trim() === '' || !Number.isInteger(value) || value < least || value > most)
      throw new InvalidArgumentError(`expected a whole number from ${least} to ${most}`);
    return value;
  };
}

export interface EngineFlags {
  readonly backend: EngineOptions['backend'];
  readonly threads: number;
  readonly memory: number;
  readonly kv: EngineOptions['kvDtype'];
  readonly context: number;
  readonly sequences: number;
  readonly maxWaiting: number;
  readonly prefill: number;
  readonly recipe: 'nvfp4' | 'plain';
  readonly speculation: string;
  readonly draftHistory: number;
}

export function addEngineFlags(command: Command): Command {
  const d = defaultEngineOptions;
  return command
    .addOption(
      new Option('--backend <name>', 'compute with')
        .choices(['auto', 'native', 'reference'])
        .default(d.backend),
    )
    .option('--threads <n>', 'compute threads, 0 = one per core', parseCount(0, 256), d.threads)
    .option('--memory <size>', 'budget of cached pages and snapshots', parseBytes, d.cacheBytes)
    .addOption(
      new Option('--kv <type>', 'type of cached keys and values')
        .choices(['fp8', 'bf16', 'f32'])
        .default(d.kvDtype),
    )
    .option(
      '--context <tokens>',
      'longest prompt plus answer, 0 = what model and memory allow',
      parseCount(0, 2 ** 24),
      d.contextTokens,
    )
    .option('--sequences <n>', 'sequences that share a step', parseCount(1, 64), d.maxSequences)
    .option('--max-waiting <n>', 'requests that may wait for a place', parseCount(0, 100_000), d.maxWaiting)
    .option('--prefill <tokens>', 'prompt tokens computed per step', parseCount(1, 8192), d.prefillTokens)
    .option('--speculation <mode>', 'off, auto, chain:3, tree:8x2x16, full:4x2x16', d.speculation)
    .option(
      '--draft-history <tokens>',
      "tokens of a user's finished answers that drafts may come from, 12 bytes each, 0 = none",
      parseCount(0, 2 ** 18),
      d.draftHistory,
    )
    .addOption(
      new Option('--recipe <name>', 'how a checkpoint is packed')
        .choices(['nvfp4', 'plain'])
        .default('nvfp4'),
    );
}

export function engineOptionsOf(
  flags: EngineFlags,
): Partial<Omit<EngineOptions, 'folder' | 'usableVocab' | 'stopIds'>> {
  return {
    backend: flags.backend,
    threads: flags.threads,
    cacheBytes: flags.memory,
    kvDtype: flags.kv,
    contextTokens: flags.context,
    maxSequences: flags.sequences,
    maxWaiting: flags.maxWaiting,
    prefillTokens: flags.prefill,
    speculation: flags.speculation,
    draftHistory: flags.draftHistory,
  };
}

/** `on`, `off`, or what the template does by itself. */
export function reasoningOption(): Option {
  return new Option('--reasoning <mode>', 'thinking when a request does not say')
    .choices(['on', 'off', 'template'])
    .default('template');
}

export function thinkingOf(mode: string): boolean | null {
  return mode === 'template' ? null : mode === 'on';
}
