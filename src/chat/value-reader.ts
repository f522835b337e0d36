/** Reads the value of one parameter into a call, while it is written. */
import type { CallBuilder } from './call-builder.ts';
import { type Ending, isTagPiece } from './call-tags.ts';
import { ValueScanner } from './value-scanner.ts';

export class ValueReader {
  readonly #call: CallBuilder;
  readonly #scanner: ValueScanner;
  readonly #onRepeated: (value: string) => void;
  /** The call has this key already. */
  readonly #repeats: boolean;
  #fresh = true;

  /** `onRepeated` gets the value of a key that the call has already: one key stands once in its JSON. */
  constructor(call: CallBuilder, key: string, onRepeated: (value: string) => void) {
    this.#call = call;
    this.#onRepeated = onRepeated;
    this.#repeats = call.has(key);
    if (!this.#repeats) call.startValue(key);
    this.#scanner = new ValueScanner(
      (other) => call.mayFollow(other),
      (other) => call.isDeclared(other),
    );
  }

  /** Takes what it can from the front of `text`: how much, and whether that was the whole value with its closing tag. */
  read(text: string, ending: Ending): { readonly taken: number; readonly ended: boolean } {
    // Whether "\r" begins a line break shows with the next character.
    if (text === '' || (text === '\r' && ending === 'open')) return { taken: 0, ended: false };
    const line = this.#fresh ? (/^\r?\n/.exec(text.slice(0, 2))?.[0] ?? '') : '';
    this.#fresh = false;
    this.#scanner.cut(line);
    const value = text.slice(line.length);
    const found = this.#scanner.scan(value, ending);
    if (found.kind === 'end') {
      this.#end(value.slice(0, found.end));
      return { taken: line.length + found.resume, ended: true };
    }
    const waits = this.#repeats || ending === 'ended';
    const taken = waits ? 0 : this.#call.streamValue(value.slice(0, found.safe));
    this.#scanner.cut(value.slice(0, taken));
    return { taken: line.length + taken, ended: false };
  }

  /** The end of the output is not the end of the value: what it began stays open, without the piece of a tag. */
  cutOff(text: string): void {
    const piece = text.lastIndexOf('<');
    const value = piece >= 0 && isTagPiece(text.slice(piece)) ? text.slice(0, piece) : text;
    if (this.#repeats) this.#onRepeated(value.trim());
    else this.#call.cutValue(value);
  }

  #end(value: string): void {
    if (this.#repeats) this.#onRepeated(value.trim());
    else this.#call.endValue(value);
  }
}
