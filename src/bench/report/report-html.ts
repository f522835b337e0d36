/** `report.html`: one self-contained page for a person, drawn from `report.json`. All text that a model or a server wrote is escaped. */
import type { AccuracyEntry } from '../score/accuracy.ts';
import { hasFigures, type MaybeSeries } from '../score/series.ts';
import type { ResultSummary } from '../score/summary.ts';
import { chartColors, figure } from './charts.ts';
import {
  duration,
  escapeHtml,
  number,
  page,
  percent,
  readable,
  section,
  type Tile,
  table,
  tiles,
} from './html.ts';
import type { BenchReport, TurnReport } from './report.ts';
import { conversationsOf, turnCharts } from './turn-charts.ts';

const shownTurns = 6;

export function htmlReport(report: BenchReport): string {
  const { summary, perTurn } = report;
  const body = [
    header(report),
    ...verdicts(report),
    tiles(headline(report)),
    ...(perTurn.length === 0
      ? []
      : [section('Turn by turn', `<div class="charts">${turnCharts(report).map(figure).join('')}</div>`)]),
    ...(summary === null ? [] : [section('Official figures', officialFigures(summary))]),
    ...report.entries.flatMap(accuracySection),
    ...checksSection(report),
    ...(perTurn.length === 0 ? [] : [section('Conversations', conversationTable(perTurn))]),
    ...turnSections(perTurn),
    ...costSection(report),
    footer(report),
  ];
  return page(`${report.name}: ${report.model}`, body.join('\n'));
}

function header(report: BenchReport): string {
  const { name, model, endpoint, machine, createdAt, concurrency, turns, summary } = report;
  const when = new Date(createdAt);
  const facts = [
    model,
    endpoint,
    ...(turns === null
      ? []
      : [`${number(turns.issued, 0)} turns in ${duration((summary?.duration_ns ?? 0) / 1e9)}`]),
    `${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB`,
    concurrency === 1 ? 'one conversation at a time' : `${concurrency} conversations at once`,
    Number.isNaN(when.getTime()) ? createdAt : `${createdAt.slice(0, 16).replace('T', ' ')} UTC`,
  ];
  return `<header><span class="mark">copse bench · MLPerf Edge Agentic</span><h1>${escapeHtml(name)}</h1><ul class="meta">${facts.map((fact) => `<li>${escapeHtml(fact)}</li>`).join('')}</ul></header>`;
}

function verdicts({ interrupted, notRun, turns }: BenchReport): string[] {
  const bad = [
    ...(interrupted ? ['The run was interrupted: figures cover what was answered until then.'] : []),
    ...(turns !== null && turns.missing > 0
      ? [`${turns.missing} of ${turns.issued} turns have no answer, so the run is not valid.`]
      : []),
    ...notRun.map((name) => `${name} was not run.`),
  ];
  return bad.map((text) => `<p class="warn">${escapeHtml(text)}</p>`);
}

const medianMs = (series: MaybeSeries): number | null => (hasFigures(series) ? series.median / 1e6 : null);

function headline({ summary, cache, iou, entries }: BenchReport): Tile[] {
  const bfcl = entries.find(({ breakdown }) => breakdown !== undefined)?.breakdown;
  return [
    ...(summary === null ? [] : speedTiles(summary)),
    ...(summary === null ? [] : [cacheTile(cache)]),
    ...(iou === null ? [] : [{ value: number(iou, 4), label: 'IoU of programs', note: '1 = as recorded' }]),
    ...(bfcl === undefined
      ? []
      : [
          {
            value: number(bfcl.overall_accuracy, 2),
            unit: '%',
            label: 'BFCL overall',
            note: `${number(bfcl.normalized_single_turn_score, 2)} % normalised`,
          },
        ]),
  ];
}

function speedTiles({ ttft, tpot, latency, tps }: ResultSummary): Tile[] {
  const at = (series: MaybeSeries, p: string): string =>
    hasFigures(series) ? `p99 ${readable((series.percentiles[p] ?? 0) / 1e6)} ms` : 'no values';
  return [
    { value: readable(tps), unit: 'tok/s', label: 'Output', note: 'over the whole phase' },
    {
      value: readable(medianMs(ttft)),
      unit: 'ms',
      label: 'Time to first token',
      note: `median, ${at(ttft, '99.0')}`,
    },
    {
      value: readable(medianMs(tpot)),
      unit: 'ms',
      label: 'Time per token',
      note: `median, ${at(tpot, '99.0')}`,
    },
    {
      value: readable(hasFigures(latency) ? latency.avg / 1e6 : null),
      unit: 'ms',
      label: 'Latency of a turn',
      note: `mean: the SingleStream result`,
    },
  ];
}

