/** What a server knows of its responses: those that are stored, and those that are being streamed. */
import type { JsonObject } from '../../chat/index.ts';
import { UserError } from '../../util/index.ts';
import type { AnswerHead } from '../api.ts';
import type { ResponseRun } from './run.ts';
import { ResponseStore } from './store.ts';

interface Running {
  readonly caller: string;
  readonly head: AnswerHead;
  readonly run: ResponseRun;
}

export class ResponseState {
  readonly store = new ResponseStore();
  readonly #running = new Map<string, Running>();

  /** Returns what to call when the response is over. */
  enter(caller: string, head: AnswerHead, run: ResponseRun): () => void {
    this.#running.set(head.id, { caller, head, run });
    return () => this.#running.delete(head.id);
  }

  /** Throws UserError for a response that is not there. */
  body(caller: string, id: string): JsonObject {
    const running = this.#find(caller, id);
    if (running?.run.stores) return running.run.body(running.head);
    return this.store.get(caller, id).body;
  }

  /** Stops a response that is being streamed. Throws UserError for one that is over, or not there. */
  cancel(caller: string, id: string): JsonObject {
    const running = this.#find(caller, id);
    if (running === null) {
      const { status } = this.store.get(caller, id).body;
      throw new UserError(
        'invalid_request',
        `the response '${id}' is ${status}, only a running one is cancelled`,
        {
          param: 'response_id',
        },
      );
    }
    running.run.cancel();
    return running.run.body(running.head);
  }

  #find(caller: string, id: string): Running | null {
    const running = this.#running.get(id);
    return running === undefined || running.caller !== caller ? null : running;
  }
}
