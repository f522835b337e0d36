/** One tool call on its way to JSON: turns parameters into events whose fragments join to an object. */
import { quoteJson, stringifySpaced } from './json-stringify.ts';
import { isJsonObject, type JsonValue } from './json-value.ts';
import { anyType, type ValueType } from './schema-type.ts';
import { convertValue, startsAsText, type ToolTypes } from './value-type.ts';

export type ReaderEvent =
  | { readonly type: 'reasoning' | 'content'; readonly text: string }
  | { readonly type: 'tool-start'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-args'; readonly index: number; readonly fragment: string }
  /** `complete`: the arguments are whole. Those of a call that was cut are left open, so that nobody runs it. */
  | { readonly type: 'tool-end'; readonly index: number; readonly complete: boolean };

export interface CallContext {
  readonly index: number;
  readonly id: string;
  readonly name: string;
  readonly types: ToolTypes;
  /** Where events go. */
  readonly events: ReaderEvent[];
}

export class CallBuilder {
  readonly #context: CallContext;
  readonly #keys = new Set<string>();
  #type: ValueType = anyType;
  /** Inside a string that is written while it grows. */
  #streaming = false;
  #wroteArgs = false;

  constructor(context: CallContext) {
    this.#context = context;
    const { index, id, name, events } = context;
    events.push({ type: 'tool-start', index, id, name });
  }

  startValue(key: string): void {
    const separator = this.#wroteArgs ? ', ' : '{';
    this.#keys.add(key);
    this.#type = this.#context.types.type(this.#context.name, key);
    this.#streaming = false;
    this.#args(`${separator}${quoteJson(key)}: `);
  }

  get hasArguments(): boolean {
    return this.#wroteArgs;
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** The tool lists this key among its parameters. */
  isDeclared(key: string): boolean {
    return this.#context.types.declares(this.#context.name, key);
  }

  /** A tag for this key inside a value starts the next parameter: not one already given, nor one the tool lacks. */
  mayFollow(key: string): boolean {
    return !this.#keys.has(key) && this.#context.types.mayHave(this.#context.name, key);
  }

  /** More of a value that has not ended. Returns how much was taken; the rest comes again. */
  streamValue(text: string): number {
    const ready = withoutLastLine(text);
    if (ready === '' || !(this.#streaming || startsAsText(ready, this.#type))) return 0;
    this.#args((this.#streaming ? '' : '"') + escaped(ready));
    this.#streaming = true;
    return ready.length;
  }

  /** The rest of the value. */
  endValue(text: string): void {
    const bare = withoutLastLine(text);
    this.#args(this.#streaming ? `${escaped(bare)}"` : convertValue(bare, this.#type));
    this.#streaming = false;
  }

  /** The rest of a value that was cut: it stays an open string. */
  cutValue(text: string): void {
    const bare = withoutLastLine(text);
    if (bare !== '' || this.#streaming) this.#args((this.#streaming ? '' : '"') + escaped(bare));
    this.#streaming = false;
  }

  /** Takes an object as all the arguments, if there is none yet; parameters may follow. */
  takeJson(value: JsonValue | undefined): boolean {
    if (this.#wroteArgs || !isJsonObject(value)) return false;
    for (const key of Object.keys(value)) this.#keys.add(key);
    if (this.#keys.size > 0) this.#args(stringifySpaced(value).slice(0, -1));
    return true;
  }

  /** An incomplete call is left without its closing bracket. */
  close(complete: boolean): void {
    this.#args((this.#wroteArgs ? '' : '{') + (complete ? '}' : ''));
    this.#context.events.push({ type: 'tool-end', index: this.#context.index, complete });
  }

  #args(fragment: string): void {
    const { index, events } = this.#context;
    const last = events.at(-1);
    if (fragment === '') return;
    this.#wroteArgs = true;
    if (last?.type === 'tool-args' && last.index === index) {
      events[events.length - 1] = { type: 'tool-args', index, fragment: last.fragment + fragment };
    } else events.push({ type: 'tool-args', index, fragment });
  }
}

/** One line break before the closing tag is layout. */
function withoutLastLine(text: string): string {
  let end = text.length;
  if (text.charAt(end - 1) === '\n') end--;
  if (text.charAt(end - 1) === '\r') end--;
  return text.slice(0, end);
}

function escaped(text: string): string {
  return quoteJson(text).slice(1, -1);
}
