/** The text of a custom tool out of the JSON that its call is written in, while it is written. */
import { isJsonObject, parseLossless } from '../../chat/index.ts';
import { customParameter } from './tools.ts';

const opening = new RegExp(`^\\s*\\{\\s*"${customParameter}"\\s*:\\s*"`);

export class CustomInput {
  #json = '';
  /** Where undecoded text begins; -1 until the value has begun. */
  #at = -1;
  #closed = false;
  #text = '';

  /** The text so far. */
  get text(): string {
    return this.#text;
  }

  /** What a fragment of the arguments adds to the text. */
  push(fragment: string): string {
    this.#json += fragment;
    if (this.#at < 0) this.#at = opening.exec(this.#json)?.[0].length ?? -1;
    if (this.#at < 0 || this.#closed) return '';
    const { end, closed } = decodable(this.#json, this.#at);
    const added = JSON.parse(`"${this.#json.slice(this.#at, end)}"`) as string;
    this.#at = end;
    this.#closed = closed;
    this.#text += added;
    return added;
  }

  /** What is left when the call is complete: arguments of another form are the text themselves. */
  finish(): string {
    if (this.#at >= 0) return '';
    const value = textIn(this.#json);
    this.#text = value;
    return value;
  }
}

/** Up to where the text of a JSON string can be decoded: not inside an escape or a pair of surrogates. */
function decodable(json: string, from: number): { readonly end: number; readonly closed: boolean } {
  let at = from;
  while (at < json.length) {
    const char = json[at];
    if (char === '"') return { end: at, closed: true };
    const size = char !== '\\' ? 1 : json[at + 1] === 'u' ? 6 : 2;
    if (at + size > json.length) break;
    const unit = size === 6 ? Number.parseInt(json.slice(at + 2, at + 6), 16) : json.charCodeAt(at);
    const isHalf = size !== 2 && unit >= 0xd800 && unit < 0xdc00;
    if (isHalf && at + size >= json.length) break;
    at += size;
  }
  return { end: at, closed: false };
}

/** The only text among the arguments, else all of them. */
function textIn(json: string): string {
  try {
    const value = parseLossless(json);
    const [only, ...others] = isJsonObject(value) ? Object.values(value) : [];
    return typeof only === 'string' && others.length === 0 ? only : json;
  } catch {
    return json;
  }
}
