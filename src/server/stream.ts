/** A streamed response: waits for slow clients, notices when one is gone, says something when there is nothing to say. */
import type { ServerResponse } from 'node:http';

export interface StreamOptions {
  readonly contentType: string;
  /** Quiet time after which `ping` is sent, ms. */
  readonly pingMs: number;
  readonly ping: () => string;
}

export class ResponseStream {
  readonly #response: ServerResponse;
  readonly #timer: NodeJS.Timeout;

  /** Sends the headers at once: a client knows that it was heard, also while it waits in the queue. */
  constructor(response: ServerResponse, { contentType, pingMs, ping }: StreamOptions) {
    this.#response = response;
    // A connection that breaks in the middle of a write: 'close' follows and cancels the request.
    response.on('error', () => undefined);
    response.writeHead(200, {
      'Content-Type': contentType,
      'Cache-Control': 'no-cache',
      Connection: 'keep-alive',
      'X-Accel-Buffering': 'no',
    });
    response.flushHeaders();
    this.#timer = setInterval(() => void this.#write(ping()), pingMs);
    response.once('close', () => clearInterval(this.#timer));
  }

  /** Resolves when the client can take more; memory does not grow with a client that does not read. */
  async send(text: string): Promise<void> {
    if (text === '') return;
    this.#timer.refresh();
    await this.#write(text);
  }

  /** The last text. */
  end(text: string): void {
    clearInterval(this.#timer);
    if (!this.#response.destroyed) this.#response.end(text);
  }

  async #write(text: string): Promise<void> {
    if (text === '' || this.#response.destroyed || this.#response.write(text)) return;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#response.off('drain', wake);
        this.#response.off('close', wake);
        resolve();
      };
      this.#response.on('drain', wake);
      this.#response.on('close', wake);
    });
  }
}
