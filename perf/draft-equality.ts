/**
 * The large version of test/speculation.test.ts: every way of drafting against plain decoding, cold, warm and among four.
 *
 *   npx tsx perf/draft-equality.ts [PROMPTS=500] [RESULT.json]
 */
import { writeFileSync } from 'node:fs';
import { loadTokenizer } from '../src/tokenizer/index.ts';
import { answersOf, differing, draftModes, fewTokens, requestsFor } from '../test/support/draft-modes.ts';
import { hybridCheckpoints, packedFolders, tinyCheckpoint } from '../test/support/engines.ts';
import { promptsFor, randomIds } from '../test/support/prompts.ts';

const [prompts = '500', resultPath] = process.argv.slice(2);
const count = Number(prompts);
const folders = packedFolders();
const failures: Record<string, number> = {};
const accepted: Record<string, Record<string, number>> = {};
const models = [
  {
    name: 'copse-tiny',
    checkpoint: tinyCheckpoint,
    prompts: promptsFor(loadTokenizer(tinyCheckpoint), count),
  },
  ...hybridCheckpoints.map((checkpoint, i) => ({
    name: `golden hybrid ${i}`,
    checkpoint,
    prompts: Array.from({ length: count }, (_, n) => [
      ...randomIds(6 + (n % 30), n, 300),
      ...randomIds(6 + (n % 30), n, 300),
    ]),
  })),
];
for (const { name, checkpoint, prompts } of models) {
  const requests = requestsFor(prompts, 24, name === 'copse-tiny' ? undefined : fewTokens);
  const results = [];
  for (const mode of draftModes) {
    results.push(await answersOf(mode, { folder: folders.of(checkpoint), contextTokens: 2048 }, requests));
    console.log(
      `${name}, ${mode}: ${requests.length} prompts, ${results.at(-1)?.tokensPerStep.toFixed(2)} tokens per step`,
    );
  }
  failures[name] = differing(results).length;
  accepted[name] = Object.fromEntries(
    results.map(({ mode, speculation }) => [
      mode,
      speculation.byDepth.reduce((sum, depth) => sum + depth.accepted, 0),
    ]),
  );
}
folders.remove();
const summary = {
  date: new Date().toISOString(),
  promptsPerModel: count,
  sampling: 'greedy and seeded in turn',
  modes: draftModes,
  conditions: ['cold', 'warm', 'among four'],
  differingAnswers: failures,
  acceptedTokens: accepted,
};
console.log(JSON.stringify(summary));
if (resultPath !== undefined) writeFileSync(resultPath, `${JSON.stringify(summary, null, 1)}\n`);
