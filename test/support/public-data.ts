/**
 * Where tests find the public benchmark data: `COPSE_DATA`, then `../shared/data` beside the checkout.
 * `null` means absent; the caller skips with `missing(...)`, one line that names the public source.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const sources: Record<string, string> = {
  'edge-agentic': 'mlcommons/endpoints examples/11_Edge_Agentic_Example',
  bfcl_v4: 'ShishirPatil/gorilla berkeley-function-call-leaderboard/bfcl_eval/data',
};

export function publicData(relative: string): string | null {
  const beside = fileURLToPath(new URL('../../../shared/data', import.meta.url));
  for (const root of [process.env.COPSE_DATA, beside]) {
    if (root && existsSync(`${root}/${relative}`)) return `${root}/${relative}`;
  }
  const source = sources[relative.split('/')[0] ?? ''] ?? 'unknown';
  console.log(`skipped: ${relative} not found in COPSE_DATA or ../shared/data; public source: ${source}`);
  return null;
}
