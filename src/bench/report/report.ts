/** `report.json`: what the report page shows, as data. */
import { cpus, totalmem } from 'node:os';
import type { ServerUsage } from '../run/answer.ts';
import { type BenchConfig, redactUrls } from '../run/config.ts';
import type { Sample } from '../run/replay.ts';
import type { AccuracyEntry } from '../score/accuracy.ts';
import type { ResultSummary, SampleFigures } from '../score/summary.ts';
import type { Check } from '../submit/check.ts';
import { type CostLine, costLines } from './cost.ts';
import type { PerformanceResult } from './results.ts';

export interface TurnReport {
  readonly conversation: string;
  readonly turn: number;
  readonly inputTokens: number | null;
  readonly outputTokens: number | null;
  readonly ttftMs: number | null;
  readonly tpotMs: number | null;
  /** null while no answer had come. */
  readonly latencyMs: number | null;
  /** Counts of the server, where it reports them. */
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
  readonly generatedTokens: number | null;
  readonly steps: number | null;
  readonly draftedTokens: number | null;
  readonly acceptedTokens: number | null;
  readonly iou: number | null;
  readonly error: string | null;
  readonly finishReason: string | null;
  readonly answer: string;
  readonly expected: string;
}

export interface BenchReport {
  readonly name: string;
  readonly model: string;
  readonly endpoint: string;
  readonly createdAt: string;
  readonly machine: { readonly cpu: string; readonly cores: number; readonly memoryGiB: number };
  readonly concurrency: number;
  readonly interrupted: boolean;
  readonly summary: ResultSummary | null;
  readonly iou: number | null;
  readonly turns: { readonly issued: number; readonly missing: number } | null;
  /** Prompt tokens and the cached ones among them by the server's own count; null when it reports none. */
  readonly cache: {
    readonly promptTokens: number;
    readonly cachedTokens: number;
    readonly share: number;
    /** Time spent reading the server's metrics page between turns, part of the duration. */
    readonly readingMs: number;
  } | null;
  readonly cost: readonly CostLine[];
  /** The compliance check of these results. */
  readonly checks: readonly Check[];
  readonly entries: readonly AccuracyEntry[];
  readonly notRun: readonly string[];
  readonly perTurn: readonly TurnReport[];
}

export interface ReportInput {
  readonly config: BenchConfig;
  readonly performance: PerformanceResult | null;
  readonly entries: readonly AccuracyEntry[];
  readonly notRun: readonly string[];
  readonly checks: readonly Check[];
  readonly interrupted: boolean;
}

export function buildReport(input: ReportInput): BenchReport {
  const { config, performance, entries, notRun, checks, interrupted } = input;
  const cache = performance === null ? null : cacheOf(performance);
  return {
    name: config.name,
    model: config.model_params.name,
    endpoint: redactUrls(config.endpoint_config.endpoints[0] ?? ''),
    createdAt: new Date().toISOString(),
    machine: {
      cpu: cpus()[0]?.model.trim() ?? 'unknown',
      cores: cpus().length,
      memoryGiB: Math.round(totalmem() / 2 ** 30),
    },
    concurrency: config.settings.load_pattern.target_concurrency,
    interrupted,
    summary: performance?.summary ?? null,
    iou: performance?.scores.score ?? null,
    turns:
      performance === null
        ? null
        : { issued: performance.scores.turns.issued, missing: missingTurns(performance) },
    cache,
    cost:
      performance === null ? [] : costLines(performance.energy, performance.summary, cache?.share ?? null),
    checks,
    entries,
    notRun,
    perTurn: performance === null ? [] : turnReports(performance),
  };
}

/** Turns without an answer, those that the score leaves out among them. */
const missingTurns = ({ result }: PerformanceResult): number =>
  result.samples.filter(({ answer }) => answer === null).length;

const usageOf = ({ sample }: SampleFigures, { served }: PerformanceResult): ServerUsage | null =>
  sample.answer?.usage ?? served.counts?.usageOf(sample.uuid) ?? null;

/** Turn by turn where the server tells, else over the whole phase. */
function cacheOf(performance: PerformanceResult): BenchReport['cache'] {
  const { figures, served } = performance;
  const perTurn = figures.map((figure) => usageOf(figure, performance)).filter((usage) => usage !== null);
  const counted = perTurn.length > 0 ? perTurn : served.total === null ? [] : [served.total];
  const promptTokens = counted.reduce((sum, usage) => sum + usage.promptTokens, 0);
  const cachedTokens = counted.reduce((sum, usage) => sum + usage.cachedTokens, 0);
  if (promptTokens === 0) return null;
  const readingMs = served.counts?.readingMs ?? 0;
  return { promptTokens, cachedTokens, share: cachedTokens / promptTokens, readingMs };
}

const ms = (ns: number | null): number | null => (ns === null ? null : ns / 1e6);

function turnReports(performance: PerformanceResult): TurnReport[] {
  const { figures, scores } = performance;
  const scoreOf = new Map(
    scores.per_turn.map((turn) => [`${turn.conversation_id} ${turn.repeat} ${turn.turn}`, turn.score]),
  );
  return figures.map((figure) => {
    const { sample, tokens, latencyNs, ttftNs, tpotNs } = figure;
    const { turn, answer, error, logicalId, pass } = sample;
    const usage = usageOf(figure, performance);
    return {
      conversation: logicalId,
      turn: turn.turn,
      inputTokens: tokens?.input ?? null,
      outputTokens: tokens?.output ?? null,
      ttftMs: ms(ttftNs),
      tpotMs: ms(tpotNs),
      latencyMs: ms(latencyNs),
      promptTokens: usage?.promptTokens ?? null,
      cachedTokens: usage?.cachedTokens ?? null,
      generatedTokens: usage?.generated ?? null,
      steps: usage?.steps ?? null,
      draftedTokens: usage?.drafted ?? null,
      acceptedTokens: usage?.accepted ?? null,
      iou: scoreOf.get(`${turn.conversationId} ${pass} ${turn.recorded?.turn}`) ?? null,
      error: error === null ? null : `${error.type}: ${error.message}`,
      finishReason: answer?.finishReason ?? null,
      answer: answerText(sample),
      expected: JSON.stringify(turn.recorded?.json.tool_calls ?? turn.recorded?.json.content ?? null),
    };
  });
}

function answerText({ answer }: Sample): string {
  if (answer === null) return '';
  const calls = answer.calls;
  return [answer.reasoning.join(''), answer.content.join(''), calls === null ? '' : JSON.stringify(calls)]
    .filter((part) => part !== '')
    .join('\n');
}
