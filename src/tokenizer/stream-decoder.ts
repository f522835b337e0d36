/**
 * Token ids to text, one at a time. A character whose bytes are spread over tokens comes out when its last byte
 * does: pushing ids one by one and flushing gives the same text as decoding them at once.
 */
import type { Tokenizer } from './tokenizer.ts';

export interface StreamDecoderOptions {
  /** Leave control tokens out of the text. Default true. */
  readonly skipSpecial?: boolean;
}

export class StreamDecoder {
  readonly #tokenizer: Tokenizer;
  readonly #skipSpecial: boolean;
  // A leading U+FEFF is a character like any other.
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  constructor(tokenizer: Tokenizer, options: StreamDecoderOptions = {}) {
    this.#tokenizer = tokenizer;
    this.#skipSpecial = options.skipSpecial ?? true;
  }

  /** The characters that this token completes, often '' inside an emoji. */
  push(id: number): string {
    if (this.#skipSpecial && this.#tokenizer.specialIds.has(id)) return '';
    return this.#decoder.decode(this.#tokenizer.idToBytes(id), { stream: true });
  }

  /** U+FFFD for a character that never got its last byte, else ''. The decoder then starts afresh. */
  flush(): string {
    return this.#decoder.decode();
  }
}
