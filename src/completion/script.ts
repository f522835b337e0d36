/**
 * A model that says what a file says, behind the real server: for tests of clients and agents. The file holds answers;
 * each request takes the first one that is left and whose conditions its conversation meets.
 */
import { readFileSync } from 'node:fs';
import { LineCounter, parseDocument } from 'yaml';
import { z } from 'zod';
import { type ChatMessage, type ChatTemplate, type JsonValue, loadTemplate } from '../chat/index.ts';
import { type GenerateRequest, type ScriptedAnswer, ScriptedEngine } from '../engine/index.ts';
import { loadTokenizer, type Tokenizer } from '../tokenizer/index.ts';
import { UserError } from '../util/index.ts';
import { Completion, type CompletionParts } from './complete.ts';
import { stopIdsOf } from './open.ts';

const texts = z.union([z.string(), z.array(z.string())]).transform((value) => [value].flat());

const pattern = z.string().superRefine((text, context) => {
  try {
    new RegExp(text, 'u');
  } catch (error) {
    context.addIssue({ code: 'custom', message: (error as Error).message });
  }
});

const entrySchema = z
  .strictObject({
    when: z
      .strictObject({
        /** Of the last message. */
        role: z.enum(['user', 'tool', 'assistant', 'system']).optional(),
        /** All of these stand in the last message. */
        contains: texts.optional(),
        /** A regular expression for the last message. */
        matches: pattern.optional(),
        /** All of these stand somewhere in the prompt, tools included. */
        prompt: texts.optional(),
      })
      .optional(),
    thinking: z.string().optional(),
    text: z.string().optional(),
    calls: z
      .array(
        z.strictObject({ name: z.string().min(1), arguments: z.record(z.string(), z.json()).default({}) }),
      )
      .optional(),
    /** Instead of the three above: the model's words in its own format, as they are. */
    raw: z.string().optional(),
    /** How often this answer is given. */
    times: z.union([z.number().int().min(1), z.literal('always')]).default(1),
    /** Before the first token, ms. */
    delay: z.number().min(0).optional(),
    /** Between tokens, ms. */
    gap: z.number().min(0).optional(),
    /** The engine fails after this many tokens. */
    fail_after: z.number().int().min(0).optional(),
  })
  .refine(
    ({ raw, text, calls, thinking }) =>
      (raw === undefined) === [text, calls, thinking].some((one) => one !== undefined),
    {
      message: 'an answer has either raw, or any of thinking, text and calls',
    },
  );

type Entry = z.infer<typeof entrySchema>;

export interface ScriptOptions
  extends Partial<Omit<CompletionParts, 'engine' | 'tokenizer' | 'template' | 'stopIds'>> {
  /** File of answers: a YAML list, or JSON lines where its name ends in `.jsonl`. */
  readonly script: string;
  /** Whose tokenizer and template are used. */
  readonly folder: string;
  readonly contextTokens?: number;
  readonly maxSequences?: number;
  readonly maxWaiting?: number;
}

/** Throws UserError('bad_config') for a script that can not be read, with its place. */
export function openScript(options: ScriptOptions): Completion {
  const { script, folder, contextTokens = 2 ** 18, maxSequences = 4, maxWaiting = 64, ...parts } = options;
  const tokenizer = loadTokenizer(folder);
  const template = loadTemplate(folder);
  const stopIds = stopIdsOf(tokenizer, []);
  const player = new Player(readScript(script), { tokenizer, template });
  const engine = new ScriptedEngine({
    tokenizer,
    endId: stopIds[0] ?? -1,
    answer: (request) => player.answer(request),
    contextTokens,
    maxSequences,
    maxWaiting,
  });
  return new Completion({
    enableThinking: null,
    trustMessages: false,
    ...parts,
    engine,
    tokenizer,
    template,
    stopIds,
  });
}

function readScript(path: string): Entry[] {
  const bad = (message: string): UserError => new UserError('bad_config', `${path}${message}`);
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw bad(` can not be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}`);
  }
  const values = path.endsWith('.jsonl') ? readLines(text, bad) : readYaml(text, bad);
  if (values.length === 0) throw bad(' has no answers');
  return values.map((value, i) => {
    const { data, error } = entrySchema.safeParse(value);
    if (data !== undefined) return data;
    const { path: keys, message } = error.issues[0] ?? { path: [], message: 'is no answer' };
    throw bad(`: answer ${i + 1}${keys.length === 0 ? '' : `, ${keys.join('.')}`}: ${message}`);
  });
}

function readYaml(text: string, bad: (message: string) => UserError): unknown[] {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true });
  const [error] = document.errors;
  if (error !== undefined) {
    const { line, col } = lines.linePos(error.pos[0]);
    throw bad(`:${line}:${col} ${error.message.split('\n')[0]}`);
  }
  const list: unknown = document.toJS();
  if (!Array.isArray(list)) throw bad(' is not a list of answers');
  return list;
}

