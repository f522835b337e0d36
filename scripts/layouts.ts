/** `npx tsx scripts/layouts.ts OUT`: copse-tiny in every published layout, a checkpoint folder each, to try readers on. */
import { join } from 'node:path';
import { storeTiny } from '../test/support/layout-checkpoint.ts';
import { layoutMakers } from '../test/support/layouts.ts';

const [out] = process.argv.slice(2);
if (out === undefined) {
  console.error('usage: npx tsx scripts/layouts.ts OUT');
  process.exit(2);
}
for (const maker of layoutMakers) {
  const folder = join(out, maker.name.toLowerCase().replaceAll(' ', '-'));
  storeTiny(maker, folder);
  console.log(folder);
}
