/**
 * Charts of the report, drawn by ECharts on this side: the page holds finished SVG and needs no script. Each is drawn twice, for
 * wide and for narrow screens, since a scaled-down drawing cannot be read. Text and axes take the page's colour, so that dark
 * mode and print work.
 */
import { createHash } from 'node:crypto';
import * as echarts from 'echarts';
import { escapeHtml } from './html.ts';

export type Point = readonly [x: number, y: number];

/** The share of the values, in percent, that are no larger; what is unknown or not positive is left out. */
export function percentileCurve(values: readonly (number | null)[]): Point[] {
  const sorted = values.filter((value): value is number => value !== null && value > 0).sort((a, b) => a - b);
  return sorted.map((value, i) => [(100 * (i + 1)) / sorted.length, value] as const);
}

export const chartColors = { green: '#35966a', amber: '#d4892b', blue: '#4f83c2', rose: '#c2566b' } as const;

export interface Line {
  readonly name: string;
  readonly points: readonly Point[];
  readonly kind: 'scatter' | 'line' | 'area';
  readonly color: string;
}

/** Numbers against numbers. Areas are stacked on each other. */
export interface PlotChart {
  readonly type: 'plot';
  readonly title: string;
  /** What to see in it, a sentence. */
  readonly note: string;
  readonly x: string;
  readonly y: string;
  readonly xRange?: readonly [number, number];
  readonly logY?: boolean;
  readonly lines: readonly Line[];
}

/** One bar a row, longest names readable. */
export interface BarChart {
  readonly type: 'bars';
  readonly title: string;
  readonly note: string;
  readonly unit: string;
  readonly max: number;
  readonly bars: readonly {
    readonly name: string;
    readonly values: readonly (number | null)[];
  }[];
  readonly series: readonly { readonly name: string; readonly color: string }[];
}

export type Chart = PlotChart | BarChart;

/** Stands for the page's text colour while ECharts draws: it must be a real colour there. */
const ink = '#123456';

interface Size {
  readonly width: number;
  readonly height: number;
}

export function figure(chart: Chart): string {
  const rows = chart.type === 'bars' ? chart.bars.length : 0;
  const height = (plot: number): number =>
    chart.type === 'plot' ? plot : 58 + rows * (10 + 13 * chart.series.length);
  const wide = drawChart(chart, { width: 620, height: height(310) });
  const narrow = drawChart(chart, { width: 320, height: height(270) });
  return `<figure><figcaption><b>${escapeHtml(chart.title)}</b><span>${escapeHtml(chart.note)}</span></figcaption><div class="wide">${wide}</div><div class="narrow">${narrow}</div></figure>`;
}

/** One chart as SVG text. */
export function drawChart(chart: Chart, { width, height }: Size): string {
  const instance = echarts.init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    const options = chart.type === 'plot' ? plotOptions(chart) : barOptions(chart, width);
    instance.setOption(options as Parameters<typeof instance.setOption>[0]);
    return withOwnIds(instance.renderToSVGString())
      .replaceAll(ink, 'currentColor')
      .replace(/<svg width="\d+" height="\d+"/, `<svg role="img" aria-label="${escapeHtml(chart.title)}"`);
  } finally {
    instance.dispose();
  }
}

/** ECharts numbers ids through the life of the process; here they follow from the drawing, so that equal data give an equal page. */
function withOwnIds(svg: string): string {
  const ids = new Map<string, number>();
  const numbered = svg.replace(/zr\d+-c(?:ls-)?\d+/g, (id) => {
    if (!ids.has(id)) ids.set(id, ids.size);
    return `chart-${ids.get(id)}`;
  });
  const name = createHash('sha256').update(numbered).digest('hex').slice(0, 8);
  return numbered.replaceAll('chart-', `c${name}-`);
}

const axis = (name: string) => ({
  name,
  nameLocation: 'middle',
  nameTextStyle: { color: ink, fontSize: 12, opacity: 0.7 },
  axisLabel: { color: ink, fontSize: 11, opacity: 0.75, hideOverlap: true, formatter: shortNumber },
  axisLine: { show: false },
  axisTick: { show: false },
  splitLine: { lineStyle: { color: ink, opacity: 0.12 } },
});

function shortNumber(value: number | string): string {
  if (typeof value === 'string') return value;
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
  return size >= 1e4 ? `${Number((value / 1e3).toPrecision(3))} k` : String(Number(value.toPrecision(3)));
}

const common = (names: readonly string[]) => ({
  animation: false,
  backgroundColor: 'transparent',
  textStyle: { fontFamily: 'inherit', color: ink },
  ...(names.length < 2
    ? {}
    : {
        legend: {
          top: 0,
          left: 0,
          icon: 'roundRect',
          itemWidth: 12,
          itemHeight: 12,
          textStyle: { color: ink, fontSize: 12 },
          data: names,
        },
      }),
});

function plotOptions({ x, y, xRange, logY, lines }: PlotChart) {
  const names = lines.map(({ name }) => name);
  const [min, max] = xRange ?? [0, 'dataMax'];
  return {
    ...common(names),
    grid: { left: 54, right: 14, top: names.length < 2 ? 14 : 34, bottom: 44 },
    xAxis: {
      ...axis(x),
      type: 'value',
      nameGap: 28,
      min,
      max,
      splitLine: { show: false },
      axisLabel: { ...axis(x).axisLabel, showMaxLabel: xRange !== undefined },
    },
    yAxis: { ...axis(y), type: logY ? 'log' : 'value', nameGap: 42 },
    series: lines.map(seriesOf),
  };
}

function seriesOf({ name, points, kind, color }: Line) {
  const base = { name, data: points, silent: true, itemStyle: { color } };
  // The large mode draws all points as one path: a tenth of the bytes.
  if (kind === 'scatter')
    return {
      ...base,
      type: 'scatter',
      symbolSize: 4,
      large: true,
      largeThreshold: 100,
      itemStyle: { color, opacity: 0.6 },
    };
  const line = { ...base, type: 'line', showSymbol: false, lineStyle: { color, width: 2 } };
  return kind === 'line'
    ? line
    : { ...line, stack: 'all', lineStyle: { width: 0 }, areaStyle: { color, opacity: 0.8 } };
}

function barOptions({ bars, series, unit, max }: BarChart, width: number) {
  const rows = [...bars].reverse();
  return {
    ...common(series.map(({ name }) => name)),
    grid: { left: width < 500 ? 128 : 210, right: 50, top: series.length < 2 ? 6 : 30, bottom: 30 },
    xAxis: { ...axis(''), type: 'value', min: 0, max },
    yAxis: {
      ...axis(''),
      type: 'category',
      data: rows.map(({ name }) => name),
      axisLabel: {
        color: ink,
        fontSize: 12,
        interval: 0,
        width: width < 500 ? 112 : 190,
        overflow: 'truncate',
      },
    },
    series: [...series].reverse().map(({ name, color }, i) => ({
      name,
      type: 'bar',
      silent: true,
      barMaxWidth: 12,
      itemStyle: { color, borderRadius: [0, 3, 3, 0] },
      label: {
        show: true,
        position: 'right',
        color: ink,
        fontSize: 11,
        formatter: ({ value }: { value: number | null }) =>
          value === null ? '' : `${Number(value.toFixed(3))}${unit}`,
      },
      data: rows.map(({ values }) => values[series.length - 1 - i] ?? null),
    })),
  };
}
