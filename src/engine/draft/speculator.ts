/**
 * Decides what each sequence guesses for its next step. One candidate tree collects the guesses of all sources; of its nodes the
 * step takes as many as pay by this machine's measured costs. A wrong guess costs time, never a token: the walk down the tree
 * asks the ordinary sampler.
 */
import type { Buffer } from '../../backends/index.ts';
import { type DraftTree, emptyTree, nodeDepths } from '../draft-tree.ts';
import type { Guide } from '../guide/guide.ts';
import type { Sequence } from '../sequence.ts';
import { Calibration } from './calibration.ts';
import { type Candidate, CandidateTree } from './candidate-tree.ts';
import { bestNodeCount, type CostModel } from './cost-model.ts';
import { DraftFigures, type SpeculationFigures } from './figures.ts';
import { addForced, allowedList, allowedTree } from './forced-source.ts';
import { FullTree } from './full-tree.ts';
import { DraftHistory } from './history.ts';
import { type DraftMode, maxSteps } from './mode.ts';
import type { FillWork, MtpLayer } from './mtp-layer.ts';
import { type DepthList, growSharedTree } from './shared-tree.ts';
import { SuffixIndex } from './suffix-index.ts';
import { addSuffixDrafts } from './suffix-source.ts';

export interface Speculator {
  start(sequence: Sequence): void;
  /** Before the sequence is forgotten. */
  end(sequence: Sequence): void;
  /** The tree to verify next; small enough for `maxNodes` rows. */
  treeOf(sequence: Sequence): DraftTree;
  /** After the forward and its walks: fills the MTP layer; works of ended sequences are filled but not drafted for. */
  fill(works: readonly FillWork[], hidden: Buffer): Promise<void>;
  /** Guesses for the sequences that go on. */
  draft(sequences: readonly Sequence[]): Promise<void>;
  observe(sequence: Sequence, tree: DraftTree, path: readonly number[]): void;
  /** The time of a step that only decoded: its rows, its sequences and the mean of the tokens before them. */
  observeStep(step: { rows: number; context: number; sequences: readonly Sequence[] }, ms: number): void;
  /** Of one sequence, or of all since the start. */
  figures(sequence?: Sequence): SpeculationFigures;
}

interface Plan {
  readonly index: SuffixIndex;
  indexed: number;
  tree: DraftTree;
  /** Source, depth and claim of each node of the tree. */
  claims: readonly Pick<Candidate, 'source' | 'depth' | 'claim'>[];
  /** Candidates of the MTP layer for the next token, from the last fill. */
  first: { list: DepthList; row: number } | null;
  readonly figures: DraftFigures;
}

export interface SpeculatorParts {
  readonly mode: DraftMode;
  /** null = the suffix index alone. */
  readonly mtp: MtpLayer | null;
  readonly cost: CostModel | null;
  readonly maxNodes: number;
  /** Tokens of finished sequences that are remembered per tenant; 0 = none. */
  readonly historyTokens: number;
}

type Shape = Extract<DraftMode, { steps: number }>;

const suffixNodes = 48;

export class Drafting implements Speculator {
  readonly #parts: SpeculatorParts;
  readonly #calibration = new Calibration();
  readonly #plans = new WeakMap<Sequence, Plan>();
  readonly #figures = new DraftFigures();
  readonly #history: DraftHistory | null;
  /** How often the MTP layer's best guess at a depth was right lately. */
  readonly #mtpRight: number[] = Array.from({ length: maxSteps }, () => 0.7);

  constructor(parts: SpeculatorParts) {
    this.#parts = parts;
    this.#history = parts.historyTokens > 0 ? new DraftHistory(parts.historyTokens) : null;
  }

