/** `report.html`: one self-contained page for a person, drawn from `report.json`. */
import type { AccuracyEntry } from './accuracy.ts';
import { type Chart, drawChart, type Point } from './charts.ts';
import { duration, escapeHtml, number, page, percent, table } from './html.ts';
import type { BenchReport, TurnReport } from './report.ts';
import { hasFigures, type MaybeSeries } from './series.ts';

const green = '#3c8d63';
const blue = '#4a7fb5';
const amber = '#cf8f33';
const shownTurns = 5;

export function htmlReport(report: BenchReport): string {
  const { machine, summary } = report;
  const body = [
    `<h1>${escapeHtml(report.name)}</h1>`,
    `<p class="sub">${escapeHtml(report.model)} at ${escapeHtml(report.endpoint)} · ${escapeHtml(machine.cpu)}, ${machine.cores} cores, ${machine.memoryGiB} GiB · ${escapeHtml(report.createdAt)}</p>`,
    ...warnings(report),
    `<div class="tiles">${tiles(report)}</div>`,
    ...(report.perTurn.length === 0
      ? []
      : [`<h2>Charts</h2><div class="charts">${turnCharts(report).map(figure).join('')}</div>`]),
    ...(summary === null ? [] : ['<h2>Figures</h2>', figuresTable(report)]),
    ...report.entries.flatMap(accuracySection),
    ...turnSections(report.perTurn),
    '<footer>Measured by copse bench over HTTP with the rules of MLPerf Edge Agentic. Times are taken by the client; token counts use the tokenizer that was named; cached tokens are the server’s own count.</footer>',
  ];
  return page(`${report.name}: ${report.model}`, body.join('\n'));
}

function warnings({ interrupted, notRun, turns }: BenchReport): string[] {
  return [
    ...(interrupted ? ['The run was interrupted: figures cover what was answered.'] : []),
    ...(turns !== null && turns.missing > 0
      ? [`${turns.missing} turns have no answer: the run is not valid.`]
      : []),
    ...notRun.map((name) => `${name} was not run.`),
  ].map((text) => `<p class="warn">${escapeHtml(text)}</p>`);
}

function tiles({ summary, cache, iou, turns, entries }: BenchReport): string {
  const tile = (value: string, label: string): string =>
    `<div class="tile"><b>${value}</b><span>${label}</span></div>`;
  const median = (series: MaybeSeries | undefined): number | null =>
    series !== undefined && hasFigures(series) ? series.median / 1e6 : null;
  const bfcl = entries.find(({ breakdown }) => breakdown !== undefined)?.breakdown;
  return [
    ...(summary === null
      ? []
      : [
          tile(number(turns?.issued ?? summary.n_samples_issued, 0), 'turns'),
          tile(duration((summary.duration_ns ?? 0) / 1e9), 'in all'),
          tile(`${number(median(summary.ttft))} ms`, 'TTFT, median'),
          tile(`${number(median(summary.tpot), 2)} ms`, 'TPOT, median'),
          tile(number(summary.tps), 'output tokens per second'),
          tile(
            cache === null ? '–' : percent(cache.share),
            cache === null ? 'cached share: not reported by the server' : 'of prompt tokens cached',
          ),
          tile(number(iou, 4), 'IoU of executables'),
        ]),
    ...(bfcl === undefined ? [] : [tile(`${number(bfcl.overall_accuracy, 2)} %`, 'BFCL overall')]),
  ].join('');
}

function figure(chart: Chart): string {
  return `<figure><figcaption>${escapeHtml(chart.title)}</figcaption>${drawChart(chart)}</figure>`;
}

const pointsOf = (
  turns: readonly TurnReport[],
  x: (turn: TurnReport) => number | null,
  y: (turn: TurnReport) => number | null,
): Point[] =>
  turns.flatMap((turn) => {
    const [a, b] = [x(turn), y(turn)];
    return a === null || b === null ? [] : [[a, b] as const];
  });

