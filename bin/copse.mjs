#!/usr/bin/env node
import { existsSync } from 'node:fs';

const path = new URL('../dist/cli/main.js', import.meta.url);
if (!existsSync(path)) {
  console.error('copse is not built yet: run `npm run build` first.');
  process.exit(2);
}
const { main } = await import(path.href);
process.exitCode = await main(process.argv.slice(2));
