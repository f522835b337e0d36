/**
 * Reads what a model writes: reasoning, content and tool calls of the Qwen XML dialect (and Hermes JSON), as a stream.
 * A call is announced as soon as its name is known; string arguments flow while they are written.
 *
 * Invariants: the messages made from the events do not depend on how the text was cut into chunks; the fragments of a
 * call join to a JSON object; what cannot be read as a call stays content. Ordinary text behind the last call is
 * dropped, as the format forbids it. A parameter that is written twice appears twice in the fragments: whoever parses
 * JSON takes the last, which is the rule for it.
 */
import { randomUUID } from 'node:crypto';
import { CallBuilder, type ReaderEvent } from './call-builder.ts';
import {
  type CallStart,
  callStart,
  cutOff,
  type Ending,
  findValueEnd,
  JsonExtent,
  skipBlank,
  tagName,
} from './call-syntax.ts';
import type { JsonValue } from './json-value.ts';
import { parseLoose, readJsonCall, ToolTypes } from './value-type.ts';

export interface OutputReaderOptions {
  /** The text starts inside a think block (`opensThinking` of the prompt). */
  readonly opensThinking: boolean;
  /** 'text': calls are content. Default 'parse'. */
  readonly toolCalls?: 'parse' | 'text';
  /** The tools of the request; their schemas say how argument text becomes JSON. */
  readonly tools?: readonly JsonValue[] | null | undefined;
  /** Makes the id of a call. */
  readonly newId?: () => string;
}

type State = 'thinking' | 'content' | 'json' | 'body' | 'value';

const mostOpenEnds = 8;
const thinkCloses = ['</think>', '</thinking>'] as const;
const bodyTags = ['<parameter=', '</function>', '</tool_call>', '</parameter>', '<tool_call>', '<function='];
/** Tags that close something inside a call and need no look behind them. */
const bodyCloses = ['</function>', '</tool_call>', '</parameter>'] as const;

export class OutputReader {
  readonly #parsesCalls: boolean;
  readonly #types: ToolTypes;
  readonly #newId: () => string;
  #state: State;
  #ending: Ending = 'open';
  #text = '';
  #events: ReaderEvent[] = [];
  #callCount = 0;
  /** Blanks at the end of what was said: said with what follows, dropped before a call. */
  #blanks = '';
  #spoke = false;
  /** A think block was open: no other may begin. */
  #sawThinking: boolean;
  /** Empty lines between a think block and the content are layout. */
  #skipsLines = false;
  /** Text behind a call is dropped until something turns out not to be a call. */
  #drops = false;
  /** Where the search for a tag or a value's end goes on. */
  #from = 0;
  #call: CallBuilder | null = null;
  #junk = '';
  /** Calls as JSON that the end of the output left open; each costs a pass over the rest, so they are limited. */
  #openEnds = 0;
  #json: { readonly extent: JsonExtent; readonly lead: string } | null = null;

  constructor(options: OutputReaderOptions) {
    this.#state = options.opensThinking ? 'thinking' : 'content';
    this.#sawThinking = options.opensThinking;
    this.#parsesCalls = options.toolCalls !== 'text';
    this.#types = new ToolTypes(options.tools ?? []);
    this.#newId = options.newId ?? (() => `call_${randomUUID().replaceAll('-', '')}`);
  }

  /** Calls announced so far. */
  get callCount(): number {
    return this.#callCount;
  }

  push(text: string): ReaderEvent[] {
    this.#text += text;
    return this.#run();
  }

