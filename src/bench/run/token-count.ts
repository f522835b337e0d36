/** Input and output lengths as a client with the model's tokenizer counts them (section 3.3 of the benchmark's description). */
import {
  type ChatTemplate,
  type JsonObject,
  loadTemplate,
  stringifyCompact,
  TemplateError,
  type ToolDef,
  withParsedArguments,
} from '../../chat/index.ts';
import { loadTokenizer, type Tokenizer } from '../../tokenizer/index.ts';
import { type Answer, answerMessage, type MergedCall, mergeCalls } from './answer.ts';
import type { Turn } from './wire.ts';

export interface SampleTokens {
  readonly input: number;
  /** null when the answer is empty. */
  readonly output: number | null;
  /** Tokens after the first chunk; 0 = none. */
  readonly afterFirst: number;
}

export class TokenCounter {
  readonly #tokenizer: Tokenizer;
  readonly #template: ChatTemplate;
  readonly #user: JsonObject = { role: 'user', content: '' };
  #baseline: number | null = null;

  constructor(folder: string) {
    this.#tokenizer = loadTokenizer(folder);
    this.#template = loadTemplate(folder);
  }

  count(turn: Turn, answer: Answer | null): SampleTokens {
    const input = this.#input(turn);
    if (answer === null || answer.isEmpty) return { input, output: null, afterFirst: 0 };
    const content = answer.content.join('');
    const reasoning = answer.reasoning.join('');
    return {
      input,
      output: this.#output(content, reasoning, answer.calls),
      afterFirst: this.#afterFirst(answer),
    };
  }

  /** Tokens of plain text, nothing added. */
  text(text: string): number {
    return text === '' ? 0 : this.#tokenizer.encode(text, { special: 'parse' }).length;
  }

  #input({ messages, tools }: Turn): number {
    try {
      return this.#render(messages, tools as readonly ToolDef[] | undefined, true);
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error;
      return this.text(stringifyCompact({ messages, tools: tools ?? null }));
    }
  }

  #output(content: string, reasoning: string, calls: readonly MergedCall[] | null): number {
    if (reasoning === '' && calls === null) return this.text(content);
    try {
      const whole = this.#render([this.#user, answerMessage(content, reasoning, calls)]);
      return Math.max(0, whole - this.#emptyAnswer());
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error;
      const parts = [content, reasoning, calls === null ? '' : JSON.stringify(calls)];
      return this.text(parts.filter((part) => part !== '').join('\n'));
    }
  }

  /** The first reasoning chunk, else the first content chunk, else the first tool delta is not counted. */
  #afterFirst(answer: Answer): number {
    const { content, reasoning, toolChunks } = answer;
    if (reasoning.length > 0) return this.#rest(content.join(''), reasoning.slice(1).join(''), answer.calls);
    if (content.length > 0) return this.#rest(content.slice(1).join(''), '', answer.calls);
    const rest = toolChunks.slice(1);
    return this.#rest('', '', rest.length === 0 ? null : mergeCalls(rest.flat()));
  }

  #rest(content: string, reasoning: string, calls: readonly MergedCall[] | null): number {
    return content === '' && reasoning === '' && calls === null ? 0 : this.#output(content, reasoning, calls);
  }

  /** Tokens of a rendered user turn and an empty answer: what is not the answer's own. */
  #emptyAnswer(): number {
    this.#baseline ??= this.#render([this.#user, { role: 'assistant', content: '' }]);
    return this.#baseline;
  }

  #render(messages: readonly JsonObject[], tools?: readonly ToolDef[], addGenerationPrompt = false): number {
    const parsed = withParsedArguments(messages as unknown as Parameters<typeof withParsedArguments>[0]);
    const { segments } = this.#template.render({ messages: parsed, tools, addGenerationPrompt });
    return this.#tokenizer.encodeSegments(segments.map(({ text }) => ({ text, trusted: true }))).length;
  }
}
