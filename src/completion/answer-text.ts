/**
 * What the tokens of one answer say: bytes to text, text up to a stop string, text to reasoning, content and tool calls.
 * Once the text has ended, by a stop string or after the only tool call that is wanted, nothing more comes out.
 */
import type { OutputEnd, OutputReader, ReaderEvent } from '../chat/index.ts';
import { StreamDecoder, type Tokenizer } from '../tokenizer/index.ts';
import { StopStrings } from './stop-strings.ts';
import type { Delta } from './types.ts';

export interface AnswerTextOptions {
  readonly tokenizer: Tokenizer;
  readonly stop: readonly string[];
  /** null = all is content, as in raw completions. */
  readonly reader: OutputReader | null;
  /** The text ends after its first tool call. */
  readonly oneCall: boolean;
}

export class AnswerText {
  readonly #decoder: StreamDecoder;
  readonly #stops: StopStrings;
  readonly #reader: OutputReader | null;
  readonly #oneCall: boolean;
  #ended = false;
  #stopText: string | null = null;
  #endedByCall = false;

  constructor(options: AnswerTextOptions) {
    this.#decoder = new StreamDecoder(options.tokenizer);
    this.#stops = new StopStrings(options.stop);
    this.#reader = options.reader;
    this.#oneCall = options.oneCall;
  }

  /** Whether the text ended by itself; tokens that follow are not part of the answer. */
  get ended(): boolean {
    return this.#ended;
  }

  /** The stop string that ended it, if one did. */
  get stopText(): string | null {
    return this.#stopText;
  }

  /** The next token is one of thinking, or the tag that ends it. */
  get isThinking(): boolean {
    return this.#reader?.isThinking ?? false;
  }

  push(id: number): Delta[] {
    const { text, stop } = this.#stops.push(this.#decoder.push(id));
    if (stop !== null) {
      this.#ended = true;
      this.#stopText = stop;
    }
    return this.#read(text);
  }

  /** No more tokens, because the model ended its answer or something cut it: what was held back. */
  finish(end: OutputEnd): { readonly deltas: Delta[]; readonly calledTools: boolean } {
    const rest = this.#ended ? '' : this.#stops.flush() + this.#decoder.flush();
    const deltas = this.#read(rest);
    // A call that began behind the only one that is wanted was never announced.
    if (this.#endedByCall || this.#reader === null) return { deltas, calledTools: this.#endedByCall };
    const { events, calledTools } = this.#reader.finish(this.#ended ? 'cut' : end);
    deltas.push(...this.#deltas(events));
    return { deltas, calledTools };
  }

  #read(text: string): Delta[] {
    if (text === '') return [];
    if (this.#reader === null) return [{ type: 'content', text }];
    return this.#deltas(this.#reader.push(text));
  }

  #deltas(events: readonly ReaderEvent[]): Delta[] {
    const isEnd = (event: ReaderEvent): boolean => event.type === 'tool-end' && event.complete;
    const callEnd = this.#oneCall ? events.findIndex(isEnd) : -1;
    if (callEnd >= 0) {
      this.#ended = true;
      this.#endedByCall = true;
    }
    return callEnd < 0 ? [...events] : events.slice(0, callEnd + 1);
  }
}
