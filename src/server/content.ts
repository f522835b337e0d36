/** What requests say besides text: images, files and the like, which this server can not show to the model. */
import { isJsonObject, type JsonObject, type JsonValue } from '../chat/index.ts';
import { kindOf, wrongField } from './fields.ts';

export interface ReadOptions {
  /** Refuse what is no text, instead of a placeholder that tells the model of it. */
  readonly strictContent: boolean;
}

/** What a reader changed or left out, for one line in the log. */
export class Notes {
  readonly #counts = new Map<string, number>();

  add(note: string): void {
    this.#counts.set(note, (this.#counts.get(note) ?? 0) + 1);
  }

  get lines(): readonly string[] {
    return [...this.#counts].map(([note, count]) => (count === 1 ? note : `${note} (${count} times)`));
  }
}

export interface ContentContext {
  readonly options: ReadOptions;
  readonly notes: Notes;
}

const textTypes = ['text', 'input_text', 'output_text', 'refusal', 'summary_text', 'reasoning_text'];

/** A content part as text for the model. Throws wrongField for parts that are none, and under `strictContent`. */
export function partText(part: JsonValue, at: string, { options, notes }: ContentContext): string {
  if (typeof part === 'string') return part;
  if (!isJsonObject(part)) throw wrongField(at, `is ${kindOf(part)}, expected an object`);
  const { type } = part;
  if (typeof type === 'string' && textTypes.includes(type)) {
    const text = type === 'refusal' ? (part.refusal ?? part.text) : part.text;
    if (typeof text !== 'string') throw wrongField(`${at}.text`, `is ${kindOf(text)}, expected a text`);
    return text;
  }
  if (typeof type !== 'string' || options.strictContent)
    throw wrongField(`${at}.type`, `is ${kindOf(type)}, supported is text`);
  const what = kindOfPart(type);
  notes.add(`${what} in ${at.replace(/\[\d+\]/g, '[]')} is a placeholder`);
  return placeholder(what, part);
}

const partKinds: readonly (readonly [RegExp, string])[] = [
  [/image/, 'image'],
  [/audio/, 'audio'],
  [/video/, 'video'],
  [/file|document/, 'file'],
];

function kindOfPart(type: string): string {
  return partKinds.find(([pattern]) => pattern.test(type))?.[1] ?? type.slice(0, 40);
}

function placeholder(what: string, part: JsonObject): string {
  const file = isJsonObject(part.file) ? part.file.filename : (part.filename ?? part.title);
  const name = typeof file === 'string' ? ` ${JSON.stringify(file.slice(0, 200))}` : '';
  return `[${what}${name} left out: this model reads text only]`;
}
