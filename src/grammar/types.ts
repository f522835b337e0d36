/**
 * Output that holds a form: what a request may ask for, and what the engine does with it at every token. A grammar
 * works on bytes, so any byte-level vocabulary fits; a vocabulary turns what may follow into a mask over token ids.
 */
import type { Vocabulary } from './vocabulary.ts';

/** A tool that may be called. */
export interface CallableTool {
  readonly name: string;
  /** JSON text of the schema of its arguments; null: it takes none. */
  readonly parameters: string | null;
  /** Values hold to the schema. False: only the names and the tags are held, values are free text. */
  readonly strict: boolean;
}

/** What an answer has to be. Plain data that crosses worker threads: schemas are JSON text. */
export type Constraint =
  /** JSON that is valid under a schema (JSON Schema 2020-12); null: any JSON object. */
  | { readonly kind: 'json'; readonly schema: string | null }
  /** Text that matches the whole of an ECMAScript pattern. */
  | { readonly kind: 'regex'; readonly pattern: string }
  /** One of these texts. */
  | { readonly kind: 'choice'; readonly options: readonly string[] }
  /** Tool calls in the Qwen XML format. */
  | {
      readonly kind: 'calls';
      readonly tools: readonly CallableTool[];
      /** At least one call and no text. False: free text until `<tool_call>`, which begins a call of the tools. */
      readonly required: boolean;
      /** More than one call in an answer. */
      readonly parallel: boolean;
    };

/** A compiled constraint. It belongs to no vocabulary and is shared by all requests with the same constraint. */
export interface Grammar {
  /** A matcher at the beginning of an answer. */
  matcher(vocabulary: Vocabulary): Matcher;
}

/** Where one answer stands in its grammar. */
export interface Matcher {
  /**
   * Writes one bit per token id into `out` (`vocabulary.words` words): bit `id & 31` of word `id >>> 5` is 1 where the
   * token may come next. Stop ids are allowed exactly where the answer may end; other control tokens never.
   */
  mask(out: Uint32Array): void;
  /** Goes on by one token. False: it is not allowed, and nothing has changed. */
  accept(id: number): boolean;
  /** An independent matcher at the same place. Costs one small object: make one per node of a draft tree. */
  clone(): Matcher;
  /**
   * The only text that can come next, as the tokenizer would write it: at most `max` tokens, each allowed by the mask
   * behind the ones before it. Empty where the text is not settled. Does not move the matcher.
   */
  forced(max: number): number[];
  /** Nothing but a stop token may follow. */
  readonly ended: boolean;
}