  start(sequence: Sequence): void {
    this.#plans.set(sequence, {
      index: new SuffixIndex(),
      indexed: 0,
      tree: emptyTree,
      claims: [],
      first: null,
      figures: new DraftFigures(),
    });
    this.#parts.mtp?.start(sequence);
  }

  end(sequence: Sequence): void {
    // What came from the cache was remembered when it was new.
    this.#history?.add(
      sequence.request.tenant,
      sequence.tokens.subarray(sequence.cachedLen, sequence.knownLen),
    );
  }

  treeOf(sequence: Sequence): DraftTree {
    const room = sequence.maxLen - sequence.knownLen;
    const plan = this.#plans.get(sequence);
    return plan === undefined || room < 1 ? emptyTree : plan.tree;
  }

  async fill(works: readonly FillWork[], hidden: Buffer): Promise<void> {
    const { mtp } = this.#parts;
    if (mtp === null) return;
    const wanted = works.map((work) => ({ ...work, drafts: work.drafts && this.#wantsMtp(work.sequence) }));
    const lists = await mtp.fill(wanted, hidden);
    for (const { sequence } of works) {
      const plan = this.#plans.get(sequence);
      if (plan !== undefined) plan.first = lists.get(sequence) ?? null;
    }
  }

  async draft(sequences: readonly Sequence[]): Promise<void> {
    for (const sequence of sequences) await this.#plan(sequence, sequences.length);
  }

  observe(sequence: Sequence, tree: DraftTree, path: readonly number[]): void {
    const plan = this.#plans.get(sequence);
    if (plan === undefined || plan.tree !== tree) return;
    const accepted = new Set(path);
    const nodes = plan.claims.map((claim, node) => ({ ...claim, isRight: accepted.has(node) }));
    for (const figures of [this.#figures, plan.figures]) figures.observe(nodes);
    for (const [node, { isRight, ...claim }] of nodes.entries()) {
      const parent = tree.parents[node] as number;
      // Only a node whose parent was right says something about its source.
      if (parent < 0 || accepted.has(parent)) this.#calibration.observe(claim, isRight ? 1 : 0);
    }
    this.#noteMtp(plan, accepted, tree);
  }

  observeStep(
    { rows, context, sequences }: { rows: number; context: number; sequences: readonly Sequence[] },
    ms: number,
  ): void {
    const predictedMs = this.#parts.cost?.step(rows, context);
    if (predictedMs === undefined) return;
    this.#figures.observeStep(predictedMs, ms);
    for (const sequence of sequences) this.#plans.get(sequence)?.figures.observeStep(predictedMs, ms);
  }

  figures(sequence?: Sequence): SpeculationFigures {
    const own = sequence === undefined ? this.#figures : this.#plans.get(sequence)?.figures;
    return (own ?? new DraftFigures()).read();
  }

  async #plan(sequence: Sequence, together: number): Promise<void> {
    const plan = this.#plans.get(sequence);
    if (plan === undefined) return;
    plan.index.append(sequence.tokens.subarray(plan.indexed, sequence.knownLen));
    plan.indexed = sequence.knownLen;
    const room = Math.min(maxSteps, sequence.maxLen - sequence.knownLen - 1);
    plan.tree = emptyTree;
    plan.claims = [];
    if (room < 1) return;
    if (this.#parts.mode.kind === 'auto') await this.#planAuto(sequence, plan, { room, together });
    else await this.#planShape(sequence, plan, { mode: this.#parts.mode as Shape, room });
  }

  /** What followed the same words before: in this sequence, and in those of its tenant that ended lately. */
  #addTexts(
    sequence: Sequence,
    plan: Plan,
    { tree, ...limits }: { tree: CandidateTree; steps: number; nodes: number },
  ): void {
    addSuffixDrafts(tree, { source: 'suffix', found: plan.index.find() }, limits);
    const found = this.#history
      ?.of(sequence.request.tenant)
      ?.findEndOf(sequence.tokens.subarray(0, sequence.knownLen));
    if (found !== undefined) addSuffixDrafts(tree, { source: 'history', found }, limits);
  }

  // ---- auto ---------------------------------------------------------------------------------------------

  /** Worth asking when the layer's first guess is likely to pay for the pass that makes it. */
  #wantsMtp(sequence: Sequence): boolean {
    const { mode, cost } = this.#parts;
    if (mode.kind !== 'auto' || cost === null) return true;
    const context = sequence.knownLen;
    const plain = 1 / cost.step(1, context);
    return (1 + (this.#mtpRight[0] as number)) / (cost.step(2, context) + cost.draft(context)) > plain;
  }

  async #planAuto(
    sequence: Sequence,
    plan: Plan,
    { room, together }: { room: number; together: number },
  ): Promise<void> {
    const { cost, maxNodes } = this.#parts;
    const tree = new CandidateTree(this.#calibration.probability, { maxDepth: room, guide: sequence.guide });
    addForced(tree, sequence.guide, room);
    this.#addTexts(sequence, plan, { tree, steps: room, nodes: suffixNodes });
    const context = sequence.knownLen;
    const others = together - 1;
    const stepMs = (rows: number): number => cost?.step(rows + others, context) ?? 1 + 0.1 * rows;
    const spentMs =
      plan.first === null
        ? 0
        : await this.#addMtp(sequence, tree, {
            first: plan.first,
            room,
            stepMs,
            draftMs: cost?.draft(context) ?? 0,
          });
    const scores = tree.scores().slice(0, Math.floor(maxNodes / Math.max(1, together)));
    take(plan, tree, bestNodeCount(scores, stepMs, spentMs));
  }

  /** Grows the MTP chain while another pass is expected to pay; returns what the passes cost. */
  async #addMtp(
    sequence: Sequence,
    tree: CandidateTree,
    {
      first,
      room,
      stepMs,
      draftMs,
    }: {
      first: { list: DepthList; row: number };
      room: number;
      stepMs: (rows: number) => number;
      draftMs: number;
    },
  ): Promise<number> {
    const { mtp } = this.#parts;
    let spentMs = draftMs;
    let { list, row } = first;
    let parent = -1;
    const parents: number[] = [];
    for (let depth = 0; depth < room; depth++) {
      const added = list.ids
        .slice(0, 3)
        .map((id, i) => tree.add(parent, id, 'mtp', Math.exp(list.logProbs[i] ?? Number.NEGATIVE_INFINITY)));
      // The form of the answer may rule the best guess out, or say what comes instead.
      parent = tree.forcedChild(parent) ?? added.find((index) => index >= 0) ?? -1;
      const node = tree.nodes[parent];
      if (node === undefined || mtp === null || depth + 1 >= room) break;
      const scores = tree.scores();
      const count = bestNodeCount(scores, stepMs, spentMs);
      const tokens = 1 + scores.slice(0, count).reduce((a, b) => a + b, 0);
      const gain = node.score * (this.#mtpRight[depth + 1] ?? 0);
      if ((tokens + gain) / (stepMs(count + 2) + spentMs + draftMs) <= tokens / (stepMs(count + 1) + spentMs))
        break;
      parents.push(depth - 1);
      const nodes = [{ id: node.id, depth, fromRow: row }];
      const [[next] = []] = await mtp.expand([{ sequence, parents, nodes }], depth === 0 ? 'fill' : 'pass');
      if (next === undefined) break;
      ({ list, row } = next);
      spentMs += draftMs;
    }
    return spentMs;
  }

  #noteMtp(plan: Plan, accepted: ReadonlySet<number>, tree: DraftTree): void {
    for (const [node, { source, depth }] of plan.claims.entries()) {
      if (!isByMtp(source)) continue;
      const parent = tree.parents[node] as number;
      const isFirst = !plan.claims.some(
        (other, i) => i < node && isByMtp(other.source) && tree.parents[i] === parent,
      );
      if (!isFirst || !(parent < 0 || accepted.has(parent))) continue;
      const before = this.#mtpRight[depth] ?? 0.7;
      this.#mtpRight[depth] = before + 0.05 * ((accepted.has(node) ? 1 : 0) - before);
    }
  }

  // ---- fixed shapes -------------------------------------------------------------------------------------

  async #planShape(
    sequence: Sequence,
    plan: Plan,
    { mode, room }: { mode: Shape; room: number },
  ): Promise<void> {
    const steps = Math.min(mode.steps, room);
    const { mtp } = this.#parts;
    const forced = this.#shapeTree(sequence, room);
    if (addForced(forced, sequence.guide, Math.min(room, mode.nodes - 1)) > 0)
      return take(plan, forced, mode.nodes - 1);
    if (mtp === null) return this.#planTexts(sequence, plan, { steps, mode });
    if (plan.first === null) return;
    const tree =
      mode.kind === 'full'
        ? await this.#fullShape(sequence, plan.first, { steps, mode, mtp })
        : growSharedTree(
            await this.#greedyLists(sequence, plan.first, { steps, topK: mode.topK, mtp }),
            mode.nodes,
          );
    plan.tree = allowedTree(tree, sequence.guide);
    plan.claims = Array.from(nodeDepths(plan.tree.parents), (depth) => ({
      source: 'mtp',
      depth,
      claim: 0.5,
    }));
  }

  /** Without MTP weights the shape is filled with what followed the same words before. */
  #planTexts(sequence: Sequence, plan: Plan, { steps, mode }: { steps: number; mode: Shape }): void {
    const tree = this.#shapeTree(sequence, steps);
    const nodes = mode.kind === 'chain' ? steps : mode.nodes - 1;
    this.#addTexts(sequence, plan, { tree, steps, nodes });
    take(plan, tree, mode.nodes - 1);
  }

  #shapeTree({ guide }: Sequence, maxDepth: number): CandidateTree {
    return new CandidateTree((_source, _depth, claim) => Math.min(0.999, claim), { maxDepth, guide });
  }

  async #greedyLists(
    sequence: Sequence,
    first: { list: DepthList; row: number },
    { steps, topK, mtp }: { steps: number; topK: number; mtp: MtpLayer },
  ): Promise<DepthList[]> {
    const cut = (list: DepthList, guide: Guide | null): DepthList => {
      const { ids, logProbs } = allowedList(list, guide);
      return { ids: ids.slice(0, topK), logProbs: logProbs.slice(0, topK) };
    };
    let { guide } = sequence;
    let { row } = first;
    let list = cut(first.list, guide);
    const lists = [list];
    const parents: number[] = [];
    while (lists.length < steps) {
      const depth = lists.length - 1;
      const [id] = list.ids;
      if (id === undefined) break;
      guide = guide?.after(id) ?? null;
      parents.push(depth - 1);
      const nodes = [{ id, depth, fromRow: row }];
      const [[next] = []] = await mtp.expand([{ sequence, parents, nodes }], depth === 0 ? 'fill' : 'pass');
      if (next === undefined) break;
      ({ row } = next);
      list = cut(next.list, guide);
      lists.push(list);
    }
    return lists;
  }

  async #fullShape(
    sequence: Sequence,
    first: { list: DepthList; row: number },
    { steps, mode, mtp }: { steps: number; mode: Shape; mtp: MtpLayer },
  ): Promise<DraftTree> {
    const tree = new FullTree(mode.topK);
    let fresh = tree.expand(-1, first.list);
    /** Expanded nodes are rows of draft passes: their place among those, and their row in the last pass. */
    const place = new Map<number, number>();
    const rowOf = new Map<number, number>([[-1, first.row]]);
    const parents: number[] = [];
    for (let depth = 1; depth < steps; depth++) {
      const frontier = tree.frontier(fresh);
      if (frontier.length === 0 || parents.length + frontier.length > this.#parts.maxNodes) break;
      const nodes = frontier.map((index) => {
        const { id, parent } = tree.nodes[index] as (typeof tree.nodes)[number];
        parents.push(place.get(parent) ?? -1);
        place.set(index, parents.length - 1);
        return { id, depth: depth - 1, fromRow: rowOf.get(parent) ?? 0 };
      });
      const [results = []] = await mtp.expand([{ sequence, parents, nodes }], depth === 1 ? 'fill' : 'pass');
      rowOf.clear();
      fresh = frontier.flatMap((index, i) => {
        rowOf.set(index, results[i]?.row ?? 0);
        return tree.expand(index, results[i]?.list ?? { ids: [], logProbs: [] });
      });
    }
    return tree.best(mode.nodes - 1);
  }
}

/** The best nodes become the plan's tree. */
function take(plan: Plan, candidates: CandidateTree, count: number): void {
  const { tree, chosen } = candidates.best(count);
  plan.tree = tree;
  plan.claims = chosen.map((index) => candidates.nodes[index] as Candidate);
}

const isByMtp = (source: Candidate['source']): boolean => source === 'mtp' || source === 'both';