function turnCharts({ perTurn, cache }: BenchReport): Chart[] {
  const context = (turn: TurnReport): number | null => turn.promptTokens ?? turn.inputTokens;
  const order = new Map(perTurn.map((turn, i) => [turn, i + 1]));
  const index = (turn: TurnReport): number => order.get(turn) ?? 0;
  const charts: Chart[] = [
    {
      title: 'Time to first token against context length',
      x: 'prompt tokens',
      y: 'TTFT, ms',
      lines: [
        {
          name: 'TTFT',
          kind: 'scatter',
          color: green,
          points: pointsOf(perTurn, context, (turn) => turn.ttftMs),
        },
      ],
    },
    {
      title: 'Latency per turn',
      x: 'turn, in order of issue',
      y: 'latency, ms',
      lines: [
        {
          name: 'latency',
          kind: 'scatter',
          color: amber,
          points: pointsOf(perTurn, index, (turn) => turn.latencyMs),
        },
      ],
    },
    percentileChart(perTurn),
    iouChart(perTurn),
  ];
  if (cache !== null) charts.splice(1, 0, cacheChart(perTurn, index));
  const steps = pointsOf(perTurn, index, (turn) =>
    turn.steps ? (turn.outputTokens ?? 0) / turn.steps : null,
  );
  if (steps.length > 0)
    charts.push({
      title: 'Output tokens per step',
      x: 'turn, in order of issue',
      y: 'tokens per step',
      lines: [{ name: 'tokens per step', kind: 'scatter', color: blue, points: steps }],
    });
  return charts;
}

function cacheChart(perTurn: readonly TurnReport[], index: (turn: TurnReport) => number): Chart {
  const computed = (turn: TurnReport): number | null =>
    turn.promptTokens === null ? null : turn.promptTokens - (turn.cachedTokens ?? 0);
  return {
    title: 'Prompt tokens per turn: cached and computed',
    x: 'turn, in order of issue',
    y: 'tokens',
    lines: [
      {
        name: 'cached',
        kind: 'line',
        color: green,
        stack: 'prompt',
        points: pointsOf(perTurn, index, (turn) => turn.cachedTokens),
      },
      {
        name: 'computed',
        kind: 'line',
        color: amber,
        stack: 'prompt',
        points: pointsOf(perTurn, index, computed),
      },
    ],
  };
}

function percentileChart(perTurn: readonly TurnReport[]): Chart {
  const curve = (values: (number | null)[]): Point[] => {
    const sorted = values.filter((value): value is number => value !== null).sort((a, b) => a - b);
    return sorted.map((value, i) => [(100 * (i + 1)) / sorted.length, value] as const);
  };
  return {
    title: 'Distribution of latency and TTFT',
    x: 'percentile',
    y: 'ms',
    lines: [
      { name: 'latency', kind: 'line', color: amber, points: curve(perTurn.map((turn) => turn.latencyMs)) },
      { name: 'TTFT', kind: 'line', color: green, points: curve(perTurn.map((turn) => turn.ttftMs)) },
    ],
  };
}

function iouChart(perTurn: readonly TurnReport[]): Chart {
  const names = [...new Set(perTurn.map(({ conversation }) => conversation))];
  const means = names.map((name) => {
    const scores = perTurn
      .filter((turn) => turn.conversation === name && turn.iou !== null)
      .map((turn) => turn.iou ?? 0);
    return scores.length === 0 ? 0 : scores.reduce((a, b) => a + b, 0) / scores.length;
  });
  return {
    title: 'IoU per conversation',
    x: 'conversation',
    y: 'mean IoU',
    labels: names,
    lines: [{ name: 'IoU', kind: 'bar', color: blue, points: means.map((value, i) => [i, value] as const) }],
  };
}

