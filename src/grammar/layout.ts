/** The blanks of JSON: none, one, or a line break with an indentation. Never more, so no answer drowns in them. */
import { alt, empty, literal, type Node, seq } from './node.ts';

const deepestIndentation = 40;

function indentation(left: number): Node {
  return left === 0 ? empty : alt([literal(' ', indentation(left - 1)), empty]);
}

/** Behind an opening bracket or a comma, and before a closing bracket. */
export const gap: Node = alt([empty, literal(' '), literal('\n', indentation(deepestIndentation))]);

/** Between a key and its value. */
export const colon: Node = literal(':', alt([empty, literal(' ')]));

/** `,` and what may stand behind it. */
export const comma: Node = seq(literal(','), gap);

/** Empty lines before an answer, as models put them behind their thinking. */
export const emptyLines: Node = alt([empty, literal('\n', alt([empty, literal('\n')]))]);