function cacheTile(cache: BenchReport['cache']): Tile {
  if (cache === null) return { value: '–', label: 'Cached share', note: 'not reported by the server' };
  const count = cache.promptTokens;
  const note = `of ${count < 1e6 ? number(count, 0) : `${readable(count / 1e6)} M`} prompt tokens`;
  return { value: number(100 * cache.share, 2), unit: '%', label: 'From the cache', note };
}

function officialFigures(summary: ResultSummary): string {
  const row = (name: string, series: MaybeSeries, unit: number, digits: number): string[] => {
    if (!hasFigures(series)) return [name, ...new Array<string>(9).fill('–')];
    const at = (p: string): number => (series.percentiles[p] ?? 0) / unit;
    const estimate = series.early_stopping_percentiles?.['90.0'];
    const values = [
      series.min / unit,
      series.median / unit,
      series.avg / unit,
      at('90.0'),
      at('99.0'),
      series.max / unit,
    ];
    return [
      name,
      ...values.map((value) => number(value, digits)),
      number(series.std_dev / unit, digits),
      estimate === undefined || estimate === null ? '–' : number(estimate / unit, digits),
      number(series.total / unit, 0),
    ];
  };
  const rows = [
    row('TTFT, ms', summary.ttft, 1e6, 2),
    row('TPOT, ms', summary.tpot, 1e6, 3),
    row('Latency, ms', summary.latency, 1e6, 2),
    row('Input, tokens', summary.input_sequence_lengths, 1, 0),
    row('Output, tokens', summary.output_sequence_lengths, 1, 0),
  ];
  const head = ['', 'min', 'median', 'mean', 'p90', 'p99', 'max', 'std dev', 'p90 estimate', 'total'];
  const reasons = Object.entries(summary.finish_reason_counts).filter(([, count]) => count > 0);
  const counts = [
    { value: number(summary.n_samples_issued, 0), label: 'Samples issued' },
    { value: number(summary.n_samples_completed, 0), label: 'Samples completed' },
    { value: number(summary.n_samples_failed, 0), label: 'Samples failed' },
    { value: readable(summary.qps), label: 'Queries per second' },
    ...reasons.map(([reason, count]) => ({ value: number(count, 0), label: `Finished by ${reason}` })),
  ];
  return `${table(head, rows)}${tiles(counts)}`;
}

function accuracySection({ dataset_name, breakdown, response_counts }: AccuracyEntry): string[] {
  if (breakdown === undefined) return [];
  const subsets = Object.entries(breakdown.subset_scores);
  const share = (value: number): string => `${number(value, 2)} %`;
  const rows = [
    ['Overall', share(breakdown.overall_accuracy)],
    ['Normalised single turn', share(breakdown.normalized_single_turn_score)],
    ...Object.entries(breakdown.category_scores).map(([name, value]) => [escapeHtml(name), share(value)]),
    ['Answered', number(response_counts?.scored, 0)],
    ['Empty', number(response_counts?.empty, 0)],
    ['Missing', number(response_counts?.missing, 0)],
  ];
  const chart = figure({
    type: 'bars',
    title: 'Accuracy per subset',
    note: 'Percent of samples that pass.',
    unit: ' %',
    max: 100,
    series: [{ name: 'accuracy', color: chartColors.green }],
    bars: subsets.map(([name, value]) => ({ name, values: [value] })),
  });
  return [section(dataset_name, `<div class="charts"><div>${table([], rows)}</div>${chart}</div>`)];
}

function checksSection({ checks }: BenchReport): string[] {
  if (checks.length === 0) return [];
  const rows = checks.map(({ name, passed, detail }) => [
    escapeHtml(name),
    passed ? '<span class="good">passes</span>' : '<span class="bad">fails</span>',
    `<span class="dim wrap">${escapeHtml(detail)}</span>`,
  ]);
  return [section('Compliance', table([], rows, [1, 2]))];
}