  /** The text is over: the rest of the events, and whether there was a call. */
  finish(): { readonly events: ReaderEvent[]; readonly calledTools: boolean } {
    this.#ending = 'ended';
    this.#run();
    if (this.#state === 'content' && this.#callCount === 0) this.#add('content', this.#takeBlanks());
    const events = this.#take();
    return { events, calledTools: this.#callCount > 0 };
  }

  #run(): ReaderEvent[] {
    // Half a surrogate pair must not be told apart from its other half.
    const last = this.#text.charCodeAt(this.#text.length - 1);
    const half = this.#ending === 'open' && last >= 0xd800 && last < 0xdc00;
    const kept = half ? this.#text.slice(-1) : '';
    if (half) this.#text = this.#text.slice(0, -1);
    while (this.#step()) {}
    this.#text += kept;
    return this.#ending === 'open' ? this.#take() : [];
  }

  /** Does one thing; false when more text is needed. */
  #step(): boolean {
    switch (this.#state) {
      case 'thinking':
        return this.#think();
      case 'content':
        return this.#speak();
      case 'json':
        return this.#readJson();
      case 'body':
        return this.#readBody();
      case 'value':
        return this.#readValue();
    }
  }

  #think(): boolean {
    const at = this.#text.indexOf('<', this.#from);
    if (at < 0) return this.#saySafe('reasoning', this.#text.length);
    const close = thinkCloses.find((tag) => this.#text.startsWith(tag, at));
    if (close !== undefined) {
      this.#endThinking(at);
      return this.#enter('content', at + close.length);
    }
    // A function without its wrapper is no reason to end thinking.
    const start = this.#text.startsWith('<function=', at) ? 'no' : this.#callStart(at);
    if (start === 'wait' || cutOff(this.#text, at, ['</thinking>', '<think>'], this.#ending)) {
      return this.#saySafe('reasoning', at);
    }
    if (start !== 'no') {
      this.#endThinking(at);
      return this.#startCall(start, at);
    }
    const repeatsOpening =
      !this.#spoke && skipBlank(this.#text, 0) === at && this.#text.startsWith('<think>', at);
    if (repeatsOpening) return this.#enter('thinking', at + '<think>'.length);
    this.#from = at + 1;
    return true;
  }

  #endThinking(at: number): void {
    this.#say('reasoning', this.#text.slice(0, at));
    this.#blanks = '';
    this.#spoke = false;
    this.#skipsLines = true;
  }

  #speak(): boolean {
    const at = this.#text.indexOf('<', this.#from);
    if (at < 0) return this.#saySafe('content', this.#text.length);
    const start = this.#callStart(at);
    const mayThink = !this.#sawThinking && !this.#spoke && skipBlank(this.#text, 0) === at;
    if (start === 'wait' || (mayThink && cutOff(this.#text, at, ['<think>'], this.#ending))) {
      return this.#saySafe('content', at);
    }
    if (start !== 'no') {
      this.#say('content', this.#text.slice(0, at));
      return this.#startCall(start, at);
    }
    if (mayThink && this.#text.startsWith('<think>', at)) {
      this.#sawThinking = true;
      this.#blanks = '';
      return this.#enter('thinking', at + '<think>'.length);
    }
    const looksLikeCall = /^<(?:tool_call>|function=)/.test(this.#text.slice(at, at + '<tool_call>'.length));
    if (this.#drops && looksLikeCall) {
      // What could not be read as a call is content, and so is what follows it.
      this.#cut(at);
      this.#drops = false;
      return true;
    }
    this.#from = at + 1;
    return true;
  }

  #callStart(at: number): CallStart {
    if (!this.#parsesCalls) return 'no';
    const start = callStart(this.#text, at, this.#ending);
    const hopeless = typeof start !== 'string' && start.kind === 'json' && this.#openEnds >= mostOpenEnds;
    return hopeless ? 'no' : start;
  }

  /** Says the text before `to`, which holds no tag, and waits. */
  #saySafe(type: 'reasoning' | 'content', to: number): false {
    this.#say(type, this.#text.slice(0, to));
    this.#cut(to);
    return false;
  }

  #say(type: 'reasoning' | 'content', text: string): void {
    if (type === 'content' && this.#drops) return;
    const end = text.trimEnd().length;
    if (end === 0) {
      this.#blanks += text;
      return;
    }
    const said = this.#takeBlanks() + text.slice(0, end);
    this.#add(type, this.#spoke || type === 'content' ? said : said.trimStart());
    this.#spoke = true;
    this.#blanks = text.slice(end);
  }

  #takeBlanks(): string {
    const blanks = this.#blanks;
    this.#blanks = '';
    return blanks;
  }

  #startCall(start: Exclude<CallStart, string>, at: number): boolean {
    this.#sawThinking = true;
    if (start.kind === 'function') {
      this.#openCall(start.name);
      return this.#enter('body', start.end);
    }
    this.#json = { extent: new JsonExtent(), lead: this.#text.slice(at, start.at) };
    return this.#enter('json', start.at);
  }

  #openCall(name: string): void {
    this.#blanks = '';
    this.#call = new CallBuilder({
      index: this.#callCount++,
      id: this.#newId(),
      name,
      types: this.#types,
      events: this.#events,
    });
    this.#junk = '';
  }

  #closeCall(consumed: number): boolean {
    this.#settleJunk();
    this.#call?.close();
    this.#call = null;
    this.#drops = true;
    return this.#enter('content', consumed);
  }

  /** Text inside a call that belongs to no parameter: arguments written as JSON, or else content. */
  #settleJunk(): void {
    const junk = this.#junk.trim();
    this.#junk = '';
    if (junk !== '' && !this.#call?.takeJson(parseLoose(junk))) this.#add('content', junk);
  }

  #readBody(): boolean {
    const at = this.#junk === '' ? skipBlank(this.#text, 0) : 0;
    this.#cut(at);
    const text = this.#text;
    if (text === '') return this.#ending === 'ended' && this.#closeCall(0);
    if (cutOff(text, 0, bodyTags, this.#ending)) return false;
    const close = bodyCloses.find((tag) => text.startsWith(tag));
    if (close === '</parameter>') return this.#enter('body', close.length);
    if (close !== undefined) return this.#closeCall(close.length);
    const parameter = tagName(text, 0, '<parameter=', this.#ending);
    const next = parameter === 'no' ? callStart(text, 0, this.#ending) : 'no';
    if (parameter === 'wait' || next === 'wait') return false;
    if (next !== 'no') return this.#closeCall(0);
    if (parameter !== 'no') {
      this.#settleJunk();
      this.#call?.startValue(parameter.name);
      return this.#enter('value', parameter.end);
    }
    const end = text.indexOf('<', 1);
    this.#junk += end < 0 ? text : text.slice(0, end);
    this.#cut(end < 0 ? text.length : end);
    return true;
  }

  #readValue(): boolean {
    const call = this.#call as CallBuilder;
    if (this.#text === '' && this.#ending === 'open') return false;
    if (call.takesLeadingNewline() && this.#text.startsWith('\n')) this.#cut(1);
    const found = findValueEnd(this.#text, this.#from, {
      ending: this.#ending,
      isNext: (key) => call.mayFollow(key),
    });
    if (found.kind === 'end' || this.#ending === 'ended') {
      const { end, resume } =
        found.kind === 'end' ? found : { end: this.#text.length, resume: this.#text.length };
      call.endValue(this.#text.slice(0, end));
      return this.#enter('body', resume);
    }
    const taken = call.streamValue(this.#text.slice(0, found.safe));
    this.#cut(taken);
    this.#from = found.safe - taken;
    return false;
  }

  #readJson(): boolean {
    const { extent, lead } = this.#json as { extent: JsonExtent; lead: string };
    const found = extent.scan(this.#text, this.#ending);
    if (found === null) {
      if (this.#ending === 'open') return false;
      this.#openEnds++;
      return this.#refuseJson(lead, 0);
    }
    // Models forget closing brackets more often than anything else.
    const repaired = this.#text.slice(0, found.end) + '}'.repeat(found.depth);
    const call = readJsonCall(repaired);
    if (call === null) return this.#refuseJson(lead, found.end);
    this.#json = null;
    this.#openCall(call.name);
    this.#call?.takeText(call.args);
    return this.#closeCall(found.end);
  }

  #refuseJson(lead: string, end: number): boolean {
    this.#json = null;
    this.#drops = false;
    this.#say('content', lead + this.#text.slice(0, end));
    return this.#enter('content', end);
  }

  #enter(state: State, consumed: number): true {
    this.#state = state;
    this.#cut(consumed);
    return true;
  }

  #cut(consumed: number): void {
    if (consumed > 0) this.#text = this.#text.slice(consumed);
    this.#from = 0;
  }

  #add(type: 'reasoning' | 'content', whole: string): void {
    const skips = type === 'content' && this.#skipsLines && !this.#spoke;
    const text = skips ? whole.replace(/^[\r\n]+/, '') : whole;
    if (text === '') return;
    const last = this.#events.at(-1);
    if (last?.type === type) this.#events[this.#events.length - 1] = { type, text: last.text + text };
    else this.#events.push({ type, text });
  }

  #take(): ReaderEvent[] {
    return this.#events.splice(0);
  }
}
