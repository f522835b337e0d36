/** An engine in a worker thread, so that HTTP and text never wait for a forward. Same interface, same answers. */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { EventQueue } from './event-queue.ts';
import { type EngineOptions, engineOptions } from './options.ts';
import { fromPlainError } from './plain-error.ts';
import type { Engine, EngineInfo, EngineStats, GenerateRequest, GenerationEvent } from './types.ts';
import type { FromWorker, ToWorker, WorkerInput } from './worker-protocol.ts';

/** The compiled worker: beside this file in `dist/`, or in `../../dist` when this file runs from source. */
function workerPath(): string {
  const beside = fileURLToPath(new URL('./worker.js', import.meta.url));
  return existsSync(beside) ? beside : fileURLToPath(new URL('../../dist/engine/worker.js', import.meta.url));
}

export async function openEngineWorker(given: Partial<EngineOptions> & { folder: string }): Promise<Engine> {
  const input: WorkerInput = { options: engineOptions(given) };
  const worker = new Worker(workerPath(), { workerData: input });
  const info = await new Promise<EngineInfo>((resolve, reject) => {
    worker.once('error', reject);
    worker.once('exit', (code) =>
      reject(new Error(`the engine's thread ended with code ${code} while opening`)),
    );
    worker.once('message', (message: FromWorker) => {
      if (message.type === 'opened') resolve(message.info);
      else if (message.type === 'failed') reject(fromPlainError(message.error));
    });
  });
  return new WorkerEngine(worker, info);
}

class WorkerEngine implements Engine {
  readonly info: EngineInfo;
  readonly #worker: Worker;
  readonly #queues = new Map<number, EventQueue>();
  readonly #statsWaiters = new Map<
    number,
    { resolve: (stats: EngineStats) => void; reject: (error: Error) => void }
  >();
  #nextId = 1;
  #gone: Error | null = null;
  #closing: Promise<void> | null = null;

  constructor(worker: Worker, info: EngineInfo) {
    this.info = info;
    this.#worker = worker;
    worker.removeAllListeners('error').removeAllListeners('exit');
    worker.on('message', (message: FromWorker) => this.#receive(message));
    worker.on('error', (error) => this.#fail(error));
    worker.on('exit', () => this.#fail(new Error('the engine is closed')));
  }

  async *generate(request: GenerateRequest, signal?: AbortSignal): AsyncGenerator<GenerationEvent> {
    if (this.#gone !== null) throw this.#gone;
    const id = this.#nextId++;
    const queue = new EventQueue();
    this.#queues.set(id, queue);
    const cancel = (): void => this.#send({ type: 'cancel', id });
    this.#send({ type: 'generate', id, request });
    if (signal?.aborted) cancel();
    signal?.addEventListener('abort', cancel, { once: true });
    try {
      yield* queue.read();
    } finally {
      signal?.removeEventListener('abort', cancel);
      if (this.#queues.delete(id)) cancel();
    }
  }

  stats(): Promise<EngineStats> {
    if (this.#gone !== null) return Promise.reject(this.#gone);
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#statsWaiters.set(id, { resolve, reject });
      this.#send({ type: 'stats', id });
    });
  }

  close(): Promise<void> {
    this.#closing ??= new Promise((resolve) => {
      if (this.#gone !== null) return resolve();
      this.#worker.once('exit', () => resolve());
      this.#send({ type: 'close' });
    });
    return this.#closing;
  }

  #send(message: ToWorker): void {
    if (this.#gone === null) this.#worker.postMessage(message);
  }

  #receive(message: FromWorker): void {
    if (message.type === 'event') this.#queues.get(message.id)?.push(message.event);
    else if (message.type === 'done') {
      const queue = this.#queues.get(message.id);
      this.#queues.delete(message.id);
      queue?.close(message.error === null ? null : fromPlainError(message.error));
    } else if (message.type === 'stats') {
      this.#statsWaiters.get(message.id)?.resolve(message.stats);
      this.#statsWaiters.delete(message.id);
    }
  }

  #fail(error: Error): void {
    this.#gone ??= error;
    for (const queue of this.#queues.values()) queue.close(error);
    for (const waiter of this.#statsWaiters.values()) waiter.reject(error);
    this.#queues.clear();
    this.#statsWaiters.clear();
  }
}
