/** A one-reader queue between the step loop and a request's iterator. Closing it ends the iteration. */
import type { GenerationEvent } from './types.ts';

export class EventQueue {
  readonly #events: GenerationEvent[] = [];
  #error: unknown = null;
  #closed = false;
  #wake: (() => void) | null = null;

  push(event: GenerationEvent): void {
    if (this.#closed) return;
    this.#events.push(event);
    this.#notify();
  }

  /** The reader gets what was pushed before, then the end (or the error). */
  close(error: unknown = null): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#error = error;
    this.#notify();
  }

  async *read(): AsyncGenerator<GenerationEvent> {
    while (true) {
      const event = this.#events.shift();
      if (event !== undefined) yield event;
      else if (this.#closed) {
        if (this.#error !== null) throw this.#error;
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }

  #notify(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }
}
