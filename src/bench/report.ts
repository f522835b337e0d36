/** `report.json`: what the report page shows, as data. */
import { cpus, totalmem } from 'node:os';
import type { AccuracyEntry } from './accuracy.ts';
import type { BenchConfig } from './config.ts';
import type { PerformanceResult } from './run.ts';
import type { ResultSummary } from './summary.ts';

export interface TurnReport {
  readonly conversation: string;
  readonly turn: number;
  readonly inputTokens: number | null;
  readonly outputTokens: number | null;
  readonly ttftMs: number | null;
  readonly tpotMs: number | null;
  readonly latencyMs: number;
  /** Counts of the server, where it reports them. */
  readonly promptTokens: number | null;
  readonly cachedTokens: number | null;
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
  } | null;
  readonly entries: readonly AccuracyEntry[];
  readonly notRun: readonly string[];
  readonly perTurn: readonly TurnReport[];
}

export interface ReportInput {
  readonly config: BenchConfig;
  readonly performance: PerformanceResult | null;
  readonly entries: readonly AccuracyEntry[];
  readonly notRun: readonly string[];
  readonly interrupted: boolean;
}

export function buildReport({ config, performance, entries, notRun, interrupted }: ReportInput): BenchReport {
  const perTurn = performance === null ? [] : turnReports(performance);
  const counted = perTurn.filter((turn) => turn.promptTokens !== null);
  const sum = (key: 'promptTokens' | 'cachedTokens'): number =>
    counted.reduce((total, turn) => total + (turn[key] ?? 0), 0);
  const [promptTokens, cachedTokens] = [sum('promptTokens'), sum('cachedTokens')];
  return {
    name: config.name,
    model: config.model_params.name,
    endpoint: config.endpoint_config.endpoints[0] ?? '',
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
        : { issued: performance.scores.turns.issued, missing: performance.scores.turns.missing },
    cache: counted.length === 0 ? null : { promptTokens, cachedTokens, share: cachedTokens / promptTokens },
    entries,
    notRun,
    perTurn,
  };
}

const ms = (ns: number | null): number | null => (ns === null ? null : ns / 1e6);

function turnReports({ figures, scores }: PerformanceResult): TurnReport[] {
  const scoreOf = new Map(
    scores.per_turn.map((turn) => [`${turn.conversation_id} ${turn.repeat} ${turn.turn}`, turn.score]),
  );
  return figures.map(({ sample, tokens, latencyNs, ttftNs, tpotNs }) => {
    const { turn, answer, error, logicalId, pass } = sample;
    const usage = answer?.usage ?? null;
    return {
      conversation: logicalId,
      turn: turn.turn,
      inputTokens: tokens?.input ?? null,
      outputTokens: tokens?.output ?? null,
      ttftMs: ms(ttftNs),
      tpotMs: ms(tpotNs),
      latencyMs: latencyNs / 1e6,
      promptTokens: usage?.promptTokens ?? null,
      cachedTokens: usage?.cachedTokens ?? null,
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

function answerText({ answer }: PerformanceResult['figures'][number]['sample']): string {
  if (answer === null) return '';
  const calls = answer.calls;
  return [answer.reasoning.join(''), answer.content.join(''), calls === null ? '' : JSON.stringify(calls)]
    .filter((part) => part !== '')
    .join('\n');
}
