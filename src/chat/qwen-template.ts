/**
 * Our own renderer of the Qwen3.5/3.6 chat format. It equals the Jinja templates listed in load-template.ts byte for
 * byte on everything they accept, and refuses with a TemplateError what they refuse.
 *
 * Unlike an interpreter it knows which words are the template's own (trusted) and which came with the request, keeps
 * number lexemes, and marks where later prompts may part from this one.
 */
import { holdsNoArguments } from './history.ts';
import { pythonNumber, stringifyPython } from './json-stringify.ts';
import { isJsonObject, JsonNumber, type JsonObject, type JsonValue, orderedKeys } from './json-value.ts';
import { OutputReader, type OutputReaderOptions } from './output-reader.ts';
import { PromptBuilder } from './prompt-builder.ts';
import { strip, stripNewlinesLeft, stripNewlinesRight } from './python-text.ts';
import type { ChatMessage, ChatTemplate, RenderedPrompt, RenderInput, ToolCall } from './types.ts';
import { TemplateError } from './types.ts';

/** Where the known templates differ. */
export interface QwenDialect {
  /** Images and videos in content become vision tokens; else they are an error. */
  readonly vision: boolean;
  /** A tool result as the very first message opens a user turn. */
  readonly leadingToolOpensTurn: boolean;
  /** `arguments: null` (or another empty value) counts as no arguments. */
  readonly emptyArguments: boolean;
}

const toolIntro = '<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>';
const toolOutro = `
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls
</IMPORTANT>`;

/** Content in pieces; of vision tokens only the marks are trusted. */
type Piece = readonly [text: string, trust: 'trusted' | 'untrusted'];

export class QwenTemplate implements ChatTemplate {
  readonly renderer = 'own';
  readonly afterThinking = '\n\n';
  readonly #dialect: QwenDialect;

  constructor(dialect: QwenDialect) {
    this.#dialect = dialect;
  }

  render(input: RenderInput): RenderedPrompt {
    return new Rendering(this.#dialect, input).run();
  }

  openReader(options: OutputReaderOptions): OutputReader {
    return new OutputReader(options);
  }
}

class Rendering {
  readonly #dialect: QwenDialect;
  readonly #input: RenderInput;
  readonly #out = new PromptBuilder();
  readonly #vision = { image: 0, video: 0 };

  constructor(dialect: QwenDialect, input: RenderInput) {
    this.#dialect = dialect;
    this.#input = input;
  }

  run(): RenderedPrompt {
    const { messages, addGenerationPrompt, enableThinking } = this.#input;
    if (messages.length === 0)
      throw new TemplateError('messages is empty: at least one is needed', 'messages');
    this.#system();
    const lastQuery = this.#lastQuery();
    messages.forEach((message, i) => {
      this.#message(message, i, lastQuery);
    });
    if (addGenerationPrompt) {
      const think = enableThinking === false ? '<think>\n\n</think>\n\n' : '<think>\n';
      this.#out.trusted(`<|im_start|>assistant\n${think}`);
    }
    return this.#out.finish();
  }

  #system(): void {
    const { messages, tools } = this.#input;
    const first = messages[0];
    const content = first?.role === 'system' ? this.#content(first, 0) : null;
    const out = this.#out;
    if (tools && tools.length > 0) {
      out.trusted(toolIntro);
      for (const tool of tools) out.trusted('\n').untrusted(stringifyPython(tool));
      out.trusted(toolOutro);
      if (content && content.length > 0) this.#emit([['\n\n', 'trusted'], ...content]);
    } else if (content) {
      out.trusted('<|im_start|>system\n');
      this.#emit(content);
    } else return;
    out.trusted('<|im_end|>\n').boundary('system');
  }

