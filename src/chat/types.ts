/**
 * What goes into a prompt and what comes out of the renderer. Messages and tools are JSON as `parseLossless` gives it,
 * in the shape of the OpenAI chat API; fields that a template does not read may be present.
 */
import type { TextSegment } from '../tokenizer/index.ts';
import { UserError } from '../util/index.ts';
import type { JsonObject, JsonValue } from './json-value.ts';
import type { OutputReader, OutputReaderOptions } from './output-reader.ts';

export interface ToolCall {
  readonly id?: string;
  readonly type?: string;
  readonly function?: {
    readonly name?: string;
    /** An object for templates; clients send JSON text (`withParsedArguments` turns it into an object). */
    readonly arguments?: JsonValue;
  };
}

export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly JsonObject[] | null;
  readonly reasoning_content?: string | null;
  readonly tool_calls?: readonly ToolCall[] | null;
  readonly tool_call_id?: string;
  readonly name?: string;
}

/** A tool as the client sent it, normally `{type: 'function', function: {name, description, parameters}}`. */
export type ToolDef = JsonObject;

export interface RenderInput {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly ToolDef[] | null | undefined;
  readonly addGenerationPrompt: boolean;
  readonly enableThinking?: boolean | undefined;
  readonly preserveThinking?: boolean | undefined;
  /**
   * Render what templates refuse and clients send all the same: system messages anywhere, none from the user, past
   * arguments that are no object.
   */
  readonly anyHistory?: boolean | undefined;
  /** Further template variables, such as add_vision_id. */
  readonly extra?: JsonObject | undefined;
}

/** A place in the prompt where later prompts are likely to part from this one. */
export interface PromptBoundary {
  /** The number of segments before it. */
  readonly segment: number;
  /** 'system': after the system and tools block; 'turn': after a turn; 'prompt': the last one before generation. */
  readonly kind: 'system' | 'turn' | 'prompt';
}

export interface RenderedPrompt {
  readonly text: string;
  /** The text in pieces; only trusted ones, the template's own words, may become control tokens. */
  readonly segments: readonly TextSegment[];
  readonly boundaries: readonly PromptBoundary[];
  /** The prompt ends inside an open think block: the answer starts with reasoning. */
  readonly opensThinking: boolean;
}

export interface ChatTemplate {
  /** Which renderer: our own for templates it is known to equal, else the Jinja interpreter. */
  readonly renderer: 'own' | 'jinja';
  /** What stands between the closing tag of the thinking and the answer. */
  readonly afterThinking: string;
  /** Throws TemplateError where the template would. */
  render(input: RenderInput): RenderedPrompt;
  /** Reads what a model writes in the format that `render` taught it. */
  openReader(options: OutputReaderOptions): OutputReader;
}

/** The template cannot render these messages. */
export class TemplateError extends UserError {
  constructor(message: string, param: string | null, cause?: unknown) {
    super('invalid_request', message, param === null ? { cause } : { param, cause });
    this.name = 'TemplateError';
  }
}
