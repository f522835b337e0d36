/** Answers without structure: a pattern, or one of several texts. */
import { UserError } from '../util/index.ts';
import { branches, empty, type Node } from './node.ts';
import { patternDfa } from './pattern-dfa.ts';
import { PatternError } from './regex.ts';
import { textNode } from './text.ts';

const mostOptions = 20_000;
const longestOption = 65_536;

/** Throws UserError('invalid_request'). */
export function regexNode(pattern: string): Node {
  try {
    const dfa = patternDfa(pattern, 'whole');
    const node = dfa === null ? null : textNode(dfa, 'raw');
    if (node === null) throw new PatternError('matches no text');
    return node;
  } catch (error) {
    if (!(error instanceof PatternError)) throw error;
    throw new UserError('invalid_request', `pattern ${shown(pattern)} ${error.message}`);
  }
}

/** Throws UserError('invalid_request'). */
export function choiceNode(options: readonly string[]): Node {
  if (options.length === 0) throw new UserError('invalid_request', 'choice: there is nothing to choose from');
  if (options.length > mostOptions) {
    throw new UserError('invalid_request', `choice: ${options.length} options are more than ${mostOptions}`);
  }
  const wrong = options.find((option) => option.length > longestOption || /\p{Surrogate}/u.test(option));
  if (wrong !== undefined) {
    throw new UserError(
      'invalid_request',
      `choice: ${shown(wrong)} is longer than ${longestOption} characters or no well-formed text`,
    );
  }
  return branches([...new Set(options)].map((text) => ({ text, next: empty, height: 0 })));
}

/** A value in a message: JSON text of at most 200 characters. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 200 ? `${text.slice(0, 199)}…` : text;
}
