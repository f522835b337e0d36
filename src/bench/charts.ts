/** Charts of the report, drawn by ECharts on this side: the page holds finished SVG and needs no script. */
import * as echarts from 'echarts';

const width = 720;
const height = 320;

export type Point = readonly [x: number, y: number];

export interface Line {
  readonly name: string;
  readonly points: readonly Point[];
  readonly kind: 'scatter' | 'line' | 'bar';
  readonly color: string;
  readonly stack?: string;
}

export interface Chart {
  readonly title: string;
  readonly x: string;
  readonly y: string;
  readonly lines: readonly Line[];
  /** Names of the x positions, for bars. */
  readonly labels?: readonly string[];
}

/** One chart as SVG text. Text and axes take the page's colour, so that dark mode and print work. */
export function drawChart(chart: Chart): string {
  const instance = echarts.init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    instance.setOption(optionsOf(chart) as Parameters<typeof instance.setOption>[0]);
    return restyle(instance.renderToSVGString());
  } finally {
    instance.dispose();
  }
}

/** Stands for the page's text colour while ECharts draws: it must be a real colour there. */
const ink = '#123456';
const faint = '#654321';

function optionsOf({ x, y, lines, labels }: Chart) {
  const axis = (name: string) => ({
    name,
    nameLocation: 'middle' as const,
    nameTextStyle: { color: ink, fontSize: 13 },
    axisLabel: { color: ink, fontSize: 12, hideOverlap: true },
    axisLine: { lineStyle: { color: faint } },
    splitLine: { lineStyle: { color: faint, opacity: 0.25 } },
  });
  return {
    animation: false,
    textStyle: { fontFamily: 'inherit', color: ink },
    grid: { left: 68, right: 20, top: 40, bottom: labels === undefined ? 52 : 96 },
    legend: {
      top: 4,
      right: 10,
      textStyle: { color: ink },
      itemHeight: 10,
      data: lines.map(({ name }) => name),
    },
    xAxis:
      labels === undefined
        ? { ...axis(x), type: 'value', nameGap: 30, min: 'dataMin', max: 'dataMax' }
        : {
            ...axis(x),
            type: 'category',
            data: labels,
            nameGap: 76,
            axisLabel: {
              ...axis(x).axisLabel,
              rotate: 35,
              interval: labels.length > 30 ? 'auto' : 0,
              width: 90,
              overflow: 'truncate',
            },
          },
    yAxis: { ...axis(y), type: 'value', nameGap: 50 },
    series: lines.map(({ name, points, kind, color, stack }) => ({
      name,
      type: kind,
      data: labels === undefined ? points : points.map(([, value]) => value),
      symbolSize: 5,
      showSymbol: kind === 'scatter',
      barCategoryGap: '30%',
      large: false,
      itemStyle: { color, opacity: kind === 'scatter' ? 0.65 : 1 },
      lineStyle: { color, width: 2 },
      ...(stack === undefined
        ? {}
        : kind === 'line'
          ? { stack, areaStyle: { color, opacity: 0.5 } }
          : { stack }),
    })),
  };
}

function restyle(svg: string): string {
  return svg
    .replaceAll(ink, 'currentColor')
    .replaceAll(faint, 'currentColor')
    .replace(/<svg width="\d+" height="\d+"/, `<svg role="img" viewBox="0 0 ${width} ${height}"`)
    .replace(/<rect width="\d+" height="\d+" x="0" y="0" id="[^"]*" fill="none"><\/rect>/, '');
}
