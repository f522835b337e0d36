/** What may stand in a tool call between its tags, so that the reader takes nothing in it for a tag. */
import { anyChar, blanks, charSet, invert } from './char-set.ts';
import { both, type Dfa, textOf, textWithout } from './dfa.ts';
import { literal, type Node, seq } from './node.ts';
import { patternDfa } from './pattern-dfa.ts';
import type { Writing } from './schema-compiler.ts';
import { textNode } from './text.ts';

/** Text that the reader would take for the structure of a call. */
const tags = [
  '<parameter=',
  '<parameter>',
  '<parameter ',
  '<parameter\t',
  '<parameter\n',
  '</parameter>',
  '</parameter ',
  '</function>',
  '</tool_call>',
];

/** Raw values without limits. */
export const valueTexts = textWithout(anyChar, tags);
/** Raw values with limits: a carriage return at the end would be read as part of the line break. */
export const heldTexts = textWithout(invert(charSet([[0x0d, 0x0d]])), tags);
/** Keys that no schema names. */
export const keyTexts = textOf(
  invert(
    charSet([...blanks, ...[...'<>{}"\''].map((char) => [char.charCodeAt(0), char.charCodeAt(0)] as const)]),
  ),
);

/** JSON inside a parameter. */
export const jsonInTags: Writing = {
  texts: valueTexts,
  literal: (text) => (holdsTag(text) ? text.replaceAll('<', '\\u003c') : text),
};

/** The end of a value that holds to a schema. */
export const valueEnd = literal('\n</parameter>\n');
/** Any text as a value. One node for all grammars, so that they share its masks. */
export const anyValue: Node = seq(textNode(valueTexts, 'raw') as Node, valueEnd);

/** The line break behind a key, any text, and the end of the value, however it is laid out. */
export function looseValue(): Node {
  const text = textWithout(anyChar, ['</parameter>', '\n<parameter=', '\n</function>', '\n</tool_call>']);
  const behindKey = both(text, patternDfa('^\\n', 'search') as Dfa) as Dfa;
  return seq(textNode(behindKey, 'raw') as Node, literal('</parameter>\n'));
}

export function holdsTag(text: string): boolean {
  return tags.some((tag) => text.includes(tag));
}

/** What the reader takes as a name, and a tag can hold. */
export function isName(name: string): boolean {
  return (
    name !== '' && name.length <= 256 && name === name.trim() && !/[<>{}"'\r\n]|\p{Surrogate}/u.test(name)
  );
}
