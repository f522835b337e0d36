/** Which charts a report shows, from its turns. */
import { type Chart, chartColors, type Point, percentileCurve } from './charts.ts';
import type { BenchReport, TurnReport } from './report.ts';

const { green, amber, blue } = chartColors;

const pointsOf = (
  turns: readonly TurnReport[],
  x: (turn: TurnReport) => number | null,
  y: (turn: TurnReport) => number | null,
): Point[] =>
  turns.flatMap((turn) => {
    const [a, b] = [x(turn), y(turn)];
    return a === null || b === null ? [] : [[a, b] as const];
  });

export function turnCharts({ perTurn, cache }: BenchReport): Chart[] {
  const order = new Map(perTurn.map((turn, i) => [turn, i + 1]));
  const index = (turn: TurnReport): number => order.get(turn) ?? 0;
  const answered = perTurn.filter(({ error, latencyMs }) => error === null && latencyMs !== null);
  const hasCounts = cache !== null && answered.some(({ promptTokens }) => promptTokens !== null);
  return [
    ttftChart(answered),
    ...(hasCounts ? [cacheChart(answered, index)] : []),
    latencyChart(answered, index),
    percentileChart(answered),
    ...draftCharts(answered, index),
    ...iouChart(perTurn),
  ];
}

function ttftChart(turns: readonly TurnReport[]): Chart {
  const context = (turn: TurnReport): number | null => turn.inputTokens ?? turn.promptTokens;
  return {
    type: 'plot',
    title: 'Time to first token against context length',
    note: 'Flat means that a long history costs nothing again.',
    x: 'prompt tokens',
    y: 'TTFT, ms',
    lines: [
      {
        name: 'TTFT',
        kind: 'scatter',
        color: green,
        points: pointsOf(turns, context, (turn) => turn.ttftMs),
      },
    ],
  };
}

function cacheChart(turns: readonly TurnReport[], index: (turn: TurnReport) => number): Chart {
  const computed = (turn: TurnReport): number | null =>
    turn.promptTokens === null ? null : turn.promptTokens - (turn.cachedTokens ?? 0);
  return {
    type: 'plot',
    title: 'Prompt tokens per turn',
    note: 'Found in the cache and computed, by the server’s own count; each rise is a conversation.',
    x: 'turn, in order of issue',
    y: 'tokens',
    lines: [
      {
        name: 'cached',
        kind: 'area',
        color: green,
        points: pointsOf(turns, index, (turn) => turn.cachedTokens),
      },
      { name: 'computed', kind: 'area', color: amber, points: pointsOf(turns, index, computed) },
    ],
  };
}

function latencyChart(turns: readonly TurnReport[], index: (turn: TurnReport) => number): Chart {
  return {
    type: 'plot',
    title: 'Latency per turn',
    note: 'From the request to the end of its answer.',
    x: 'turn, in order of issue',
    y: 'latency, ms',
    lines: [
      {
        name: 'latency',
        kind: 'scatter',
        color: amber,
        points: pointsOf(turns, index, (turn) => turn.latencyMs),
      },
    ],
  };
}

function percentileChart(turns: readonly TurnReport[]): Chart {
  return {
    type: 'plot',
    title: 'Latency and TTFT by percentile',
    note: 'The share of turns that took no longer; the scale is logarithmic.',
    x: 'percentile',
    y: 'ms',
    xRange: [0, 100],
    logY: true,
    lines: [
      {
        name: 'latency',
        kind: 'line',
        color: amber,
        points: percentileCurve(turns.map((turn) => turn.latencyMs)),
      },
      { name: 'TTFT', kind: 'line', color: green, points: percentileCurve(turns.map((turn) => turn.ttftMs)) },
    ],
  };
}

/** What drafts brought, where the server tells of steps and drafts. */
function draftCharts(turns: readonly TurnReport[], index: (turn: TurnReport) => number): Chart[] {
  const perStep = pointsOf(turns, index, (turn) =>
    ratio(turn.generatedTokens ?? turn.outputTokens ?? 0, turn.steps),
  );
  const accepted = pointsOf(turns, index, (turn) =>
    ratio(100 * (turn.acceptedTokens ?? 0), turn.draftedTokens),
  );
  const scatter = (title: string, note: string, y: string, points: Point[]): Chart[] =>
    points.length === 0
      ? []
      : [
          {
            type: 'plot',
            title,
            note,
            x: 'turn, in order of issue',
            y,
            lines: [{ name: y, kind: 'scatter', color: blue, points }],
          },
        ];
  return [
    ...scatter(
      'Output tokens per step',
      'More than one: drafted tokens were accepted.',
      'tokens per step',
      perStep,
    ),
    ...scatter(
      'Accepted drafts',
      'The share of drafted tokens that were right; the others cost time only.',
      'accepted, %',
      accepted,
    ),
  ];
}

/** null where there is nothing to divide by. */
const ratio = (part: number, whole: number | null): number | null =>
  whole === null || whole === 0 ? null : part / whole;

export interface ConversationFigures {
  readonly name: string;
  readonly turns: number;
  readonly iou: number | null;
  readonly latencyMs: number | null;
  readonly ttftMs: number | null;
  readonly cachedShare: number | null;
}

const meanOf = (values: readonly (number | null)[]): number | null => {
  const known = values.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((a, b) => a + b, 0) / known.length;
};

export function conversationsOf(perTurn: readonly TurnReport[]): ConversationFigures[] {
  const groups = new Map<string, TurnReport[]>();
  for (const turn of perTurn) groups.set(turn.conversation, [...(groups.get(turn.conversation) ?? []), turn]);
  return [...groups].map(([name, turns]) => {
    const counted = turns.filter(({ promptTokens }) => promptTokens !== null);
    const sum = (key: 'promptTokens' | 'cachedTokens'): number =>
      counted.reduce((total, turn) => total + (turn[key] ?? 0), 0);
    return {
      name,
      turns: turns.length,
      iou: meanOf(turns.map(({ iou }) => iou)),
      latencyMs: meanOf(turns.map(({ latencyMs }) => latencyMs)),
      ttftMs: meanOf(turns.map(({ ttftMs }) => ttftMs)),
      cachedShare: sum('promptTokens') === 0 ? null : sum('cachedTokens') / sum('promptTokens'),
    };
  });
}

function iouChart(perTurn: readonly TurnReport[]): Chart[] {
  const scored = conversationsOf(perTurn).filter(({ iou }) => iou !== null);
  if (scored.length === 0) return [];
  return [
    {
      type: 'bars',
      title: 'IoU per conversation',
      note: 'Programs that the model ran against those of the recording, 1 = the same ones.',
      unit: '',
      max: 1,
      series: [{ name: 'IoU', color: blue }],
      bars: scored.map(({ name, iou }) => ({ name, values: [iou] })),
    },
  ];
}