  /** The last user message that is no tool result in disguise; think blocks before it are dropped. */
  #lastQuery(): number {
    const { messages } = this.#input;
    for (let i = messages.length - 1; i >= 0; i--) {
      const message = messages[i] as ChatMessage;
      if (message.role !== 'user') continue;
      const text = textOf(this.#content(message, i));
      if (!(text.startsWith('<tool_response>') && text.endsWith('</tool_response>'))) return i;
    }
    if (this.#input.anyHistory === true) return -1;
    throw new TemplateError('there is no user query: messages has no message of role "user"', 'messages');
  }

  #message(message: ChatMessage, i: number, lastQuery: number): void {
    if (message.role === 'system') {
      if (i > 0) this.#lateSystem(message, i);
    } else if (message.role === 'user') {
      this.#out.trusted('<|im_start|>user\n');
      this.#emit(this.#content(message, i, this.#vision));
      this.#endTurn();
    } else if (message.role === 'assistant') this.#assistant(message, i, lastQuery);
    else if (message.role === 'tool') this.#tool(message, i);
    else {
      const role = JSON.stringify(message.role) ?? 'missing';
      throw new TemplateError(
        `the role ${role} is not known to this chat template (system, user, assistant, tool)`,
        `messages[${i}].role`,
      );
    }
  }

  /** In its place, as a turn of its own: what stands before it keeps its pages. */
  #lateSystem(message: ChatMessage, i: number): void {
    if (this.#input.anyHistory !== true)
      throw new TemplateError('a system message must be the first', `messages[${i}].role`);
    this.#out.trusted('<|im_start|>system\n');
    this.#emit(this.#content(message, i));
    this.#endTurn();
  }

  #endTurn(): void {
    this.#out.trusted('<|im_end|>\n').boundary('turn');
  }

  #tool(message: ChatMessage, i: number): void {
    const { messages } = this.#input;
    const opens = i === 0 ? this.#dialect.leadingToolOpensTurn : messages[i - 1]?.role !== 'tool';
    if (opens) this.#out.trusted('<|im_start|>user');
    this.#out.trusted('\n<tool_response>\n');
    this.#emit(this.#content(message, i, this.#vision));
    this.#out.trusted('\n</tool_response>');
    if (messages[i + 1]?.role !== 'tool') this.#endTurn();
  }

  #assistant(message: ChatMessage, i: number, lastQuery: number): void {
    let content = this.#content(message, i, this.#vision);
    let reasoning = '';
    const text = textOf(content);
    if (typeof message.reasoning_content === 'string') reasoning = message.reasoning_content;
    else if (text.includes('</think>')) {
      const before = stripNewlinesRight(text.slice(0, text.indexOf('</think>')));
      const opening = before.lastIndexOf('<think>');
      reasoning = stripNewlinesLeft(opening < 0 ? before : before.slice(opening + '<think>'.length));
      const rest = text.slice(text.lastIndexOf('</think>') + '</think>'.length);
      content = untrustedPieces(stripNewlinesLeft(rest));
    }
    this.#out.trusted('<|im_start|>assistant\n');
    if (this.#input.preserveThinking === true || i > lastQuery) {
      this.#out.trusted('<think>\n').untrusted(strip(reasoning)).trusted('\n</think>\n\n');
    }
    this.#emit(content);
    this.#toolCalls(message, i, strip(textOf(content)) !== '');
    this.#endTurn();
  }

  #toolCalls(message: ChatMessage, i: number, hasContent: boolean): void {
    const calls = message.tool_calls ?? [];
    const where = `messages[${i}].tool_calls`;
    if (!Array.isArray(calls)) throw new TemplateError(`${where} is not a list`, where);
    calls.forEach((call: ToolCall, j) => {
      const fn = call.function ?? (call as ToolCall['function']);
      if (typeof fn?.name !== 'string') {
        throw new TemplateError(
          `${where}[${j}].function.name is not a string`,
          `${where}[${j}].function.name`,
        );
      }
      const gap = j > 0 ? '\n' : hasContent ? '\n\n' : '';
      this.#out.trusted(`${gap}<tool_call>\n<function=`).untrusted(fn.name).trusted('>\n');
      this.#parameters(fn.arguments, `${where}[${j}].function.arguments`);
      this.#out.trusted('</function>\n</tool_call>');
    });
  }

  #parameters(args: JsonValue | undefined, where: string): void {
    if (args === undefined || (this.#dialect.emptyArguments && isEmpty(args))) return;
    if (!isJsonObject(args) && this.#input.anyHistory === true) {
      if (holdsNoArguments(args)) return;
      const text = typeof args === 'string' ? args : stringifyPython(args);
      this.#out.untrusted(text).trusted('\n');
      return;
    }
    if (!isJsonObject(args)) {
      throw new TemplateError(`${where} is not an object: a JSON string must be parsed first`, where);
    }
    for (const key of orderedKeys(args)) {
      this.#out.trusted('<parameter=').untrusted(key).trusted('>\n');
      const value = args[key] as JsonValue;
      this.#out.untrusted(typeof value === 'string' ? value : stringifyPython(value));
      this.#out.trusted('\n</parameter>\n');
    }
  }

  #emit(pieces: readonly Piece[]): void {
    for (const [text, trust] of pieces) this.#out[trust](text);
  }

  /** `counts`: numbers images and videos on, where they are rendered; the look-ahead for queries must not. */
  #content(message: ChatMessage, i: number, counts = { ...this.#vision }): Piece[] {
    const { content } = message;
    const where = `messages[${i}].content`;
    if (content === null || content === undefined) return [];
    if (typeof content === 'string') return untrustedPieces(strip(content));
    if (!Array.isArray(content)) {
      throw new TemplateError(`${where} is neither text nor a list of parts`, where);
    }
    const pieces = content.flatMap((part: JsonValue, j) =>
      this.#part(part, { where: `${where}[${j}]`, role: message.role, counts }),
    );
    return stripPieces(pieces);
  }

  #part(
    part: JsonValue,
    at: { where: string; role: string; counts: { image: number; video: number } },
  ): Piece[] {
    if (!isJsonObject(part)) throw new TemplateError(`${at.where} is not an object`, at.where);
    const kind = this.#dialect.vision ? visionKind(part) : null;
    if (kind !== null) {
      if (at.role === 'system') throw new TemplateError(`a system message cannot contain ${kind}s`, at.where);
      at.counts[kind]++;
      const label = kind === 'image' ? 'Picture' : 'Video';
      const number: Piece[] = this.#input.extra?.add_vision_id
        ? [[`${label} ${at.counts[kind]}: `, 'trusted']]
        : [];
      return [...number, [`<|vision_start|><|${kind}_pad|><|vision_end|>`, 'trusted']];
    }
    if (typeof part.text !== 'string') {
      const type = stringifyPython(part.type ?? null);
      throw new TemplateError(
        `${at.where} is a content part of type ${type} that this model does not take`,
        at.where,
      );
    }
    return [[part.text, 'untrusted']];
  }
}

