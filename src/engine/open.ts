/** Where an engine is put together: back-end, weights, pools, cache, loop. */
import { type Backend, openBackend } from '../backends/index.ts';
import { openEngineFolder } from '../build/index.ts';
import { PrefixCache } from '../cache/index.ts';
import { loadModel, type Model, type Pools } from '../models/index.ts';
import { loadTokenizer } from '../tokenizer/index.ts';
import { UserError } from '../util/index.ts';
import { EngineCore } from './core.ts';
import { CostModel, mtpPays } from './draft/cost-model.ts';
import { loadCosts } from './draft/measure.ts';
import { type DraftMode, parseDraftMode } from './draft/mode.ts';
import { MtpLayer } from './draft/mtp-layer.ts';
import { Drafting, type Speculator } from './draft/speculator.ts';
import { folderSource } from './folder-source.ts';
import { GuideSource } from './guide/source.ts';
import { type EngineOptions, engineOptions } from './options.ts';
import type { Engine } from './types.ts';

/** Draft nodes per sequence and step. */
export const maxNodes = 64;

/** An engine in this thread. Throws UserError for a bad folder or options that do not fit. */
export async function openEngine(given: Partial<EngineOptions> & { folder: string }): Promise<Engine> {
  const options = engineOptions(given);
  const folder = openEngineFolder(options.folder);
  const backend = openBackend({ name: options.backend, threads: options.threads });
  try {
    const source = folderSource(backend, folder);
    const maxRows = options.prefillTokens + options.maxSequences * (1 + maxNodes);
    const model = loadModel(backend, source, { maxRows });
    return await assembleEngine({
      backend,
      model,
      options,
      weightBytes: folder.weightBytes,
      folder: folder.path,
    });
  } catch (error) {
    backend.close();
    throw error;
  }
}

export interface AssembledParts {
  readonly backend: Backend;
  readonly model: Model;
  readonly options: EngineOptions;
  readonly weightBytes: number;
  /** Where measured costs are kept; null = nowhere. */
  readonly folder: string | null;
}

/** The engine around a model, with its pools and its cache. */
export async function assembleEngine({
  backend,
  model,
  options,
  weightBytes,
  folder,
}: AssembledParts): Promise<Engine> {
  const { cacheBytes, pageTokens, maxSequences: slots } = options;
  const sizes = probeSizes(backend, model, options);
  const limits = {
    pageTokens,
    budgetBytes: cacheBytes,
    ...sizes,
    maxPages: Math.floor(cacheBytes / sizes.pageBytes),
    maxSnapshots: Math.floor(cacheBytes / sizes.snapshotBytes),
  };
  // A sequence needs its pages, one page being copied, and a snapshot beside it to be worth anything.
  const roomTokens = (Math.floor((cacheBytes - sizes.snapshotBytes) / sizes.pageBytes) - 2) * pageTokens;
  const contextTokens = Math.min(
    model.maxPositions,
    roomTokens,
    options.contextTokens || Number.POSITIVE_INFINITY,
  );
  if (roomTokens < Math.max(options.contextTokens, 256))
    throw new UserError(
      'bad_option',
      `a cache of ${cacheBytes} bytes holds ${Math.max(0, roomTokens)} tokens, ${Math.max(options.contextTokens, 256)} are needed`,
      { hint: 'Give the cache more memory, or ask for a shorter context.' },
    );
  if (options.contextTokens > model.maxPositions)
    throw new UserError(
      'bad_option',
      `contextTokens is ${options.contextTokens}, the model allows ${model.maxPositions}`,
    );
  const pools: Pools = {
    kv: backend.createKvPool({
      ...model.kvShape,
      dtype: options.kvDtype,
      pageTokens,
      pages: limits.maxPages,
      slots,
      maxNodes,
    }),
    state: backend.createStatePool({ ...model.stateShape, slots, maxNodes, snapshots: limits.maxSnapshots }),
  };
  const usableVocab = options.usableVocab || model.vocabSize;
  if (usableVocab > model.vocabSize)
    throw new UserError(
      'bad_option',
      `usableVocab is ${usableVocab}, the model has ${model.vocabSize} tokens`,
    );
  const mode = parseDraftMode(options.speculation);
  const measured =
    mode.kind === 'auto'
      ? new CostModel(
          await loadCosts(folder, { backend, model, pools, contextTokens, probe: backend.alloc(1) }),
        )
      : null;
  const mtpParts = { backend, model, pools, usable: usableVocab };
  const usesMtp = model.hasMtp && (measured === null || mtpPays(measured));
  const speculator = openSpeculator(mode, mtpParts, {
    cost: measured,
    usesMtp,
    historyTokens: options.draftHistory,
  });
  const guides = new GuideSource(() => loadTokenizer(options.folder));
  if (options.stopIds.length > 0) guides.prepare(options.stopIds);
  return new EngineCore({
    backend,
    model,
    pools,
    cache: new PrefixCache(limits),
    options,
    usableVocab,
    speculator,
    guides,
    // Snapshots that are small beside the budget are taken at any message of some length.
    spacing: limits.maxSnapshots >= 64 ? 64 : 1024,
    info: {
      vocabSize: model.vocabSize,
      contextTokens,
      maxSequences: slots,
      maxWaiting: options.maxWaiting,
      backend: backend.name,
      backendDetail: backend.detail,
      weightBytes,
      hasMtp: model.hasMtp,
      speculation: describeDrafts(mode, { hasMtp: model.hasMtp, usesMtp }),
    },
  });
}

