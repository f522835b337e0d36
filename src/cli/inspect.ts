/** `copse inspect`: what a checkpoint, an engine folder or this machine is. */
import { existsSync } from 'node:fs';
import { arch, cpus, platform, totalmem } from 'node:os';
import { join } from 'node:path';
import type { Command } from 'commander';
import { describeBackends } from '../backends/index.ts';
import { isEngineFolder, openEngineFolder } from '../build/index.ts';
import {
  type Checkpoint,
  describeWeight,
  type ExpectedWeight,
  expectedWeights,
  hasMtp,
  type ModelConfig,
} from '../checkpoint/index.ts';
import { UserError } from '../util/index.ts';
import { checkedCheckpoint } from './model.ts';

const debugVariables = ['COPSE_CACHE', 'COPSE_DATA', 'COPSE_ISA', 'COPSE_THREADS'];

export function addInspect(program: Command): void {
  program
    .command('inspect')
    .description('tell what a checkpoint, an engine folder or, without a path, this machine is')
    .argument('[path]', 'checkpoint folder or engine folder')
    .option('--json', 'print JSON')
    .action((path: string | undefined, flags: { json?: boolean }) => {
      const facts =
        path === undefined
          ? machineFacts()
          : isEngineFolder(path)
            ? folderFacts(path)
            : checkpointFacts(path);
      if (flags.json) console.log(JSON.stringify(facts, null, 2));
      else printFacts(facts, '');
    });
}

type Facts = { readonly [name: string]: unknown };

function machineFacts(): Facts {
  return {
    machine: {
      cpu: cpus()[0]?.model.trim() ?? 'unknown',
      cores: cpus().length,
      memoryGiB: Number((totalmem() / 2 ** 30).toFixed(1)),
      platform: `${platform()} ${arch()}`,
      node: process.version,
    },
    backends: describeBackends(),
    environment: Object.fromEntries(debugVariables.map((name) => [name, process.env[name] ?? '(not set)'])),
  };
}

function modelFacts(config: ModelConfig): Facts {
  const full = config.layerTypes.filter((type) => type === 'full_attention').length;
  return {
    type: config.modelType,
    layers: `${config.layerTypes.length} (${config.layerTypes.length - full} delta net, ${full} attention)`,
    hidden: config.hiddenSize,
    intermediate: config.intermediateSize,
    vocabulary: config.vocabSize,
    heads: `${config.heads} query, ${config.kvHeads} key-value, dimension ${config.headDim}`,
    linearHeads: `${config.linKeyHeads} key, ${config.linValueHeads} value, dimensions ${config.linKeyDim} and ${config.linValueDim}`,
    tiedHead: config.tied,
    maxPositions: config.maxPositions,
  };
}

function countBy(formats: readonly string[]): Facts {
  const counts: Record<string, number> = {};
  for (const format of formats) counts[format] = (counts[format] ?? 0) + 1;
  return counts;
}

function missingMtp(ck: Checkpoint): Facts {
  if (hasMtp(ck) || ck.config.mtpLayers === 0) return {};
  return { mtpWeights: 'none: config.json declares an MTP layer, no file has mtp.*' };
}

const layoutOf =
  (ck: Checkpoint) =>
  (weight: ExpectedWeight): string => {
    const stored = describeWeight(ck, weight);
    if (stored.kind === 'values') return stored.format;
    if (stored.kind !== 'plain') return stored.kind;
    return (ck.tensors.get(stored.tensor)?.dtype ?? 'plain').toLowerCase();
  };

function checkpointFacts(path: string): Facts {
  if (!existsSync(join(path, 'config.json')))
    throw new UserError('bad_option', `${path} is neither a checkpoint nor an engine folder`);
  const ck = checkedCheckpoint(path);
  const tensors = [...ck.tensors.values()];
  return {
    checkpoint: path,
    model: { ...modelFacts(ck.config), mtp: hasMtp(ck), ...missingMtp(ck) },
    layouts: countBy(
      expectedWeights(ck.config)
        .filter(({ linear }) => linear)
        .map(layoutOf(ck)),
    ),
    tensors: tensors.length,
    bytes: tensors.reduce((sum, { bytes }) => sum + bytes, 0),
    dtypes: countBy(tensors.map(({ dtype }) => dtype)),
  };
}

function folderFacts(path: string): Facts {
  const { config, manifest, weights, weightBytes } = openEngineFolder(path);
  const errors = [...weights].filter(([, { error }]) => error > 0).sort(([, a], [, b]) => b.error - a.error);
  return {
    engineFolder: path,
    recipe: manifest.recipe,
    source: manifest.source,
    model: { ...modelFacts(config), mtp: manifest.hasMtp },
    weights: weights.size,
    bytes: weightBytes,
    formats: countBy([...weights.values()].map(({ format }) => format)),
    largestErrors: Object.fromEntries(
      errors.slice(0, 5).map(([name, { error }]) => [name, `${(100 * error).toFixed(2)} %`]),
    ),
  };
}

function printFacts(facts: Facts, indent: string): void {
  for (const [name, value] of Object.entries(facts)) {
    if (typeof value === 'object' && value !== null) {
      console.log(`${indent}${name}`);
      printFacts(value as Facts, `${indent}  `);
    } else console.log(`${indent}${name}: ${String(value)}`);
  }
}