function figuresTable({ summary }: BenchReport): string {
  if (summary === null) return '';
  const row = (name: string, series: MaybeSeries, unit: number, digits: number): string[] => {
    if (!hasFigures(series)) return [name, ...new Array<string>(8).fill('–')];
    const values = [
      series.min,
      series.median,
      series.avg,
      series.percentiles['90.0'],
      series.percentiles['99.0'],
      series.max,
      series.std_dev,
    ];
    return [
      name,
      ...values.map((value) => number((value ?? 0) / unit, digits)),
      number(series.total / unit, 0),
    ];
  };
  const rows = [
    row('TTFT, ms', summary.ttft, 1e6, 1),
    row('TPOT, ms', summary.tpot, 1e6, 2),
    row('Latency, ms', summary.latency, 1e6, 1),
    row('Input, tokens', summary.input_sequence_lengths, 1, 0),
    row('Output, tokens', summary.output_sequence_lengths, 1, 0),
  ];
  const reasons = Object.entries(summary.finish_reason_counts).filter(([, count]) => count > 0);
  const counts = [
    [
      'Issued, completed, failed',
      `${summary.n_samples_issued}, ${summary.n_samples_completed}, ${summary.n_samples_failed}`,
    ],
    ['Queries per second', number(summary.qps, 3)],
    ['Output tokens per second', number(summary.tps, 2)],
    ...reasons.map(([reason, count]) => [`Finished by ${reason}`, number(count, 0)]),
  ];
  return `${table(['', 'min', 'median', 'mean', 'p90', 'p99', 'max', 'std dev', 'total'], rows)}<br>${table(['', ''], counts)}`;
}

function accuracySection({ dataset_name, breakdown, response_counts }: AccuracyEntry): string[] {
  if (breakdown === undefined) return [];
  const subsets = Object.entries(breakdown.subset_scores);
  const chart: Chart = {
    title: 'Accuracy per subset',
    x: 'subset',
    y: '%',
    labels: subsets.map(([name]) => name),
    lines: [
      {
        name: 'accuracy',
        kind: 'bar',
        color: green,
        points: subsets.map(([, value], i) => [i, value] as const),
      },
    ],
  };
  const rows = [
    ['Overall', `${number(breakdown.overall_accuracy, 2)} %`],
    ['Normalised single turn', `${number(breakdown.normalized_single_turn_score, 2)} %`],
    ...Object.entries(breakdown.category_scores).map(([name, value]) => [
      escapeHtml(name),
      `${number(value, 2)} %`,
    ]),
    [
      'Answered, empty, missing',
      `${response_counts?.scored ?? 0}, ${response_counts?.empty ?? 0}, ${response_counts?.missing ?? 0}`,
    ],
  ];
  return [
    `<h2>${escapeHtml(dataset_name)}</h2>`,
    table(['', ''], rows),
    `<br><div class="charts">${figure(chart)}</div>`,
  ];
}

function turnSections(perTurn: readonly TurnReport[]): string[] {
  if (perTurn.length === 0) return [];
  const slowest = [...perTurn].sort((a, b) => (b.latencyMs ?? 0) - (a.latencyMs ?? 0)).slice(0, shownTurns);
  const worst = perTurn
    .filter((turn) => turn.iou !== null)
    .sort((a, b) => (a.iou ?? 0) - (b.iou ?? 0))
    .slice(0, shownTurns);
  return [
    '<h2>Slowest turns</h2>',
    ...slowest.map(foldedTurn),
    '<h2>Worst turns by IoU</h2>',
    ...worst.map(foldedTurn),
  ];
}

function foldedTurn(turn: TurnReport): string {
  const head = `${escapeHtml(turn.conversation)}, turn ${turn.turn}: ${number(turn.latencyMs)} ms, TTFT ${number(turn.ttftMs)} ms, IoU ${number(turn.iou, 2)}${turn.error === null ? '' : `, ${escapeHtml(turn.error)}`}`;
  return `<details><summary>${head}</summary><p>Recorded</p><pre>${escapeHtml(turn.expected)}</pre><p>Answered</p><pre>${escapeHtml(turn.answer)}</pre></details>`;
}
