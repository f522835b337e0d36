/**
 * Recognizes the tags of the Qwen call format in text that is still being written, with the slips that models make:
 * quotes, blanks, `name="x"`, a missing `>`. Every question is answered 'wait' until the text that follows settles it,
 * so an answer never depends on how the text was cut into chunks.
 */

/** No more text will come. */
export type Ending = 'open' | 'ended';

export interface NamedTag {
  readonly name: string;
  /** Just behind the tag. */
  readonly end: number;
}

export type CallOpening =
  | { readonly kind: 'function'; readonly name: string; readonly end: number }
  | { readonly kind: 'json'; readonly at: number };

/** 'quoted': the text up to `end` has tags, but somebody talks of them. */
export type CallStart = CallOpening | { readonly kind: 'quoted'; readonly end: number } | 'wait' | 'no';

export interface CallContext {
  readonly ending: Ending;
  /** Nothing but blanks stands before the tag on its line. */
  readonly startsLine: boolean;
  /** The character before the tag. */
  readonly before: string;
  readonly isTool: (name: string) => boolean;
  /** Only the wrapper, spelt as it should be, begins a call. */
  readonly exact: boolean;
}

/** Longer than any tag with a name in it. */
const longestTag = 400;
const toolCall = '<tool_call';

/**
 * A call that begins at `at`: `<tool_call>` with a function or JSON in it, or, at a line's start, a function without
 * the wrapper. In the middle of a line the wrapper counts only where what it wraps is on a line of its own, and
 * where no quotation mark or backtick stands before it.
 */
