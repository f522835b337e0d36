/** The report page: self-contained, safe whatever a model writes, complete whatever a run lacks; and the meter of energy. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { writeSmallRun } from '../../../test/support/oracle-dataset.ts';
import { type OracleAnswer, startOracle } from '../../../test/support/oracle-server.ts';
import { type BenchReport, type BenchRun, htmlReport, runBench } from '../index.ts';
import { openEnergyMeter } from '../run/energy.ts';
import { duration, escapeHtml, readable } from './html.ts';

const hostile = '</pre><script>alert(1)</script><img src=x onerror=alert(1)>"\'&\u2028';

async function reportOf(
  answer: OracleAnswer,
  run: Partial<BenchRun> = {},
): Promise<BenchReport & { html: string }> {
  const server = await startOracle(() => answer);
  const small = writeSmallRun(server.url);
  try {
    const { report } = await runBench({ config: small.configPath, reportDir: small.reportDir, ...run });
    const html = readFileSync(join(small.reportDir, 'report.html'), 'utf8');
    const again = JSON.parse(readFileSync(join(small.reportDir, 'report.json'), 'utf8')) as BenchReport;
    expect(htmlReport(again)).toBe(html);
    return { ...report, html };
  } finally {
    await server.close();
    rmSync(small.folder, { recursive: true });
  }
}

describe('the page', () => {
  it('shows what a model wrote as text and needs nothing from elsewhere', async () => {
    const { html } = await reportOf({ deltas: [{ content: hostile }], finishReason: 'stop' });
    expect(html).toContain('&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(html).not.toMatch(/<script|<img|<link rel="stylesheet|@import|url\((?!#)/);
    expect(html.match(/(?:src|href)="[^"]*"/g)).toEqual(['href="data:,"']);
  });

  it('shows what a failing server wrote as text, too', async () => {
    const { html, turns } = await reportOf({ status: 400, raw: hostile, contentType: 'text/plain' });
    expect(html).not.toMatch(/<script|<img/);
    expect(html).toContain('5 of 5 turns have no answer, so the run is not valid.');
    expect(turns).toEqual({ issued: 5, missing: 5 });
  });

  it('has the charts, the official figures and the checks, and no figure that is none', async () => {
    const { html, checks } = await reportOf(
      { deltas: [{ content: 'a' }, { content: 'b' }] },
      { tokenizer: 'models/copse-tiny' },
    );
    for (const title of [
      'Time to first token against context length',
      'Latency per turn',
      'Latency and TTFT by percentile',
      'IoU per conversation',
    ])
      expect(html).toContain(`aria-label="${title}"`);
    expect(html).toContain('Samples issued');
    expect(html).toContain('not reported by the server');
    expect(checks.map(({ name, passed }) => [name, passed])).toContainEqual(['no_dropped_turns', true]);
    expect(html.replace(/<style>.*?<\/style>/s, '')).not.toMatch(/NaN|undefined|Infinity|\bnull\b|\[object/);
    expect(html).toMatch(/prefers-color-scheme:dark/);
    expect(html).toMatch(/@media print/);
  });

  it('charts what drafts brought, where the server tells of them', async () => {
    const titles = ['Output tokens per step', 'Accepted drafts'];
    const { html, ...report } = await reportOf({ deltas: [{ content: 'a' }] });
    for (const title of titles) expect(html).not.toContain(`aria-label="${title}"`);
    const figures = { steps: 4, generatedTokens: 10, draftedTokens: 8, acceptedTokens: 6 };
    const page = htmlReport({ ...report, perTurn: report.perTurn.map((turn) => ({ ...turn, ...figures })) });
    for (const title of titles) expect(page).toContain(`aria-label="${title}"`);
  });

  it('prints the assumption beside each cost', async () => {
    const { html } = await reportOf(
      { deltas: [{ content: 'a' }] },
      { cost: { watts: 50, pricePerKwh: 0.4 }, tokenizer: 'models/copse-tiny' },
    );
    expect(html).toMatch(/stated power of 50 W over|RAPL/);
    expect(html).toContain('power at $0.4 per kWh, under this load all the time');
  });
});

describe('figures for people', () => {
  it('keep the digits that matter', () => {
    expect([0, 0.00012, 0.0123, 1.234, 12.34, 1234.5, Number.NaN, null].map(readable)).toEqual([
      '0',
      '1.2e-4',
      '0.012',
      '1.23',
      '12.3',
      '1,235',
      '–',
      '–',
    ]);
    expect([1.25, 61, 3599.7, 3661].map(duration)).toEqual(['1.3 s', '1 min 1 s', '1 h 0 min', '1 h 1 min']);
    expect(escapeHtml(`<a href="x">'&`)).toBe('&lt;a href=&quot;x&quot;&gt;&#39;&amp;');
  });
});

describe('the energy meter', () => {
  const root = mkdtempSync(join(tmpdir(), 'powercap-'));
  afterAll(() => rmSync(root, { recursive: true }));
  const write = (zone: string, file: string, value: number): void => {
    mkdirSync(join(root, zone), { recursive: true });
    writeFileSync(join(root, zone, file), `${value}\n`);
  };

  it('adds up packages, not their parts, over a counter that wraps', () => {
    write('intel-rapl:0', 'energy_uj', 9_000_000);
    write('intel-rapl:0', 'max_energy_range_uj', 10_000_000);
    write('intel-rapl:1', 'energy_uj', 0);
    write('intel-rapl:1', 'max_energy_range_uj', 10_000_000);
    write('intel-rapl:0:0', 'energy_uj', 1);
    const meter = openEnergyMeter(root);
    expect(meter?.source).toMatch(/2 processor packages/);
    write('intel-rapl:0', 'energy_uj', 1_000_000);
    write('intel-rapl:1', 'energy_uj', 500_000);
    write('intel-rapl:0:0', 'energy_uj', 900_000);
    expect(meter?.stop()).toBeCloseTo(2.5, 9);
  });

  it('is not there where nothing can be read', () => {
    expect(openEnergyMeter(join(root, 'none'))).toBeNull();
    expect(openEnergyMeter(join(root, 'intel-rapl:0'))).toBeNull();
  });
});