function visionKind(part: JsonObject): 'image' | 'video' | null {
  if ('image' in part || 'image_url' in part || part.type === 'image') return 'image';
  return 'video' in part || part.type === 'video' ? 'video' : null;
}

function isEmpty(value: JsonValue): boolean {
  if (typeof value === 'number' || value instanceof JsonNumber) return Number(pythonNumber(value)) === 0;
  if (Array.isArray(value)) return value.length === 0;
  return value === null || value === false || value === '';
}

function textOf(pieces: readonly Piece[]): string {
  return pieces.map(([text]) => text).join('');
}

function untrustedPieces(text: string): Piece[] {
  return text === '' ? [] : [[text, 'untrusted']];
}

/** Strips the joined text at both ends and leaves out empty pieces. */
function stripPieces(pieces: readonly Piece[]): Piece[] {
  const kept = pieces.filter(([text]) => text !== '');
  for (let edge = kept[0]; edge; edge = kept[0]) {
    // A letter at the far end keeps what stands there.
    const text = strip(`${edge[0]}x`).slice(0, -1);
    if (text !== '') {
      kept[0] = [text, edge[1]];
      break;
    }
    kept.shift();
  }
  for (let edge = kept.at(-1); edge; edge = kept.at(-1)) {
    const text = strip(`x${edge[0]}`).slice(1);
    if (text !== '') {
      kept[kept.length - 1] = [text, edge[1]];
      break;
    }
    kept.pop();
  }
  return kept;
}