export function callStart(text: string, at: number, context: CallContext): CallStart {
  const { ending, startsLine, before, isTool, exact } = context;
  const wrapped = text.startsWith(toolCall, at);
  if (!wrapped) {
    if (cutOff(text, at, [toolCall], ending)) return 'wait';
    return startsLine && !exact ? functionTag(text, at, ending, isTool) : 'no';
  }
  const behind = at + toolCall.length;
  if (exact && behind < text.length && text.charAt(behind) !== '>') return 'no';
  const bracket = skipSpaces(text, behind);
  const inner = skipBlank(text, text.charAt(bracket) === '>' ? bracket + 1 : behind);
  if (inner >= text.length) return ending === 'open' ? 'wait' : 'no';
  const ownLine = startsLine || (text.slice(behind, inner).includes('\n') && !/["'`“‘(]/.test(before));
  if (!ownLine) return { kind: 'quoted', end: inner + 1 };
  if (text.charAt(inner) === '{') return { kind: 'json', at: inner };
  return functionTag(text, inner, ending, isTool);
}

function functionTag(text: string, at: number, ending: Ending, isTool: (name: string) => boolean): CallStart {
  const tag = namedTag(text, at, { words: ['function'], ending, isDeclared: isTool, anyName: false });
  return typeof tag === 'string' ? tag : { kind: 'function', ...tag };
}

/** `<parameter=key>` at `at`. A key that is not declared counts where the tag is whole. */
export function parameterTag(
  text: string,
  at: number,
  ending: Ending,
  isDeclared: (key: string) => boolean,
): NamedTag | 'wait' | 'no' {
  return namedTag(text, at, { words: ['parameter', 'param'], ending, isDeclared, anyName: true });
}

interface TagQuestion {
  readonly words: readonly string[];
  readonly ending: Ending;
  readonly isDeclared: (name: string) => boolean;
  /** Names that are not declared are names too. */
  readonly anyName: boolean;
}

function namedTag(text: string, at: number, question: TagQuestion): NamedTag | 'wait' | 'no' {
  const { words, ending } = question;
  const shown = text.slice(at, at + longestTag);
  const word = words.find((known) => wordTag(known).test(shown));
  if (word === undefined) {
    const begun = shown.replace(/^<[ \t]?/, '<').toLowerCase();
    const mayGrow = ending === 'open' && at + shown.length === text.length;
    return mayGrow && words.some((known) => `<${known}`.startsWith(begun)) ? 'wait' : 'no';
  }
  const head = wordTag(word).exec(shown)?.[0].length ?? 0;
  const stop = shown.slice(head).search(/[<>\n]/);
  if (stop < 0) return ending === 'open' && shown.length < longestTag ? 'wait' : 'no';
  const label = shown.slice(head, head + stop);
  const closed = shown.charAt(head + stop) === '>';
  return readLabel(label, { closed, at: at + head, question });
}

function wordTag(word: string): RegExp {
  return new RegExp(`^<[ \\t]?${word}s?(?![\\w-])`, 'i');
}

/** The name in what stands between the tag's word and its end, such as `=name`, ` name="x"` or `="x" type="y"`. */
function readLabel(
  label: string,
  { closed, at, question }: { closed: boolean; at: number; question: TagQuestion },
): NamedTag | 'no' {
  const lead = /^\s*(?:[=:]\s*)?(?:name\s*=\s*)?/i.exec(label)?.[0].length ?? 0;
  const rest = label.slice(lead);
  const end = at + label.length + (closed ? 1 : 0);
  const quoted = /^(["'])(.*?)\1/.exec(rest);
  const whole = (quoted?.[2] ?? rest).trim();
  const { isDeclared, anyName } = question;
  if (isDeclared(whole) && (quoted === null || isAttributes(rest.slice(quoted[0].length))))
    return { name: whole, end };
  const first = /^["']?([^\s"']+)["']?/.exec(rest);
  if (first?.[1] !== undefined && isDeclared(first[1])) {
    const tail = rest.slice(first[0].length);
    // Without its `>` the tag ends with the name, and what follows on the line is the value.
    const value = at + lead + first[0].length + skipSpaces(tail, 0);
    return { name: first[1], end: isAttributes(tail) ? end : value };
  }
  if (!anyName || whole === '' || /[{}]/.test(whole)) return 'no';
  return closed || !/\s/.test(whole) ? { name: whole, end } : 'no';
}

function isAttributes(text: string): boolean {
  return /^(?:\s+[\w-]+\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"']+))*\s*\/?\s*$/.test(text);
}

export type Closes = 'parameter' | 'function' | 'tool_call' | 'think';

const longestClosing = 40;

/** A closing tag at `at`, misspelt or not: which one is meant, and how it is spelt. */
export function closingTag(
  text: string,
  at: number,
  ending: Ending,
): { readonly closes: Closes; readonly spelt: string; readonly end: number } | 'wait' | 'no' {
  const shown = text.slice(at, at + longestClosing);
  const mayGrow = ending === 'open' && shown.length < longestClosing;
  const found = /^<[ \t]?\/[ \t]?([A-Za-z_][\w-]*)[ \t]*(>?)/.exec(shown);
  if (found === null) return mayGrow && /^<[ \t]?(?:\/[ \t]?)?$/.test(shown) ? 'wait' : 'no';
  const isCut = found[2] === '' && at + found[0].length === text.length;
  if (isCut) return mayGrow ? 'wait' : 'no';
  const spelt = found[1] ?? '';
  const closes = meantTag(spelt);
  return closes === null ? 'no' : { closes, spelt, end: at + found[0].length };
}

/** The tag of the format that a name stands for, two slips of a letter allowed. */
export function meantTag(name: string): Closes | null {
  const letters = name.toLowerCase().replaceAll(/[^a-z]/g, '');
  if (letters === 'think' || letters === 'thinking') return 'think';
  if (letters === 'param' || letters === 'params') return 'parameter';
  if (letters === 'func') return 'function';
  return (
    (['parameter', 'function', 'tool_call'] as const).find(
      (tag) => slips(letters, tag.replace('_', '')) <= 2,
    ) ?? null
  );
}

/** The number of letters to insert, drop or change; 3 stands for more. */
function slips(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 2) return 3;
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return Math.min(3, row[b.length] ?? 3);
}

/** Whether a tag of the call format stands at `at`: what follows inside a call, or the next call. */
export function structureAt(text: string, at: number, ending: Ending): 'yes' | 'no' | 'wait' {
  const shown = text.slice(at, at + 12);
  if (/^<[ \t]?(?:\/[ \t]?)?(?:param|func|tool_c|think)/i.test(shown)) return 'yes';
  if (at + shown.length < text.length) return 'no';
  // What the end of the output leaves of a tag still tells of one.
  const begun = shown.replaceAll(/[ \t]/g, '').toLowerCase().replace('</', '<');
  const mayBe = ['<param', '<func', '<tool_c', '<think'].some((tag) => tag.startsWith(begun));
  return mayBe ? (ending === 'open' ? 'wait' : 'yes') : 'no';
}

const formatTags = [
  '</parameter>',
  '</function>',
  '</tool_call>',
  '<parameter=',
  '<function=',
  '<tool_call>',
];

/** The beginning of a tag of the format, as the end of the output leaves it. */
export function isTagPiece(text: string): boolean {
  const isNamed = /^<(?:parameter|function)=[^<>\n]{0,256}$/.test(text);
  return isNamed || (text !== '' && formatTags.some((tag) => tag.startsWith(text)));
}

/** The text from `at` on is empty or the beginning of one of the tags, and more may come. */
export function cutOff(text: string, at: number, tags: readonly string[], ending: Ending): boolean {
  if (ending === 'ended') return false;
  const left = text.length - at;
  return tags.some((tag) => left < tag.length && tag.startsWith(text.slice(at)));
}

export function skipBlank(text: string, from: number): number {
  return skip(/[ \t\r\n]*/y, text, from);
}

export function skipSpaces(text: string, from: number): number {
  return skip(/[ \t]*/y, text, from);
}

function skip(pattern: RegExp, text: string, from: number): number {
  pattern.lastIndex = from;
  pattern.test(text);
  return Math.max(from, pattern.lastIndex);
}
