/** The worker thread's side: an ordinary engine behind messages. */
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../util/index.ts';
import { openEngine } from './open.ts';
import { toPlainError } from './plain-error.ts';
import type { Engine, GenerateRequest } from './types.ts';
import type { FromWorker, ToWorker, WorkerInput } from './worker-protocol.ts';

const port = present(parentPort, 'parent port');
const send = (message: FromWorker): void => port.postMessage(message);

async function serve(engine: Engine): Promise<void> {
  const running = new Map<number, AbortController>();
  const generate = async (id: number, request: GenerateRequest): Promise<void> => {
    const abort = new AbortController();
    running.set(id, abort);
    try {
      for await (const event of engine.generate(request, abort.signal)) send({ type: 'event', id, event });
      send({ type: 'done', id, error: null });
    } catch (error) {
      send({ type: 'done', id, error: toPlainError(error) });
    } finally {
      running.delete(id);
    }
  };
  port.on('message', async (message: ToWorker) => {
    if (message.type === 'generate') void generate(message.id, message.request);
    else if (message.type === 'cancel') running.get(message.id)?.abort();
    else if (message.type === 'stats') send({ type: 'stats', id: message.id, stats: await engine.stats() });
    else {
      await engine.close();
      send({ type: 'closed' });
      port.close();
    }
  });
  send({ type: 'opened', info: engine.info });
}

try {
  await serve(await openEngine((workerData as WorkerInput).options));
} catch (error) {
  send({ type: 'failed', error: toPlainError(error) });
  port.close();
}
