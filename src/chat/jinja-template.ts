/**
 * Any chat template, through the Jinja interpreter. The interpreter gives one string; jinja-marks.ts carries through
 * it which text must not become a control token, and what JavaScript would lose of the JSON.
 */
import { Template } from '@huggingface/jinja';
import { conformed } from './history.ts';
import { JinjaMarks } from './jinja-marks.ts';
import type { JsonValue } from './json-value.ts';
import { OutputReader, type OutputReaderOptions } from './output-reader.ts';
import { PromptBuilder } from './prompt-builder.ts';
import type { ChatTemplate, RenderedPrompt, RenderInput } from './types.ts';
import { TemplateError } from './types.ts';

/** What ends a turn in the common formats; a prompt may be snapshotted behind it. */
const turnEnd = /<\|im_end\|>\n?|<\|eot_id\|>|<\|end\|>\n?|<end_of_turn>\n?/g;

export interface JinjaOptions {
  /** The texts of the tokenizer's control tokens. */
  readonly controlTokens: readonly string[];
  /** bos_token, eos_token and the like. */
  readonly variables: Readonly<Record<string, string>>;
}

export class JinjaTemplate implements ChatTemplate {
  readonly renderer = 'jinja';
  /** As in all known formats with such tags. */
  readonly afterThinking = '\n\n';
  readonly #template: Template;
  readonly #options: JinjaOptions;

  constructor(source: string, options: JinjaOptions) {
    this.#template = new Template(source);
    this.#options = options;
  }

  render(input: RenderInput): RenderedPrompt {
    if (input.anyHistory !== true) return this.#render(input);
    try {
      return this.#render(input);
    } catch (error) {
      if (!(error instanceof TemplateError)) throw error;
      return this.#render({ ...input, messages: conformed(input.messages) });
    }
  }

  #render(input: RenderInput): RenderedPrompt {
    const marks = new JinjaMarks(input, this.#options.controlTokens);
    const context: Record<string, unknown> = {
      ...this.#options.variables,
      ...(marks.encode(input.extra ?? {}) as object),
      messages: marks.encode(input.messages as unknown as JsonValue),
      add_generation_prompt: input.addGenerationPrompt,
    };
    if (input.tools && input.tools.length > 0) context.tools = marks.encode(input.tools);
    if (input.enableThinking !== undefined) context.enable_thinking = input.enableThinking;
    if (input.preserveThinking !== undefined) context.preserve_thinking = input.preserveThinking;
    const out = new PromptBuilder();
    const hasSystem = context.tools !== undefined || input.messages[0]?.role === 'system';
    let next: 'system' | 'turn' = hasSystem ? 'system' : 'turn';
    for (const piece of marks.decode(this.#run(context))) {
      for (const [text, endsTurn] of piece.trusted ? splitTurns(piece.text) : []) {
        out.trusted(text);
        if (!endsTurn) continue;
        out.boundary(next);
        next = 'turn';
      }
      if (!piece.trusted) out.untrusted(piece.text);
    }
    return out.finish();
  }

  /** The reader of the Qwen format takes Hermes JSON too, which is what most other templates teach. */
  openReader(options: OutputReaderOptions): OutputReader {
    return new OutputReader(options);
  }

  #run(context: Record<string, unknown>): string {
    try {
      return this.#template.render(context);
    } catch (cause) {
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new TemplateError(`the chat template refuses these messages: ${reason}`, 'messages', cause);
    }
  }
}

function splitTurns(text: string): [text: string, endsTurn: boolean][] {
  const parts: [string, boolean][] = [];
  let from = 0;
  for (const match of text.matchAll(turnEnd)) {
    const end = match.index + match[0].length;
    parts.push([text.slice(from, end), true]);
    from = end;
  }
  parts.push([text.slice(from), false]);
  return parts;
}
