/**
 * Keyword arguments of a call written in Python, values read as literals. Anything else that could be an expression is kept as its
 * source text; what can not be one is a syntax error.
 */
import { parseFloat64, parseInt10 } from './text.ts';
import { type Value, writeKey } from './value.ts';

type TokenKind = 'name' | 'number' | 'text' | 'other-text' | 'sign';

interface Token {
  readonly kind: TokenKind;
  readonly text: string;
  readonly start: number;
  readonly end: number;
  /** Of a plain string. */
  readonly value?: string;
}

const forms: readonly (readonly [TokenKind, RegExp])[] = [
  [
    'text',
    /([A-Za-z]{0,2})('''[\s\S]*?(?<!\\)'''|"""[\s\S]*?(?<!\\)"""|'(?:[^'\\\n]|\\[\s\S])*'|"(?:[^"\\\n]|\\[\s\S])*")/y,
  ],
  ['name', /[\p{L}_][\p{L}\p{N}_]*/uy],
  [
    'number',
    /(?:0[xX][\da-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d[\d_]*)?[jJ]?)/y,
  ],
  ['sign', /\*\*|\/\/|<<|>>|==|!=|<=|>=|:=|->|[-+*/%@&|^~<>=()[\]{},:.]/y],
];
const blanks = /(?:[ \t\f\r\n]|\\\n|#[^\n]*)*/y;
const depthLimit = 100;

/** null where Python would find a syntax error. */
export function keywordArguments(source: string): ReadonlyMap<string, Value> | null {
  const tokens = tokenize(source);
  if (tokens === null) return null;
  const parts = splitArguments(tokens);
  if (parts === null) return null;
  const found = new Map<string, Value>();
  for (const part of parts) {
    const isKeyword = part[0]?.kind === 'name' && part[1]?.text === '=';
    const stars = part[0]?.text === '**' || part[0]?.text === '*' ? 1 : 0;
    const value = part.slice(isKeyword ? 2 : stars);
    if (!isExpression(value)) return null;
    if (!isKeyword) {
      if (stars === 0 && found.size > 0) return null;
      continue;
    }
    const name = part[0]?.text ?? '';
    if (found.has(name) || constants.has(name)) return null;
    const literal = new LiteralReader(value).whole();
    found.set(name, literal === undefined ? source.slice(value[0]?.start, value.at(-1)?.end) : literal);
  }
  return found;
}

function tokenize(source: string): Token[] | null {
  const tokens: Token[] = [];
  let at = 0;
  const match = (form: RegExp): RegExpExecArray | null => {
    form.lastIndex = at;
    return form.exec(source);
  };
  for (;;) {
    at += match(blanks)?.[0].length ?? 0;
    if (at >= source.length) return tokens;
    const token = nextToken(match, at);
    if (token === null) return null;
    tokens.push(token);
    at = token.end;
  }
}

function nextToken(match: (form: RegExp) => RegExpExecArray | null, start: number): Token | null {
  for (const [kind, form] of forms) {
    const found = match(form);
    if (found === null) continue;
    const [text, prefix = '', quoted = ''] = found;
    const end = start + text.length;
    if (kind !== 'text') return { kind, text, start, end };
    if (!/^(?:|[rubf]|br|rb|fr|rf)$/i.test(prefix)) continue;
    if (/[bf]/i.test(prefix)) return { kind: 'other-text', text, start, end };
    return { kind, text, start, end, value: textValue(quoted, /r/i.test(prefix)) };
  }
  return null;
}

function textValue(quoted: string, isRaw: boolean): string {
  const width = /^(?:'''|""")/.test(quoted) ? 3 : 1;
  const inner = quoted.slice(width, -width);
  if (isRaw) return inner;
  const simple: Readonly<Record<string, string>> = {
    n: '\n',
    t: '\t',
    r: '\r',
    a: '\x07',
    b: '\b',
    f: '\f',
    v: '\v',
    '\n': '',
    '\\': '\\',
    "'": "'",
    '"': '"',
  };
  return inner.replace(
    /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U(000[\da-fA-F]{5}|0010[\da-fA-F]{4})|([0-7]{1,3})|([\s\S]))/g,
    (whole, x?: string, u?: string, long?: string, octal?: string, char = '') => {
      const hex = x ?? u ?? long;
      if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
      if (octal !== undefined) return String.fromCharCode(Number.parseInt(octal, 8));
      return simple[char] ?? whole;
    },
  );
}

const closing: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' };

/** Token runs between the top-level commas; null when brackets do not match or an argument is missing. */
function splitArguments(tokens: readonly Token[]): Token[][] | null {
  const parts: Token[][] = [[]];
  const open: string[] = [];
  for (const token of tokens) {
    const isSign = token.kind === 'sign';
    const close = isSign ? closing[token.text] : undefined;
    if (close !== undefined) open.push(close);
    else if (isSign && /^[)\]}]$/.test(token.text) && open.pop() !== token.text) return null;
    if (isSign && token.text === ',' && open.length === 0) parts.push([]);
    else parts.at(-1)?.push(token);
  }
  if (open.length > 0) return null;
  if (parts.at(-1)?.length === 0) parts.pop();
  return parts.some((part) => part.length === 0) ? null : parts;
}

const joining = new Set(['and', 'or', 'in', 'is', 'if', 'else', 'for', 'async', 'not', 'lambda', 'await']);
const statements = new Set(
  'as assert break class continue def del elif except finally from global import nonlocal pass raise return try while with yield'.split(
    ' ',
  ),
);
const constants: ReadonlyMap<string, Value> = new Map<string, Value>([
  ['None', null],
  ['True', true],
  ['False', false],
]);

/** Operands and operators in turn: enough to tell an expression from prose. */
function isExpression(tokens: readonly Token[]): boolean {
  let previous: Token | null = null;
  for (const token of tokens) {
    if (token.kind === 'name' && statements.has(token.text)) return false;
    const startsOperand = token.kind !== 'sign' && !(token.kind === 'name' && joining.has(token.text));
    const isTextAfterText = token.kind.endsWith('text') && previous?.kind.endsWith('text') === true;
    if (previous !== null && startsOperand && endsOperand(previous) && !isTextAfterText) return false;
    if (!startsOperand && !mayFollow(token, previous)) return false;
    previous = token;
  }
  return previous !== null && endsOperand(previous);
}

const endsOperand = ({ kind, text }: Token): boolean =>
  kind === 'sign' ? /^[)\]}]$/.test(text) : !(kind === 'name' && joining.has(text));

/** An operator needs an operand before it; brackets, unary signs, colons and words of the grammar do not. */
function mayFollow({ kind, text }: Token, previous: Token | null): boolean {
  if (kind === 'name' || /^[-+~*([{:]$|^\*\*$/.test(text)) return true;
  if (/^[)\]}]$/.test(text))
    return previous !== null && (endsOperand(previous) || /^[([{,:]$/.test(previous.text));
  return previous !== null && (endsOperand(previous) || (text === ',' && previous.text === ':'));
}

/** Reads what ast.literal_eval reads and JSON can hold: undefined for the rest. */
class LiteralReader {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  whole(): Value | undefined {
    const value = this.#value(0);
    return this.#at === this.#tokens.length ? value : undefined;
  }

  #take(text: string): boolean {
    const token = this.#tokens[this.#at];
    if (token?.kind !== 'sign' || token.text !== text) return false;
    this.#at++;
    return true;
  }

  #value(depth: number): Value | undefined {
    if (depth > depthLimit) return undefined;
    if (this.#take('[')) return this.#items(']', depth)?.values;
    if (this.#take('(')) return this.#tuple(depth);
    if (this.#take('{')) return this.#dict(depth);
    if (this.#take('-')) return negated(this.#value(depth + 1));
    if (this.#take('+')) return numberOnly(this.#value(depth + 1));
    const token = this.#tokens[this.#at++];
    if (token?.kind === 'number') return numberOf(token.text);
    if (token?.kind === 'name') return constants.get(token.text);
    if (token?.kind !== 'text') return undefined;
    let text = token.value ?? '';
    for (let next = this.#tokens[this.#at]; next?.kind === 'text'; next = this.#tokens[++this.#at])
      text += next.value ?? '';
    return text;
  }

  #items(end: string, depth: number): { values: Value[]; comma: boolean } | undefined {
    const values: Value[] = [];
    let comma = false;
    while (!this.#take(end)) {
      const value = this.#value(depth + 1);
      if (value === undefined) return undefined;
      values.push(value);
      comma = this.#take(',') || comma;
      if (!comma && !this.#take(end)) return undefined;
      if (!comma) break;
    }
    return { values, comma };
  }

  /** A tuple becomes a list, as it does in JSON; parentheses around one value are none. */
  #tuple(depth: number): Value | undefined {
    const items = this.#items(')', depth);
    if (items === undefined) return undefined;
    return items.values.length === 1 && !items.comma ? items.values[0] : items.values;
  }

  #dict(depth: number): Value | undefined {
    const found = new Map<string, Value>();
    while (!this.#take('}')) {
      const key = this.#value(depth + 1);
      if (key === undefined || !this.#take(':')) return undefined;
      const value = this.#value(depth + 1);
      const name = writeKey(key);
      if (value === undefined || name === null) return undefined;
      found.set(name, value);
      if (!this.#take(',') && this.#tokens[this.#at]?.text !== '}') return undefined;
    }
    return found;
  }
}

function numberOnly(value: Value | undefined): Value | undefined {
  return typeof value === 'bigint' || typeof value === 'number' ? value : undefined;
}

function negated(value: Value | undefined): Value | undefined {
  return typeof value === 'bigint' || typeof value === 'number' ? -value : undefined;
}

function numberOf(text: string): Value | undefined {
  if (/^0[xob]/i.test(text)) {
    const digits = text.replaceAll('_', '');
    return digits.length > 2 ? BigInt(digits) : undefined;
  }
  if (/^0[\d_]*[1-9]$/.test(text)) return undefined;
  return parseInt10(text) ?? parseFloat64(text) ?? undefined;
}
