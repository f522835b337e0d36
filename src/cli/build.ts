/** `copse build`: checkpoint to engine folder. */
import { type Command, Option } from 'commander';
import { buildEngine, openEngineFolder, type Recipe } from '../build/index.ts';
import { checkedCheckpoint } from './model.ts';
import { openProgress } from './progress.ts';

export function addBuild(program: Command): void {
  program
    .command('build')
    .description('pack a checkpoint into an engine folder')
    .argument('<checkpoint>', 'Hugging Face checkpoint folder')
    .argument('<out>', 'engine folder to write')
    .addOption(
      new Option('--recipe <name>', 'nvfp4: all linears and the head in 4 bits; plain: as they are')
        .choices(['nvfp4', 'plain'])
        .default('nvfp4'),
    )
    .option('--json', 'print the result as JSON')
    .action((checkpoint: string, out: string, flags: { recipe: Recipe; json?: boolean }) => {
      checkedCheckpoint(checkpoint);
      const progress = openProgress('packing', { quiet: flags.json === true });
      buildEngine({
        checkpoint,
        out,
        recipe: flags.recipe,
        onProgress: ({ done, total, weight, error }) =>
          progress.update(done, total, `${weight} (error ${(100 * error).toFixed(2)} %)`),
      });
      progress.stop();
      printResult(out, flags.json === true);
    });
}

function printResult(out: string, asJson: boolean): void {
  const { weights, weightBytes, manifest } = openEngineFolder(out);
  const errors = Object.fromEntries(
    [...weights].filter(([, { error }]) => error > 0).map(([name, { error }]) => [name, error]),
  );
  if (asJson) {
    console.log(
      JSON.stringify({ out, recipe: manifest.recipe, weights: weights.size, bytes: weightBytes, errors }),
    );
    return;
  }
  const worst = Object.entries(errors).sort(([, a], [, b]) => b - a);
  console.log(
    `${out}: ${weights.size} weights, ${(weightBytes / 2 ** 20).toFixed(1)} MiB, recipe ${manifest.recipe}`,
  );
  for (const [name, error] of worst) console.log(`  ${(100 * error).toFixed(2).padStart(6)} %  ${name}`);
}
