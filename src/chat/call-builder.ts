/** One tool call on its way to JSON: turns parameters into events whose fragments join to an object. */
import { quoteJson, stringifySpaced } from './json-stringify.ts';
import { isJsonObject, type JsonValue } from './json-value.ts';
import { anyType, type ValueType } from './schema-type.ts';
import { convertValue, startsAsText, type ToolTypes } from './value-type.ts';

export type ReaderEvent =
  | { readonly type: 'reasoning' | 'content'; readonly text: string }
  | { readonly type: 'tool-start'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'tool-args'; readonly index: number; readonly fragment: string }
  | { readonly type: 'tool-end'; readonly index: number };

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
  /** At the value's first character: one newline there is layout. */
  #fresh = false;
  /** Inside a string that is written while it grows. */
  #streaming = false;
  #whole = false;

  constructor(context: CallContext) {
    this.#context = context;
    const { index, id, name, events } = context;
    events.push({ type: 'tool-start', index, id, name });
  }

  startValue(key: string): void {
    const separator = this.#keys.size === 0 && !this.#whole ? '{' : ', ';
    this.#keys.add(key);
    this.#type = this.#context.types.type(this.#context.name, key);
    this.#fresh = true;
    this.#streaming = false;
    this.#args(`${separator}${quoteJson(key)}: `);
  }

  takesLeadingNewline(): boolean {
    const fresh = this.#fresh;
    this.#fresh = false;
    return fresh;
  }

  /** A tag for this key inside a value starts the next parameter: not one already given, nor one the tool lacks. */
  mayFollow(key: string): boolean {
    return !this.#keys.has(key) && this.#context.types.mayHave(this.#context.name, key);
  }

  /** More of a value that has not ended. Returns how much was taken; the rest comes again. */
  streamValue(text: string): number {
    // One newline before the closing tag is layout.
    const ready = text.endsWith('\n') ? text.slice(0, -1) : text;
    if (ready === '' || !(this.#streaming || startsAsText(ready, this.#type))) return 0;
    this.#args((this.#streaming ? '' : '"') + escaped(ready));
    this.#streaming = true;
    return ready.length;
  }

  /** The rest of the value. */
  endValue(text: string): void {
    const bare = text.endsWith('\n') ? text.slice(0, -1) : text;
    this.#args(this.#streaming ? `${escaped(bare)}"` : convertValue(bare, this.#type));
    this.#streaming = false;
  }

  /** Takes an object as all the arguments, if there is none yet. */
  takeJson(value: JsonValue | undefined): boolean {
    if (this.#keys.size > 0 || this.#whole || !isJsonObject(value)) return false;
    this.takeText(stringifySpaced(value));
    return true;
  }

  /** Takes the text of a JSON object as all the arguments; it stays open, as parameters may follow. */
  takeText(json: string): void {
    if (json === '{}') return;
    this.#args(json.slice(0, -1));
    this.#whole = true;
  }

  close(): void {
    this.#args(this.#keys.size > 0 || this.#whole ? '}' : '{}');
    this.#context.events.push({ type: 'tool-end', index: this.#context.index });
  }

  #args(fragment: string): void {
    const { index, events } = this.#context;
    const last = events.at(-1);
    if (fragment === '') return;
    if (last?.type === 'tool-args' && last.index === index) {
      events[events.length - 1] = { type: 'tool-args', index, fragment: last.fragment + fragment };
    } else events.push({ type: 'tool-args', index, fragment });
  }
}

function escaped(text: string): string {
  return quoteJson(text).slice(1, -1);
}