function readLines(text: string, bad: (message: string) => UserError): unknown[] {
  return text.split('\n').flatMap((line, i) => {
    if (line.trim() === '') return [];
    try {
      return [JSON.parse(line) as unknown];
    } catch {
      throw bad(`:${i + 1} is not JSON`);
    }
  });
}

interface LastMessage {
  readonly role: string;
  readonly text: string;
}

class Player {
  readonly #entries: readonly Entry[];
  readonly #left: number[];
  readonly #tokenizer: Tokenizer;
  readonly #template: ChatTemplate;
  #requests = 0;

  constructor(
    entries: readonly Entry[],
    { tokenizer, template }: { tokenizer: Tokenizer; template: ChatTemplate },
  ) {
    this.#entries = entries;
    this.#left = entries.map(({ times }) => (times === 'always' ? Number.POSITIVE_INFINITY : times));
    this.#tokenizer = tokenizer;
    this.#template = template;
  }

  answer({ ids }: GenerateRequest): ScriptedAnswer {
    this.#requests++;
    const prompt = this.#tokenizer.decode(ids);
    const last = this.#lastMessage(ids, prompt);
    const at = this.#entries.findIndex((entry, i) => (this.#left[i] ?? 0) > 0 && meets(entry, last, prompt));
    const entry = this.#entries[at];
    if (entry === undefined) throw this.#nothingFor(last);
    this.#left[at] = (this.#left[at] ?? 0) - 1;
    return {
      text: entry.raw ?? this.#written(entry, prompt),
      ...(entry.delay === undefined ? {} : { prefillMs: entry.delay }),
      ...(entry.gap === undefined ? {} : { gapMs: entry.gap }),
      ...(entry.fail_after === undefined ? {} : { failAfter: entry.fail_after }),
    };
  }

  #nothingFor({ role, text }: LastMessage): UserError {
    const used = this.#left.filter((left) => left === 0).length;
    return new UserError(
      'no_scripted_answer',
      `the script has no answer for request ${this.#requests}, whose last message is of the ${role}: ${JSON.stringify(text.slice(0, 200))}`,
      { hint: `${used} of its ${this.#entries.length} answers are used up` },
    );
  }

  /** Turns begin with a control token, which no text of a message can be. */
  #lastMessage(ids: Int32Array, prompt: string): LastMessage {
    const start = this.#tokenizer.tokenId('<|im_start|>') ?? -1;
    // The last turn is the one that the answer goes into.
    const answerAt = ids.lastIndexOf(start);
    const from = answerAt < 1 ? -1 : ids.lastIndexOf(start, answerAt - 1);
    if (from < 0) return { role: 'user', text: prompt };
    const turn = this.#tokenizer.decode(ids.subarray(from + 1, answerAt));
    const [, role = 'user', said = ''] = /^(\w+)\n([\s\S]*?)(?:<\|im_end\|>\n?)?$/.exec(turn) ?? [];
    const results = [...said.matchAll(/<tool_response>\n([\s\S]*?)\n<\/tool_response>/g)];
    const result = results.at(-1)?.[1];
    return result === undefined ? { role, text: said } : { role: 'tool', text: result };
  }

  /** As the template writes it into a history: the format that the reader of answers is the other half of. */
  #written({ thinking, text, calls }: Entry, prompt: string): string {
    const message: ChatMessage = {
      role: 'assistant',
      content: text ?? '',
      ...(thinking === undefined ? {} : { reasoning_content: thinking }),
      ...(calls === undefined
        ? {}
        : {
            tool_calls: calls.map(({ name, arguments: args }) => ({
              type: 'function',
              function: { name, arguments: args as JsonValue },
            })),
          }),
    };
    const question = [{ role: 'user', content: '-' }];
    const render = (messages: readonly ChatMessage[], addGenerationPrompt: boolean): string =>
      this.#template.render({ messages, addGenerationPrompt }).text;
    const turn = render([...question, message], false).slice(render(question, false).length);
    const body = turn.replace(/^<\|im_start\|>\w+\n/, '').replace(/<\|im_end\|>\n?$/, '');
    const think = /^<think>\n([\s\S]*?)\n<\/think>\n\n/.exec(body);
    if (think === null) return body;
    const answer = body.slice(think[0].length);
    if (!prompt.trimEnd().endsWith('<think>')) return answer;
    return `${think[1]}\n</think>\n\n${answer}`;
  }
}

function meets({ when }: Entry, last: LastMessage, prompt: string): boolean {
  if (when === undefined) return true;
  const { role, contains = [], matches, prompt: inPrompt = [] } = when;
  return (
    (role === undefined || role === last.role) &&
    contains.every((text) => last.text.includes(text)) &&
    (matches === undefined || new RegExp(matches, 'u').test(last.text)) &&
    inPrompt.every((text) => prompt.includes(text))
  );
}
