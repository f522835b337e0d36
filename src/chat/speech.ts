/** Reasoning and content on their way to events: where blanks belong, which are layout. */
import type { ReaderEvent } from './call-builder.ts';

export type SpeechType = 'reasoning' | 'content';

export class Speech {
  readonly #events: ReaderEvent[];
  /** Blanks at the end of what was said: said with what follows, dropped before a call. */
  #blanks = '';
  #spoke = false;
  /** Empty lines between a think block and the content are layout. */
  #skipsLines = false;
  #afterCall = false;

  /** `events`: where they go. */
  constructor(events: ReaderEvent[]) {
    this.#events = events;
  }

  /** Something was said since the think block. */
  get spoke(): boolean {
    return this.#spoke;
  }

  say(type: SpeechType, text: string): void {
    const end = text.trimEnd().length;
    if (end === 0) {
      this.#blanks += text;
      return;
    }
    const said = this.#blanks + text.slice(0, end);
    const leads = !this.#spoke && (type === 'reasoning' || this.#afterCall);
    this.#add(type, leads ? said.trimStart() : said);
    this.#spoke = true;
    this.#blanks = text.slice(end);
  }

  /** Says what was found in a call as content of its own. */
  sayApart(text: string): void {
    this.#blanks = this.#spoke ? '\n' : '';
    this.say('content', text);
    this.#blanks = '';
  }

  dropBlanks(): void {
    this.#blanks = '';
  }

  endThinking(): void {
    this.#blanks = '';
    this.#spoke = false;
    this.#skipsLines = true;
  }

  /** What follows is parted from what was said before the call, with a line break if nothing else parts it. */
  endCall(textFollows: boolean): void {
    this.#afterCall = true;
    this.#blanks = textFollows && this.#spoke ? '\n' : '';
  }

  /** The answer is over; without a call its last blanks are content. */
  finish(): void {
    if (!this.#afterCall) this.#add('content', this.#blanks);
    this.#blanks = '';
  }

  #add(type: SpeechType, whole: string): void {
    const skips = type === 'content' && this.#skipsLines && !this.#spoke;
    const text = skips ? whole.replace(/^[\r\n]+/, '') : whole;
    if (text === '') return;
    const last = this.#events.at(-1);
    if (last?.type === type) this.#events[this.#events.length - 1] = { type, text: last.text + text };
    else this.#events.push({ type, text });
  }
}
