/**
 * The deltas of an answer as items of the Responses API, in the order in which the model wrote them, and the events
 * that tell of them. Items of one answer never overlap: one ends before the next begins.
 */
import { randomUUID } from 'node:crypto';
import type { JsonObject, JsonValue } from '../../chat/index.ts';
import type { Delta, TextLogprob } from '../../completion/index.ts';
import { CustomInput } from './custom-input.ts';
import { sealReasoning } from './reasoning.ts';
import type { NamedTool, ToolTable } from './tools.ts';

/** An event without its sequence number. */
export interface ItemEvent {
  readonly type: string;
  readonly [field: string]: JsonValue;
}

export interface OutputOptions {
  readonly byName: ToolTable['byName'];
  readonly sealsReasoning: boolean;
  readonly hasLogprobs: boolean;
}

type Status = 'completed' | 'incomplete';

/** The item that is being written. */
interface OpenItem {
  readonly id: string;
  readonly index: number;
  /** The whole item, with this status. */
  item(status: Status | 'in_progress'): JsonObject;
  /** Events between the last delta and the end of the item. */
  ending(status: Status): ItemEvent[];
}

interface OpenText extends OpenItem {
  readonly kind: 'reasoning' | 'content';
  add(text: string, logprobs: readonly TextLogprob[]): ItemEvent;
}

interface OpenCall extends OpenItem {
  readonly kind: 'call';
  add(fragment: string): ItemEvent[];
}

const newId = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

export class Output {
  readonly #options: OutputOptions;
  readonly #items: JsonObject[] = [];
  #open: OpenText | OpenCall | null = null;
  /** Of tokens whose text has not come yet. */
  #logprobs: TextLogprob[] = [];

  constructor(options: OutputOptions) {
    this.#options = options;
  }

  /** Items so far; the one that is being written is left open. */
  get items(): readonly JsonObject[] {
    return this.#open === null ? this.#items : [...this.#items, this.#open.item('in_progress')];
  }

  add(delta: Delta): ItemEvent[] {
    switch (delta.type) {
      case 'reasoning':
      case 'content':
        return this.#text(delta.type, delta.text);
      case 'logprobs':
        this.#logprobs.push(...delta.tokens);
        return [];
      case 'tool-start': {
        const tool = this.#options.byName.get(delta.name);
        const named: NamedTool = tool ?? { kind: 'function', name: delta.name, namespace: null };
        const open = named.kind === 'custom' ? openCustomCall : openFunctionCall;
        return this.#begin((index) => open({ callId: delta.id, index, named })).events;
      }
      case 'tool-args':
        return this.#open?.kind === 'call' ? this.#open.add(delta.fragment) : [];
      case 'tool-end':
        return this.#end(delta.complete ? 'completed' : 'incomplete');
      case 'finish':
        return this.#end(delta.reason === 'length' ? 'incomplete' : 'completed');
      default:
        return [];
    }
  }

  #text(kind: 'reasoning' | 'content', text: string): ItemEvent[] {
    if (this.#open?.kind === kind) return [this.#open.add(text, this.#takeLogprobs(null))];
    const make = kind === 'reasoning' ? openReasoning : openMessage;
    const { open, events } = this.#begin((index) => make(index, this.#options));
    return [...events, ...opening(open), open.add(text, this.#takeLogprobs(text))];
  }

  /** Of all tokens since the last text, or those at the end that `text` is made of: tags before it are no part of it. */
  #takeLogprobs(text: string | null): readonly TextLogprob[] {
    const taken = this.#logprobs;
    this.#logprobs = [];
    if (text === null) return taken;
    let from = taken.length;
    let length = 0;
    while (from > 0 && length < text.length) length += taken[--from]?.token.length ?? 0;
    return taken.slice(from);
  }

  #begin<T extends OpenText | OpenCall>(make: (index: number) => T): { open: T; events: ItemEvent[] } {
    const before = this.#end('completed');
    const { length: index } = this.#items;
    const open = make(index);
    this.#open = open;
    const item = open.item('in_progress');
    const added = { type: 'response.output_item.added', output_index: index, item };
    return { open, events: [...before, added] };
  }

  #end(status: Status): ItemEvent[] {
    const open = this.#open;
    this.#open = null;
    if (open === null) return [];
    const item = open.item(status);
    this.#items.push(item);
    const done = { type: 'response.output_item.done', output_index: open.index, item };
    return [...open.ending(status), done];
  }
}

