/** Where a call that is written as JSON ends. */
import { cutOff, type Ending } from './call-tags.ts';

/** Follows JSON text as it grows and says where its outermost bracket closes. */
export class JsonExtent {
  #at = 0;
  #depth = 0;
  #inString = false;

  /**
   * `end`: just behind the closing bracket, or at a `</tool_call>` outside of strings that came first, when `depth`
   * brackets were open. null: not in this text. `text` must be that of the last call, perhaps with more at its end.
   */
  scan(text: string, ending: Ending): { readonly end: number; readonly depth: number } | null {
    for (; this.#at < text.length; this.#at++) {
      const char = text.charAt(this.#at);
      if (this.#inString) {
        if (char === '\\') {
          if (this.#at + 1 >= text.length) return null;
          this.#at++;
        } else if (char === '"') this.#inString = false;
      } else if (char === '"') this.#inString = true;
      else if (char === '{' || char === '[') this.#depth++;
      else if (char === '}' || char === ']') {
        if (--this.#depth === 0) return { end: this.#at + 1, depth: 0 };
      } else if (char === '<') {
        if (cutOff(text, this.#at, ['</tool_call>'], ending)) return null;
        if (text.startsWith('</tool_call>', this.#at)) return { end: this.#at, depth: this.#depth };
      }
    }
    return null;
  }
}