/** Bytes of a page and of a snapshot, as the back-end stores them. */
function probeSizes(
  backend: Backend,
  model: Model,
  { kvDtype, pageTokens }: EngineOptions,
): { pageBytes: number; snapshotBytes: number } {
  const kv = backend.createKvPool({
    ...model.kvShape,
    dtype: kvDtype,
    pageTokens,
    pages: 1,
    slots: 1,
    maxNodes: 1,
  });
  const state = backend.createStatePool({ ...model.stateShape, slots: 1, maxNodes: 1, snapshots: 1 });
  return { pageBytes: kv.pageBytes, snapshotBytes: state.snapshotBytes };
}

/** Tokens an MTP draft row proposes at most in `auto`. */
const autoTopK = 3;

function openSpeculator(
  mode: DraftMode,
  parts: { backend: Backend; model: Model; pools: Pools; usable: number },
  { cost, usesMtp, historyTokens }: { cost: CostModel | null; usesMtp: boolean; historyTokens: number },
): Speculator | null {
  if (mode.kind === 'off') return null;
  const topK = mode.kind === 'auto' ? autoTopK : mode.topK;
  if (topK > parts.usable)
    throw new UserError(
      'bad_option',
      `speculation asks for the top ${topK} of ${parts.usable} tokens, the limit is ${parts.usable}`,
    );
  const mtp = usesMtp ? new MtpLayer({ ...parts, topK }) : null;
  return new Drafting({ mode, mtp, cost, maxNodes, historyTokens });
}

function describeDrafts(mode: DraftMode, { hasMtp, usesMtp }: { hasMtp: boolean; usesMtp: boolean }): string {
  if (mode.kind === 'off') return 'no drafts';
  const source = usesMtp ? 'MTP' : 'repeated text';
  const why = usesMtp ? '' : hasMtp ? ' (MTP costs more than it saves here)' : ' (no MTP weights)';
  if (mode.kind === 'auto') return `drafts from ${usesMtp ? 'MTP and ' : ''}repeated text${why}`;
  const { kind, steps, topK, nodes } = mode;
  const shape =
    kind === 'chain' ? `chain of ${steps}` : `${kind} of ${steps} steps, top ${topK}, ${nodes} nodes`;
  return `${shape} from ${source}${why}`;
}
