/**
 * Tool calls in the Qwen XML format, so that the reader in `chat` reads back what the schema allows:
 *
 *     <tool_call>
 *     <function=name>
 *     <parameter=key>
 *     value
 *     </parameter>
 *     </function>
 *     </tool_call>
 *
 * Strings stand as they are, everything else as JSON.
 */
import { UserError } from '../util/index.ts';
import { isName } from './call-text.ts';
import { anyChar, blanks, charSet } from './char-set.ts';
import { textWithout, without } from './dfa.ts';
import { anyTexts } from './languages.ts';
import { emptyLines } from './layout.ts';
import { alt, branches, empty, frame, lazy, literal, type Node, seq } from './node.ts';
import { freeParameters, strictParameters } from './parameters.ts';
import { patternDfa } from './pattern-dfa.ts';
import { shown } from './plain.ts';
import { textNode } from './text.ts';
import type { CallableTool, Constraint } from './types.ts';

const mostTools = 2_000;
const mostCalls = 64;
const opening = '<tool_call>';

/** Throws UserError('invalid_request'). */
export function callsNode({ tools, required, parallel }: Extract<Constraint, { kind: 'calls' }>): Node {
  if (tools.length === 0) throw new UserError('invalid_request', 'tools: there is none to call');
  if (tools.length > mostTools)
    throw new UserError('invalid_request', `tools: ${tools.length} are more than ${mostTools}`);
  const names = new Set<string>();
  const bodies = tools.map((tool) => {
    if (!isName(tool.name) || names.has(tool.name))
      throw new UserError(
        'invalid_request',
        `tools: ${shown(tool.name)} is no name of a tool, or stands twice`,
      );
    names.add(tool.name);
    return { text: `${tool.name}>\n`, next: parametersOf(tool), height: 0 };
  });
  const body = seq(literal('\n<function='), branches(bodies), literal('</tool_call>'));
  const calls = (count: number): Node => {
    const more = lazy(() => seq(literal(`\n${opening}`), calls(count + 1)));
    return seq(body, parallel && count < mostCalls ? alt([empty, more]) : empty);
  };
  if (required) return seq(emptyLines, literal(opening), calls(1));
  return alt([freeAnswer(), seq(untilCall(), calls(1))]);
}

/** What follows the name up to and with `</function>`. */
function parametersOf(tool: CallableTool): Node {
  return seq(tool.strict ? strictParameters(tool) : freeParameters(tool), literal('</function>\n'));
}

let frames: { readonly answer: Node; readonly call: Node } | null = null;

/**
 * Text that calls nothing. Where the reader would see a call in it (a wrapper that is not closed, or a function at a
 * line's start), it can not go on.
 */
function freeFrames(): { readonly answer: Node; readonly call: Node } {
  if (frames === null) {
    const behindName = charSet([...blanks, ...charsOf('<{>/')]);
    const tags = behindName.flatMap(([lo, hi]) =>
      Array.from({ length: hi - lo + 1 }, (_, i) => `<tool_call${String.fromCodePoint(lo + i)}`),
    );
    const bare = patternDfa('(?:^|\\n)[ \\t]*<[ \\t]?[fF][uU][nN][cC][tT][iI][oO][nN][sS]?[=:\\s]', 'search');
    const text = without(textWithout(anyChar, tags), bare) ?? anyTexts;
    const node = textNode(text, 'raw') as Node;
    frames = { answer: frame(node, 1), call: frame(seq(node, literal(opening)), 1) };
  }
  return frames;
}

function charsOf(text: string): [number, number][] {
  return [...text].map((char) => [char.charCodeAt(0), char.charCodeAt(0)]);
}

function freeAnswer(): Node {
  return freeFrames().answer;
}

function untilCall(): Node {
  return freeFrames().call;
}