/** The part that the texts of an item go into. */
function opening({ kind, id, index }: OpenText): ItemEvent[] {
  const at = { item_id: id, output_index: index };
  return kind === 'reasoning'
    ? [
        {
          type: 'response.reasoning_summary_part.added',
          ...at,
          summary_index: 0,
          part: { type: 'summary_text', text: '' },
        },
      ]
    : [
        {
          type: 'response.content_part.added',
          ...at,
          content_index: 0,
          part: { type: 'output_text', text: '', annotations: [], logprobs: [] },
        },
      ];
}

/** What the model thought, in full, as the summary: the one place that every client reads. */
function openReasoning(index: number, { sealsReasoning }: OutputOptions): OpenText {
  const id = newId('rs');
  const at = { item_id: id, output_index: index, summary_index: 0 };
  let whole = '';
  const part = (): JsonObject => ({ type: 'summary_text', text: whole });
  return {
    kind: 'reasoning',
    id,
    index,
    add: (text) => {
      whole += text;
      return { type: 'response.reasoning_summary_text.delta', ...at, delta: text };
    },
    item: (status) => ({
      id,
      type: 'reasoning',
      summary: whole === '' ? [] : [part()],
      ...(sealsReasoning && status !== 'in_progress' ? { encrypted_content: sealReasoning(whole) } : {}),
      status,
    }),
    ending: () => [
      { type: 'response.reasoning_summary_text.done', ...at, text: whole },
      { type: 'response.reasoning_summary_part.done', ...at, part: part() },
    ],
  };
}

function openMessage(index: number, { hasLogprobs }: OutputOptions): OpenText {
  const id = newId('msg');
  const at = { item_id: id, output_index: index, content_index: 0 };
  let whole = '';
  const all: JsonObject[] = [];
  const part = (): JsonObject => ({
    type: 'output_text',
    text: whole,
    annotations: [],
    logprobs: hasLogprobs ? [...all] : [],
  });
  return {
    kind: 'content',
    id,
    index,
    add: (text, logprobs) => {
      whole += text;
      const told = logprobs.map(logprobBody);
      all.push(...told);
      return { type: 'response.output_text.delta', ...at, delta: text, logprobs: told };
    },
    item: (status) => ({
      id,
      type: 'message',
      status,
      role: 'assistant',
      content: whole === '' ? [] : [part()],
    }),
    ending: () => [
      { type: 'response.output_text.done', ...at, text: whole, logprobs: hasLogprobs ? [...all] : [] },
      { type: 'response.content_part.done', ...at, part: part() },
    ],
  };
}

/** JSON has no -Infinity; OpenAI's least log-probability stands for it. */
const finite = (logprob: number): number => Math.max(logprob, -9999);

function logprobBody({ token, bytes, logprob, top }: TextLogprob): JsonObject {
  return {
    token,
    bytes,
    logprob: finite(logprob),
    top_logprobs: top.map((other) => ({ ...other, logprob: finite(other.logprob) })),
  };
}

interface CallPlace {
  readonly callId: string;
  readonly index: number;
  readonly named: NamedTool;
}

const nameOf = ({ name, namespace }: NamedTool): JsonObject =>
  namespace === null ? { name } : { name, namespace };

function openFunctionCall({ callId, index, named }: CallPlace): OpenCall {
  const id = newId('fc');
  const at = { item_id: id, output_index: index };
  let whole = '';
  return {
    kind: 'call',
    id,
    index,
    add: (fragment) => {
      whole += fragment;
      return fragment === ''
        ? []
        : [{ type: 'response.function_call_arguments.delta', ...at, delta: fragment }];
    },
    item: (status) => ({
      id,
      type: 'function_call',
      status,
      arguments: whole,
      call_id: callId,
      ...nameOf(named),
    }),
    ending: () => [
      { type: 'response.function_call_arguments.done', ...at, name: named.name, arguments: whole },
    ],
  };
}

function openCustomCall({ callId, index, named }: CallPlace): OpenCall {
  const id = newId('ctc');
  const at = { item_id: id, output_index: index };
  const input = new CustomInput();
  const delta = (text: string): ItemEvent[] =>
    text === '' ? [] : [{ type: 'response.custom_tool_call_input.delta', ...at, delta: text }];
  return {
    kind: 'call',
    id,
    index,
    add: (fragment) => delta(input.push(fragment)),
    item: (status) => ({
      id,
      type: 'custom_tool_call',
      status,
      call_id: callId,
      ...nameOf(named),
      input: input.text,
    }),
    ending: (status) => [
      ...(status === 'completed' ? delta(input.finish()) : []),
      { type: 'response.custom_tool_call_input.done', ...at, input: input.text },
    ],
  };
}
