/** The report in a real browser: nothing fails, every chart is drawn, nothing sticks out, narrow and wide, light and dark. */
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { runBench } from '../src/bench/index.ts';
import { writeSmallRun } from './support/oracle-dataset.ts';
import { startOracle } from './support/oracle-server.ts';

const browserPath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
  (path) => existsSync(path),
);
if (browserPath === undefined) console.log("skipped: no browser found; Debian's package chromium has one");

const flags = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

describe('the report page', () => {
  it.skipIf(browserPath === undefined)('is drawn whole at 360 and at 1600 pixels', async () => {
    const server = await startOracle(() => ({
      deltas: [{ content: 'a' }, { content: ' b' }],
      finishReason: 'stop',
    }));
    const small = writeSmallRun(server.url);
    await runBench({ config: small.configPath, reportDir: small.reportDir, tokenizer: 'models/copse-tiny' });
    const browser = await chromium.launch({ executablePath: browserPath ?? '', args: flags });
    try {
      for (const [width, colorScheme] of [
        [360, 'dark'],
        [1600, 'light'],
      ] as const) {
        const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme });
        const errors: string[] = [];
        page.on('console', (message) => void (message.type() === 'error' && errors.push(message.text())));
        page.on('pageerror', (error) => void errors.push(String(error)));
        page.on(
          'request',
          (request) => void (request.url().startsWith('http') && errors.push(request.url())),
        );
        await page.goto(pathToFileURL(join(small.reportDir, 'report.html')).href);
        const found = (await page.evaluate(
          `({ overflow: document.documentElement.scrollWidth - innerWidth,
              charts: [...document.querySelectorAll('figure svg')].filter((svg) => svg.getBoundingClientRect().width > 0)
                .map((svg) => svg.querySelectorAll('path, text').length) })`,
        )) as { overflow: number; charts: number[] };
        expect(errors).toEqual([]);
        expect(found.overflow).toBeLessThanOrEqual(0);
        expect(found.charts.length).toBeGreaterThanOrEqual(4);
        expect(Math.min(...found.charts)).toBeGreaterThan(5);
        await page.close();
      }
    } finally {
      await browser.close();
      await server.close();
      rmSync(small.folder, { recursive: true });
    }
  });
});
