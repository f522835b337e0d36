/**
 * Reads what a model writes: reasoning, content and tool calls of the Qwen XML dialect (and Hermes JSON), as a stream.
 * A call is announced as soon as its name is known; string arguments flow while they are written.
 *
 * Invariants: the message made from the events does not depend on how the text was cut into chunks; the fragments of a
 * complete call join to a JSON object and those of any other stay open; only tools of the request are called; what can
 * not be read as a call stays text where it stands.
 */
import { randomUUID } from 'node:crypto';
import { CallBuilder, type ReaderEvent } from './call-builder.ts';
import {
  type CallContext,
  type CallOpening,
  type CallStart,
  callStart,
  closingTag,
  cutOff,
  type Ending,
  isTagPiece,
  parameterTag,
  skipBlank,
} from './call-tags.ts';
import { JsonExtent } from './json-extent.ts';
import type { JsonValue } from './json-value.ts';
import { LineTracker } from './line-tracker.ts';
import { longestQuotation, quotationEnd, thinkCloses } from './quotation.ts';
import { Speech, type SpeechType } from './speech.ts';
import { ValueReader } from './value-reader.ts';
import { parseLoose, readJsonCall, ToolTypes } from './value-type.ts';

export interface OutputReaderOptions {
  /** The text starts inside a think block (`opensThinking` of the prompt). */
  readonly opensThinking: boolean;
  /** 'text': calls are content. Default 'parse'. */
  readonly toolCalls?: 'parse' | 'text';
  /** The tools of the request: only they are called, and their schemas say how argument text becomes JSON. */
  readonly tools?: readonly JsonValue[] | null | undefined;
  /** Calls were held to the format while they were written: what only resembles it is text. Default false. */
  readonly exactCalls?: boolean;
  /** Makes the id of a call. */
  readonly newId?: () => string;
}

/** Why no more text comes: the model ended its answer, or something cut it (a limit, a stop string, the client). */
export type OutputEnd = 'ended' | 'cut';

type State = 'thinking' | 'content' | 'quoted' | 'json' | 'body' | 'value' | 'behind';

const mostOpenEnds = 8;

export class OutputReader {
  readonly #parsesCalls: boolean;
  readonly #exactCalls: boolean;
  readonly #types: ToolTypes;
  readonly #newId: () => string;
  readonly #lines = new LineTracker();
  #state: State;
  #ending: Ending = 'open';
  #end: OutputEnd = 'ended';
  #text = '';
  readonly #events: ReaderEvent[] = [];
  readonly #speech = new Speech(this.#events);
  #callCount = 0;
  #cutCalls = 0;
  /** A think block was open: no other may begin. */
  #sawThinking: boolean;
  /** Where the search for a tag goes on. */
  #from = 0;
  #call: CallBuilder | null = null;
  #value: ValueReader | null = null;
  #junk = '';
  /** Something in the call that looked like a tag was not understood. */
  #broken = false;
  /** Calls as JSON that the end of the output left open; each costs a pass over the rest, so they are limited. */
  #openEnds = 0;
  #json: { readonly extent: JsonExtent; readonly lead: string } | null = null;
  /** What a call that is held back stands in. */
  #quotedIn: 'thinking' | 'fence' = 'thinking';

  constructor(options: OutputReaderOptions) {
    this.#state = options.opensThinking ? 'thinking' : 'content';
    this.#sawThinking = options.opensThinking;
    this.#types = new ToolTypes(options.tools ?? []);
    this.#exactCalls = options.exactCalls === true;
    this.#parsesCalls = options.toolCalls !== 'text' && this.#types.size > 0;
    this.#newId = options.newId ?? (() => `call_${randomUUID().replaceAll('-', '')}`);
  }

  /** Calls announced so far. */
  get callCount(): number {
    return this.#callCount;
  }

  /** What comes next is thinking, as far as is known. */
  get isThinking(): boolean {
    return this.#state === 'thinking' || (this.#state === 'quoted' && this.#quotedIn === 'thinking');
  }

  push(text: string): ReaderEvent[] {
    this.#text += text;
    return this.#run();
  }

