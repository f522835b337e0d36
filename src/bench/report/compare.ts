/** Report folders side by side: figures and their ratios, accuracy by subset, and which samples and turns changed. */

import { UserError } from '../../util/index.ts';
import { type Chart, chartColors, figure, percentileCurve } from './charts.ts';
import { escapeHtml, number, page, readable, section, table } from './html.ts';
import {
  at,
  gatedEntry,
  type Json,
  list,
  numeric,
  openReportFolder,
  type ReportFolder,
} from './report-folder.ts';

const shownChanges = 40;
const colors = Object.values(chartColors);

/** A page that compares two or more folders; ratios are to the first. */
export function compareReports(dirs: readonly string[]): string {
  if (dirs.length < 2)
    throw new UserError('bad_option', `${dirs.length} report folders, at least 2 are compared`, {
      param: 'dirs',
    });
  const folders = withNames(dirs.map(openReportFolder));
  const names = folders.map(({ name }) => name);
  const body = [
    `<header><span class="mark">copse bench · comparison</span><h1>${names.map(escapeHtml).join(' · ')}</h1><ul class="meta">${folders.map(({ path }) => `<li>${escapeHtml(path)}</li>`).join('')}</ul></header>`,
    ...problems(folders),
    section('Figures', figuresTable(folders)),
    ...chartsSection(folders),
    ...subsetSection(folders),
    ...changedSamples(folders),
    ...changedTurns(folders),
    '<footer><p>Ratios are to the first folder. A change of a sample or turn is one of its score, whatever its text.</p></footer>',
  ];
  return page(names.join(' and '), body.join('\n'));
}

/** Folders of the same name are told apart by their place in the list. */
function withNames(folders: readonly ReportFolder[]): ReportFolder[] {
  return folders.map((folder, i) => {
    const isUnique = folders.filter(({ name }) => name === folder.name).length === 1;
    return isUnique ? folder : { ...folder, name: `${folder.name} (${i + 1})` };
  });
}

function problems(folders: readonly ReportFolder[]): string[] {
  return folders.flatMap(({ name, summary, scores, accuracy }) =>
    [summary, scores, accuracy].flatMap(({ problem }) =>
      problem === null ? [] : [`<p class="warn">${escapeHtml(`${name}: ${problem}`)}</p>`],
    ),
  );
}

interface Figure {
  readonly name: string;
  readonly digits: number;
  readonly read: (folder: ReportFolder) => number | null;
}

const series = (name: string, key: string, statistic: readonly string[], unit: number): Figure => ({
  name,
  digits: 2,
  read: ({ summary }) => {
    const value = numeric(at(summary.value, key, ...statistic));
    return value === null ? null : value / unit;
  },
});

const figures: readonly Figure[] = [
  series('Latency, mean ms', 'latency', ['avg'], 1e6),
  series('Latency, p99 ms', 'latency', ['percentiles', '99.0'], 1e6),
  series('TTFT, median ms', 'ttft', ['median'], 1e6),
  series('TTFT, p99 ms', 'ttft', ['percentiles', '99.0'], 1e6),
  series('TPOT, median ms', 'tpot', ['median'], 1e6),
  series('Output tokens per turn', 'output_sequence_lengths', ['avg'], 1),
  { name: 'Output tokens per second', digits: 2, read: ({ summary }) => numeric(at(summary.value, 'tps')) },
  { name: 'Queries per second', digits: 3, read: ({ summary }) => numeric(at(summary.value, 'qps')) },
  { name: 'Turns issued', digits: 0, read: ({ summary }) => numeric(at(summary.value, 'n_samples_issued')) },
  { name: 'Turns failed', digits: 0, read: ({ summary }) => numeric(at(summary.value, 'n_samples_failed')) },
  { name: 'Cached share', digits: 4, read: ({ report }) => numeric(at(report.value, 'cache', 'share')) },
  { name: 'IoU', digits: 4, read: ({ scores }) => numeric(at(scores.value, 'score')) },
  {
    name: 'BFCL overall, %',
    digits: 2,
    read: (folder) => numeric(at(gatedEntry(folder), 'breakdown', 'overall_accuracy')),
  },
  {
    name: 'BFCL normalised, %',
    digits: 2,
    read: (folder) => numeric(at(gatedEntry(folder), 'breakdown', 'normalized_single_turn_score')),
  },
];

