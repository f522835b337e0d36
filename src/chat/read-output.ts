/** The whole message at once, by the same reader that streams. */

import type { ReaderEvent } from './call-builder.ts';
import { parseLossless } from './json-parse.ts';
import { stringifySpaced } from './json-stringify.ts';
import { OutputReader, type OutputReaderOptions } from './output-reader.ts';

export interface ReadToolCall {
  readonly id: string;
  readonly name: string;
  /** JSON text of an object. */
  readonly arguments: string;
}

export interface ReadMessage {
  readonly reasoning: string;
  readonly content: string;
  readonly toolCalls: readonly ReadToolCall[];
}

export function readOutput(text: string, options: OutputReaderOptions): ReadMessage {
  const reader = new OutputReader(options);
  const first = reader.push(text);
  return collectEvents([...first, ...reader.finish().events]);
}

/** Joins events to a message; of a parameter that was written twice the last stays. */
export function collectEvents(events: readonly ReaderEvent[]): ReadMessage {
  let reasoning = '';
  let content = '';
  const calls: { id: string; name: string; arguments: string }[] = [];
  for (const event of events) {
    if (event.type === 'reasoning') reasoning += event.text;
    else if (event.type === 'content') content += event.text;
    else if (event.type === 'tool-start') calls.push({ id: event.id, name: event.name, arguments: '' });
    else if (event.type === 'tool-args') {
      const call = calls[event.index];
      if (call) call.arguments += event.fragment;
    }
  }
  const toolCalls = calls.map((call) => ({
    ...call,
    arguments: stringifySpaced(parseLossless(call.arguments)),
  }));
  return { reasoning, content, toolCalls };
}