function conversationTable(perTurn: readonly TurnReport[]): string {
  const rows = conversationsOf(perTurn).map(({ name, turns, iou, latencyMs, ttftMs, cachedShare }) => [
    escapeHtml(name),
    number(turns, 0),
    readable(ttftMs),
    readable(latencyMs),
    percent(cachedShare),
    number(iou, 3),
  ]);
  return table(['', 'turns', 'TTFT, mean ms', 'latency, mean ms', 'cached', 'IoU'], rows);
}

function turnSections(perTurn: readonly TurnReport[]): string[] {
  if (perTurn.length === 0) return [];
  const answered = perTurn.filter(({ latencyMs, error }) => latencyMs !== null && error === null);
  const slowest = [...answered].sort((a, b) => (b.latencyMs ?? 0) - (a.latencyMs ?? 0));
  const worst = answered.filter(({ iou }) => iou !== null).sort((a, b) => (a.iou ?? 0) - (b.iou ?? 0));
  const failed = perTurn.filter(({ error }) => error !== null);
  const fold = (turns: readonly TurnReport[]): string => turns.slice(0, shownTurns).map(foldedTurn).join('');
  return [
    ...(failed.length === 0 ? [] : [section(`Failed turns (${failed.length})`, fold(failed))]),
    ...(slowest.length === 0 ? [] : [section('Slowest turns', fold(slowest))]),
    ...(worst.length === 0 ? [] : [section('Turns least like the recording', fold(worst))]),
  ];
}

function foldedTurn(turn: TurnReport): string {
  const facts = [
    `${readable(turn.latencyMs)} ms`,
    `TTFT ${readable(turn.ttftMs)} ms`,
    `IoU ${number(turn.iou, 2)}`,
    `${number(turn.inputTokens ?? turn.promptTokens, 0)} tokens in`,
    `${number(turn.outputTokens, 0)} out`,
  ];
  const answer = turn.error === null ? commandsOf(turn.answer) : turn.error;
  const block = (title: string, text: string): string =>
    `<div><h4>${title}</h4><pre>${escapeHtml(text === '' ? '(nothing)' : text)}</pre></div>`;
  return `<details><summary><b>${escapeHtml(turn.conversation)}, turn ${turn.turn}</b>${facts.map((fact) => `<span>${escapeHtml(fact)}</span>`).join('')}</summary><div class="pair">${block('Recorded', commandsOf(turn.expected))}${block(turn.error === null ? 'Answered' : 'Failed', answer)}</div></details>`;
}

/** Text with its tool calls as one reads them: the command of a shell call, name and arguments of another. */
function commandsOf(text: string): string {
  const start = text.startsWith('[{') ? 0 : text.indexOf('\n[{') + 1;
  if (!text.startsWith('[{', start)) return text;
  try {
    const calls = JSON.parse(text.slice(start)) as { function?: { name?: string; arguments?: unknown } }[];
    return [...(start === 0 ? [] : [text.slice(0, start - 1)]), ...calls.map(callText)].join('\n\n');
  } catch {
    return text;
  }
}

function callText({ function: fn }: { function?: { name?: string; arguments?: unknown } }): string {
  const raw = typeof fn?.arguments === 'string' ? fn.arguments : JSON.stringify(fn?.arguments ?? null);
  try {
    const { command } = JSON.parse(raw) as { command?: unknown };
    if (fn?.name === 'bash' && typeof command === 'string') return `$ ${command}`;
  } catch {
    // Not JSON: shown as it is.
  }
  return `${fn?.name ?? '(no name)'}(${raw})`;
}

function costSection({ cost }: BenchReport): string[] {
  if (cost.length === 0) return [];
  const rows = cost.map(({ name, value, unit, basis }) => [
    escapeHtml(name),
    `${readable(value)} ${escapeHtml(unit)}`,
    `<span class="dim wrap">${escapeHtml(basis)}</span>`,
  ]);
  return [section('Energy and cost', table(['', '', 'assumes'], rows, [2]))];
}

function footer({ cache }: BenchReport): string {
  const reading =
    cache !== null && cache.readingMs > 0
      ? ` Reading the server’s metrics page between turns took ${number(cache.readingMs / 1000, 2)} s of the duration and is in no turn’s latency.`
      : '';
  return `<footer><p>Times are taken by the client, from the request to the first piece of an answer (TTFT) and to its end (latency). Lengths are counted with the tokenizer that the run names. Cached tokens are the server’s own count.${reading} IoU compares the programs that the model’s commands run with those of the recording, as multisets. The p90 estimate holds with 99 % confidence.</p></footer>`;
}