  /** The text is over: the rest of the events, and whether there were calls, all of them complete. */
  finish(end: OutputEnd): { readonly events: ReaderEvent[]; readonly calledTools: boolean } {
    this.#ending = 'ended';
    this.#end = end;
    this.#run();
    if (this.#state === 'content') this.#speech.finish();
    return { events: this.#take(), calledTools: this.#callCount > 0 && this.#cutCalls === 0 };
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
      case 'quoted':
        return this.#holdQuote();
      case 'json':
        return this.#readJson();
      case 'body':
        return this.#readBody();
      case 'value':
        return this.#readValue();
      case 'behind':
        return this.#readBehind();
    }
  }

  #think(): boolean {
    const at = this.#text.indexOf('<', this.#from);
    if (at < 0) return this.#saySafe('reasoning', this.#text.length);
    const close = thinkCloses.find((tag) => this.#text.startsWith(tag, at));
    if (close !== undefined) {
      this.#endThinking(at);
      this.#enter('content', at + close.length);
      this.#lines.restart();
      return true;
    }
    // A function without its wrapper is no reason to end thinking.
    const start = this.#text.startsWith('<tool_c', at) ? this.#callStart(at) : 'no';
    if (start === 'wait' || cutOff(this.#text, at, ['</thinking>', '<think>', '<tool_c'], this.#ending)) {
      return this.#saySafe('reasoning', at);
    }
    if (typeof start !== 'string') {
      if (start.kind !== 'quoted') return this.#holdBack('thinking', at);
      this.#from = start.end;
      return true;
    }
    const repeatsOpening =
      !this.#speech.spoke && skipBlank(this.#text, 0) === at && this.#text.startsWith('<think>', at);
    if (repeatsOpening) return this.#enter('thinking', at + '<think>'.length);
    this.#from = at + 1;
    return true;
  }

  #endThinking(at: number): void {
    this.#speech.say('reasoning', this.#text.slice(0, at));
    this.#speech.endThinking();
  }

  #speak(): boolean {
    const at = this.#text.indexOf('<', this.#from);
    if (at < 0) return this.#saySafe('content', this.#text.length);
    const start = this.#callStart(at);
    const mayThink = !this.#sawThinking && !this.#speech.spoke && skipBlank(this.#text, 0) === at;
    const mayBe = mayThink ? ['<think>', ...thinkCloses] : thinkCloses;
    if (start === 'wait' || cutOff(this.#text, at, mayBe, this.#ending)) return this.#saySafe('content', at);
    if (typeof start !== 'string' && start.kind === 'quoted') {
      this.#from = start.end;
      return true;
    }
    if (start !== 'no') {
      if (this.#lines.fence !== null) return this.#holdBack('fence', at);
      this.#speech.say('content', this.#text.slice(0, at));
      return this.#startCall(start, at);
    }
    if (mayThink && this.#text.startsWith('<think>', at)) {
      this.#sawThinking = true;
      this.#speech.dropBlanks();
      return this.#enter('thinking', at + '<think>'.length);
    }
    const stray = thinkCloses.find((tag) => this.#text.startsWith(tag, at));
    if (stray !== undefined && this.#lines.startsLine && this.#lines.fence === null) {
      this.#speech.say('content', this.#text.slice(0, at));
      if (!this.#speech.spoke) this.#speech.endThinking();
      return this.#enter('content', at + stray.length);
    }
    this.#from = at + 1;
    return true;
  }

  #callStart(at: number): CallStart {
    if (!this.#parsesCalls) return 'no';
    this.#lines.to(this.#text, at);
    const start = callStart(this.#text, at, this.#callContext(this.#lines));
    const hopeless = typeof start !== 'string' && start.kind === 'json' && this.#openEnds >= mostOpenEnds;
    return hopeless ? 'no' : start;
  }

  /** Says the text before `to`, which holds no tag, and waits. */
  #saySafe(type: SpeechType, to: number): false {
    this.#speech.say(type, this.#text.slice(0, to));
    this.#cut(to);
    return false;
  }

  /** In thinking and in a code fence a call is a quotation, unless the output ends with it. */
  #holdBack(where: 'thinking' | 'fence', at: number): boolean {
    this.#speech.say(where === 'thinking' ? 'reasoning' : 'content', this.#text.slice(0, at));
    this.#quotedIn = where;
    return this.#enter('quoted', at);
  }

  #holdQuote(): boolean {
    const shown = this.#text.slice(0, longestQuotation);
    const ended = this.#ending === 'ended' && shown.length === this.#text.length;
    const fence = this.#quotedIn === 'fence' ? this.#lines.fence : null;
    const close = quotationEnd(shown, this.#from, { fence, ended });
    if (close >= 0) return this.#sayQuote(close);
    const lastLine = shown.lastIndexOf('\n');
    if (shown.length < this.#text.length) return this.#sayQuote(lastLine > 0 ? lastLine : shown.length);
    this.#from = Math.max(0, lastLine);
    if (this.#ending === 'open') return false;
    if (this.#end === 'cut') return this.#sayQuote(shown.length);
    if (this.#quotedIn === 'thinking') this.#endThinking(0);
    this.#lines.restart();
    return this.#startCall(this.#callStart(0) as CallOpening, 0);
  }

  #sayQuote(to: number): boolean {
    const type = this.#quotedIn === 'thinking' ? 'reasoning' : 'content';
    this.#lines.to(this.#text, to);
    this.#speech.say(type, this.#text.slice(0, to));
    return this.#enter(this.#quotedIn === 'thinking' ? 'thinking' : 'content', to);
  }

  #startCall(start: CallOpening, at: number): boolean {
    this.#sawThinking = true;
    if (start.kind === 'function') {
      this.#openCall(start.name);
      return this.#enter('body', start.end);
    }
    this.#json = { extent: new JsonExtent(), lead: this.#text.slice(at, start.at) };
    return this.#enter('json', start.at);
  }

  #openCall(name: string): void {
    this.#speech.dropBlanks();
    this.#call = new CallBuilder({
      index: this.#callCount++,
      id: this.#newId(),
      name,
      types: this.#types,
      events: this.#events,
    });
    this.#junk = '';
    this.#broken = false;
  }

  #closeCall(consumed: number, complete: boolean): boolean {
    this.#settleJunk();
    const whole = complete && !this.#broken;
    if (!whole) this.#cutCalls++;
    this.#call?.close(whole);
    this.#call = null;
    return this.#enter('behind', consumed);
  }

  /** Text inside a call that belongs to no parameter: arguments written as JSON, or else content. */
  #settleJunk(): void {
    const junk = this.#junk.trim();
    this.#junk = '';
    if (junk === '' || this.#call?.takeJson(parseLoose(junk))) return;
    if (junk.startsWith('<')) this.#broken = true;
    this.#speech.sayApart(junk);
  }

  #readBody(): boolean {
    const at = this.#junk === '' ? skipBlank(this.#text, 0) : 0;
    this.#cut(at);
    const text = this.#text;
    const call = this.#call as CallBuilder;
    if (text === '') return this.#ending === 'ended' && this.#endInBody();
    const close = closingTag(text, 0, this.#ending);
    if (close === 'wait') return false;
    if (close !== 'no' && (close.closes === 'parameter' || close.closes === 'think'))
      return this.#enter('body', close.end);
    if (close !== 'no') return this.#closeCall(close.end, true);
    const parameter = parameterTag(text, 0, this.#ending, (key) => call.isDeclared(key));
    const next = parameter === 'no' ? this.#nextCall() : 'no';
    if (parameter === 'wait' || next === 'wait') return false;
    if (next !== 'no') return this.#closeCall(0, true);
    if (parameter !== 'no') {
      this.#settleJunk();
      this.#value = new ValueReader(call, parameter.name, (text) => this.#speech.sayApart(text));
      return this.#enter('value', parameter.end);
    }
    const end = text.indexOf('<', 1);
    this.#junk += end < 0 ? text : text.slice(0, end);
    this.#cut(end < 0 ? text.length : end);
    return true;
  }

  /** Inside a call the next one is known wherever it stands. */
  #nextCall(): CallStart {
    return callStart(this.#text, 0, this.#callContext({ startsLine: true, before: '\n' }));
  }

  #callContext({ startsLine, before }: Pick<CallContext, 'startsLine' | 'before'>): CallContext {
    const isTool = (name: string): boolean => this.#types.has(name);
    return { ending: this.#ending, startsLine, before, isTool, exact: this.#exactCalls };
  }

  /** A model that ends its answer behind a parameter has forgotten the closing tags; before one it has not called. */
  #endInBody(): boolean {
    if (isTagPiece(this.#junk.trim())) this.#junk = '';
    this.#settleJunk();
    return this.#closeCall(0, this.#end === 'ended' && this.#call?.hasArguments === true);
  }

  #readValue(): boolean {
    const value = this.#value as ValueReader;
    const { taken, ended } = value.read(this.#text, this.#ending);
    if (ended) return this.#enter('body', taken);
    this.#cut(taken);
    if (this.#ending === 'open') return false;
    value.cutOff(this.#text);
    return this.#closeCall(this.#text.length, false);
  }

  /** Behind a call: closing tags that are left over go, whatever else follows is content. */
  #readBehind(): boolean {
    const at = skipBlank(this.#text, 0);
    if (at >= this.#text.length && this.#ending === 'open') return false;
    const close = closingTag(this.#text, at, this.#ending);
    if (close === 'wait') return false;
    if (close !== 'no') return this.#enter('behind', close.end);
    const isLast = this.#ending === 'ended' && this.#text.startsWith('</', at);
    if (isLast && isTagPiece(this.#text.slice(at))) return this.#enter('behind', this.#text.length);
    this.#speech.endCall(at === 0 && this.#text !== '');
    this.#lines.restart();
    return this.#enter('content', 0);
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
    if (call === null || !this.#types.has(call.name)) return this.#refuseJson(lead, found.end);
    this.#json = null;
    this.#openCall(call.name);
    this.#call?.takeJson(call.args);
    return this.#closeCall(found.end, true);
  }

  #refuseJson(lead: string, end: number): boolean {
    this.#json = null;
    this.#speech.say('content', lead + this.#text.slice(0, end));
    return this.#enter('content', end);
  }

  #enter(state: State, consumed: number): true {
    this.#state = state;
    this.#cut(consumed);
    return true;
  }

  #cut(consumed: number): void {
    if (this.#call === null) this.#lines.to(this.#text, consumed);
    this.#lines.cut(consumed);
    if (consumed > 0) this.#text = this.#text.slice(consumed);
    this.#from = 0;
  }

  #take(): ReaderEvent[] {
    return this.#events.splice(0);
  }
}
