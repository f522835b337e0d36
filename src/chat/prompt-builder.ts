/** Collects a prompt as segments: neighbours of equal trust are joined, except across a boundary. */
import type { TextSegment } from '../tokenizer/index.ts';
import type { PromptBoundary, RenderedPrompt } from './types.ts';

export class PromptBuilder {
  readonly #segments: TextSegment[] = [];
  readonly #boundaries: PromptBoundary[] = [];
  #text = '';
  #trusted = true;
  #hasSystem = false;

  /** The template's own words. */
  trusted(text: string): this {
    return this.#add(text, true);
  }

  /** Anything that came with the request. */
  untrusted(text: string): this {
    return this.#add(text, false);
  }

  /** Everything before this point stays when the conversation goes on. */
  boundary(kind: 'system' | 'turn'): void {
    this.#flush();
    if (kind === 'system') this.#hasSystem = true;
    const segment = this.#segments.length;
    if (segment > 0 && this.#boundaries.at(-1)?.segment !== segment) this.#boundaries.push({ segment, kind });
  }

  finish(): RenderedPrompt {
    this.#flush();
    const last = this.#boundaries.at(-1);
    const only = this.#boundaries.length === 1 && this.#hasSystem;
    if (last && !only) this.#boundaries[this.#boundaries.length - 1] = { ...last, kind: 'prompt' };
    const text = this.#segments.map((segment) => segment.text).join('');
    return {
      text,
      segments: this.#segments,
      boundaries: this.#boundaries,
      opensThinking: this.#segments.at(-1)?.trusted === true && /<think>\s*$/.test(text),
    };
  }

  #add(text: string, trusted: boolean): this {
    if (text === '') return this;
    if (trusted !== this.#trusted) this.#flush();
    this.#trusted = trusted;
    this.#text += text;
    return this;
  }

  #flush(): void {
    if (this.#text !== '') this.#segments.push({ text: this.#text, trusted: this.#trusted });
    this.#text = '';
  }
}