function figuresTable(folders: readonly ReportFolder[]): string {
  const head = ['', ...folders.flatMap(({ name }, i) => (i === 0 ? [name] : [name, 'ratio']))];
  const rows = figures.map(({ name, digits, read }) => {
    const values = folders.map(read);
    const [first = null] = values;
    const cells = values.flatMap((value, i) => {
      const shown = value !== null && Math.abs(value) < 0.1 ? readable(value) : number(value, digits);
      if (i === 0) return [shown];
      const ratio = value === null || first === null || first === 0 ? null : value / first;
      return [shown, ratio === null ? '–' : `<span class="dim">${readable(ratio)}×</span>`];
    });
    return [escapeHtml(name), ...cells];
  });
  return table(head, rows);
}

interface PlotSource {
  readonly title: string;
  readonly note: string;
  readonly y: string;
  readonly value: string;
}

const curves: readonly PlotSource[] = [
  { title: 'TTFT by percentile', note: 'The share of turns that took no longer.', y: 'ms', value: 'ttftMs' },
  {
    title: 'Latency by percentile',
    note: 'The share of turns that took no longer.',
    y: 'ms',
    value: 'latencyMs',
  },
];

function chartsSection(folders: readonly ReportFolder[]): string[] {
  const plots = curves.flatMap(({ title, note, y, value }): Chart[] => {
    const lines = folders.flatMap((folder, i) => {
      const points = percentileCurve(turnValues(folder, value));
      const color = colors[i % colors.length] as string;
      return points.length === 0 ? [] : [{ name: folder.name, kind: 'line' as const, color, points }];
    });
    return lines.length === 0
      ? []
      : [{ type: 'plot', title, note, x: 'percentile', y, xRange: [0, 100], logY: true, lines }];
  });
  const bars = subsetChart(folders);
  const all = bars === null ? plots : [...plots, bars];
  return all.length === 0 ? [] : [section('Charts', `<div class="charts">${all.map(figure).join('')}</div>`)];
}

function turnValues({ report }: ReportFolder, key: string): (number | null)[] {
  return list(at(report.value, 'perTurn'))
    .filter((turn) => at(turn, 'error') === null)
    .map((turn) => numeric(at(turn, key)));
}

function subsetsOf(folders: readonly ReportFolder[]): { names: string[]; scores: (number | null)[][] } {
  const maps = folders.map((folder) => at(gatedEntry(folder), 'breakdown', 'subset_scores'));
  const names = [...new Set(maps.flatMap((map) => (map ? Object.keys(map) : [])))].sort();
  return { names, scores: names.map((name) => maps.map((map) => numeric(at(map, name)))) };
}

function subsetChart(folders: readonly ReportFolder[]): Chart | null {
  const { names, scores } = subsetsOf(folders);
  if (names.length === 0) return null;
  return {
    type: 'bars',
    title: 'Accuracy per subset',
    note: 'Percent of samples that pass.',
    unit: ' %',
    max: 100,
    series: folders.map(({ name }, i) => ({ name, color: colors[i % colors.length] as string })),
    bars: names.map((name, i) => ({ name, values: scores[i] ?? [] })),
  };
}

function subsetSection(folders: readonly ReportFolder[]): string[] {
  const { names, scores } = subsetsOf(folders);
  if (names.length === 0) return [];
  const head = ['', ...folders.flatMap(({ name }, i) => (i === 0 ? [name] : [name, 'difference']))];
  const rows = names.map((name, row) => {
    const [first = null, ...others] = scores[row] ?? [];
    const cells = others.flatMap((value) => [number(value, 2), signed(value, first, 2)]);
    return [escapeHtml(name), number(first, 2), ...cells];
  });
  return [section('Accuracy per subset', table(head, rows))];
}

