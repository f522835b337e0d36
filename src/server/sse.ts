/** Server-sent events on the raw response: waits for slow clients, notices when one is gone. */
import type { ServerResponse } from 'node:http';

export class EventStream {
  readonly #response: ServerResponse;

  constructor(response: ServerResponse) {
    this.#response = response;
    // A connection that breaks in the middle of a write: 'close' follows and cancels the request.
    response.on('error', () => undefined);
    response.writeHead(200, {
      'Content-Type': 'text/event-stream; charset=utf-8',
      'Cache-Control': 'no-cache',
      Connection: 'keep-alive',
      'X-Accel-Buffering': 'no',
    });
  }

  /** Resolves when the client can take more; memory does not grow with a client that does not read. */
  async send(json: unknown): Promise<void> {
    await this.#write(`data: ${JSON.stringify(json)}\n\n`);
  }

  async comment(text: string): Promise<void> {
    await this.#write(`: ${text}\n\n`);
  }

  async done(): Promise<void> {
    await this.#write('data: [DONE]\n\n');
    this.#response.end();
  }

  async #write(text: string): Promise<void> {
    if (this.#response.destroyed || this.#response.write(text)) return;
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
