/**
 * `npm run agents [NAME...]`: real agents and SDKs from the npm registry against the real server with a scripted model.
 * On demand: it downloads about 1.5 GB once. Says of each whether it passed, failed, or why it was skipped.
 */
import { clis } from './clis.ts';
import { Skip } from './install.ts';
import { sdks } from './sdks.ts';

const cases = [...clis, ...sdks];
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !cases.some((one) => one.name === name));
if (unknown.length > 0) {
  console.error(`unknown: ${unknown.join(', ')}; there are ${cases.map(({ name }) => name).join(', ')}`);
  process.exit(2);
}
const chosen = cases.filter(({ name }) => wanted.length === 0 || wanted.includes(name));
const width = Math.max(...chosen.map(({ name }) => name.length));
const counts = { passed: 0, failed: 0, skipped: 0 };
for (const { name, run } of chosen) {
  const started = performance.now();
  const { verdict, why } = await run().then(
    () => ({ verdict: 'passed' as const, why: '' }),
    (error: Error) => ({
      verdict: error instanceof Skip ? ('skipped' as const) : ('failed' as const),
      why: error.message,
    }),
  );
  counts[verdict]++;
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  console.log(`${name.padEnd(width)}  ${verdict.padEnd(7)}  ${seconds.padStart(6)} s  ${why}`.trimEnd());
}
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exit(counts.failed > 0 ? 1 : 0);