function signed(value: number | null, first: number | null, digits: number): string {
  if (value === null || first === null) return '–';
  const difference = value - first;
  const kind = difference > 0 ? 'good' : difference < 0 ? 'bad' : 'dim';
  return `<span class="${kind}">${difference > 0 ? '+' : ''}${number(difference, digits)}</span>`;
}

/** Score by sample, of each folder that has verdicts. */
function verdictsOf({ verdicts }: ReportFolder): Map<string, Json> {
  const all = list(verdicts.value ?? []).flatMap((dataset) => list(at(dataset, 'verdicts')));
  return new Map(all.map((verdict) => [String(at(verdict, 'id')), verdict]));
}

function changedSamples(folders: readonly ReportFolder[]): string[] {
  const maps = folders.map(verdictsOf);
  const ids = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  const passed = (map: Map<string, Json>, id: string): string => {
    const value = at(map.get(id), 'passed');
    return value === undefined ? '–' : value === true ? 'pass' : 'fail';
  };
  const changed = ids.filter((id) => new Set(maps.map((map) => passed(map, id))).size > 1);
  if (ids.length === 0) return [];
  const blocks = changed.slice(0, shownChanges).map((id) => {
    const results = maps.map(
      (map, i) => `<span>${escapeHtml(folders[i]?.name ?? '')}: ${passed(map, id)}</span>`,
    );
    const texts = maps.map(
      (map, i) =>
        `<div><h4>${escapeHtml(folders[i]?.name ?? '')}</h4><pre>${escapeHtml(String(at(map.get(id), 'answer') ?? '(nothing)'))}</pre></div>`,
    );
    return `<details><summary><b>${escapeHtml(id)}</b>${results.join('')}</summary><div class="pair">${texts.join('')}</div></details>`;
  });
  return [
    section(`Samples that changed: ${changed.length} of ${ids.length}`, shownOf(blocks, changed.length)),
  ];
}

function changedTurns(folders: readonly ReportFolder[]): string[] {
  const keyOf = (turn: Json): string =>
    [at(turn, 'conversation_id'), at(turn, 'repeat'), at(turn, 'turn')].map(String).join(' ');
  const maps = folders.map(
    ({ scores }) => new Map(list(at(scores.value, 'per_turn')).map((turn) => [keyOf(turn), turn])),
  );
  const keys = [...new Set(maps.flatMap((map) => [...map.keys()]))];
  if (keys.length === 0) return [];
  const scoreOf = (map: Map<string, Json>, key: string): number | null => numeric(at(map.get(key), 'score'));
  const spread = (key: string): number => {
    const values = maps.map((map) => scoreOf(map, key) ?? -1);
    return Math.max(...values) - Math.min(...values);
  };
  const changed = keys.filter((key) => spread(key) > 0).sort((a, b) => spread(b) - spread(a));
  const rows = changed.slice(0, shownChanges).map((key) => [
    escapeHtml(key.replace(/ 1 (\d+)$/, ', turn $1')),
    ...maps.map((map) => {
      const actions = list(at(map.get(key), 'model_actions'))
        .map(String)
        .join(' ');
      return `${number(scoreOf(map, key), 2)} <span class="dim">${escapeHtml(actions)}</span>`;
    }),
  ]);
  const head = ['', ...folders.map(({ name }) => name)];
  const body = changed.length === 0 ? '<p>None.</p>' : shownOf([table(head, rows)], changed.length);
  return [section(`Turns whose IoU changed: ${changed.length} of ${keys.length}`, body)];
}

function shownOf(blocks: readonly string[], count: number): string {
  const rest =
    count > shownChanges ? `<p class="dim">The first ${shownChanges} of ${count} are shown.</p>` : '';
  return count === 0 ? '<p>None.</p>' : `${blocks.join('')}${rest}`;
}
