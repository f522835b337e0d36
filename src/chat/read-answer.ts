/** The whole message at once, by the same reader that streams. */
import { present } from '../util/index.ts';
import type { ReaderEvent } from './call-builder.ts';
import { OutputReader, type OutputReaderOptions } from './output-reader.ts';

export interface ReadToolCall {
  readonly name: string;
  /** JSON text of an object where the call is complete; else the beginning of one, which no parser takes. */
  readonly arguments: string;
  readonly complete: boolean;
}

export interface ReadMessage {
  readonly reasoning: string;
  readonly content: string;
  readonly toolCalls: readonly ReadToolCall[];
}

export interface ReadAnswerOptions extends OutputReaderOptions {
  /** The model ended the answer itself (default); false: a limit, a stop string or the client cut it. */
  readonly ended?: boolean | undefined;
}

/** What `text` says, all that a model wrote for one answer. Never throws, whatever the text. */
export function readAnswer(text: string, options: ReadAnswerOptions): ReadMessage {
  const reader = new OutputReader(options);
  const first = reader.push(text);
  return collectEvents([...first, ...reader.finish(options.ended === false ? 'cut' : 'ended').events]);
}

/** Joins events to a message. */
export function collectEvents(events: readonly ReaderEvent[]): ReadMessage {
  let reasoning = '';
  let content = '';
  const toolCalls: { name: string; arguments: string; complete: boolean }[] = [];
  for (const event of events) {
    if (event.type === 'reasoning') reasoning += event.text;
    else if (event.type === 'content') content += event.text;
    else if (event.type === 'tool-start')
      toolCalls.push({ name: event.name, arguments: '', complete: false });
    else if (event.type === 'tool-args') present(toolCalls[event.index], 'call').arguments += event.fragment;
    else if (event.type === 'tool-end') present(toolCalls[event.index], 'call').complete = event.complete;
  }
  return { reasoning, content, toolCalls };
}
