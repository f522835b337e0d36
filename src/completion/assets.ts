/** What a model folder needs beside weights to answer: a tokenizer that fits the vocabulary, and a template that renders. */
import { loadTemplate } from '../chat/index.ts';
import { loadTokenizer } from '../tokenizer/index.ts';
import { UserError } from '../util/index.ts';

/** Throws UserError, so that a folder is refused before its weights are packed and not after. */
export function checkAssets(folder: string, vocabSize: number): void {
  const tokenizer = loadTokenizer(folder);
  if (tokenizer.vocabSize > vocabSize)
    throw new UserError(
      'bad_checkpoint',
      `the tokenizer of ${folder} has ${tokenizer.vocabSize} tokens, the model ${vocabSize}`,
      { hint: 'Use the tokenizer that was published with the weights.' },
    );
  const template = loadTemplate(folder, { controlTokens: tokenizer.controlTokens });
  try {
    template.render({ messages: [{ role: 'user', content: 'Hi' }], addGenerationPrompt: true });
  } catch (cause) {
    throw new UserError(
      'bad_checkpoint',
      `the chat template of ${folder} does not render a message: ${(cause as Error).message}`,
      { cause },
    );
  }
}
