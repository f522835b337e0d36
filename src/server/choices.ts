/** Several answers to one prompt: the first computes it, the others find its pages in the cache. */
import { type Answer, collectAnswer, type Delta } from '../completion/index.ts';

export interface ChoiceDelta {
  readonly choice: number;
  readonly delta: Delta;
}

/**
 * The deltas of all choices as they come. `generate` is called once per choice, for the first at once, so that its
 * UserError is thrown here, for the others when the first has begun to answer.
 */
export function runChoices(
  count: number,
  generate: (choice: number) => AsyncIterable<Delta>,
): AsyncGenerator<ChoiceDelta> {
  return merge(count, generate(0), generate);
}

async function* merge(
  count: number,
  first: AsyncIterable<Delta>,
  generate: (choice: number) => AsyncIterable<Delta>,
): AsyncGenerator<ChoiceDelta> {
  type Step = { readonly choice: number; readonly result: IteratorResult<Delta> };
  const sources = new Map<number, AsyncIterator<Delta>>();
  const pending = new Map<number, Promise<Step>>();
  const pull = (choice: number): void => {
    const source = sources.get(choice) as AsyncIterator<Delta>;
    pending.set(
      choice,
      source.next().then((result) => ({ choice, result })),
    );
  };
  const begin = (choice: number, deltas: AsyncIterable<Delta>): void => {
    sources.set(choice, deltas[Symbol.asyncIterator]());
    pull(choice);
  };
  try {
    begin(0, first);
    while (pending.size > 0) {
      const { choice, result } = await Promise.race(pending.values());
      pending.delete(choice);
      if (result.done) continue;
      const isAnswering = result.value.type !== 'start';
      if (isAnswering && sources.size < count)
        for (let other = 1; other < count; other++) begin(other, generate(other));
      yield { choice, delta: result.value };
      pull(choice);
    }
  } finally {
    for (const step of pending.values()) step.catch(() => undefined);
    await Promise.all([...sources.values()].map((source) => source.return?.()));
  }
}

/** Collects the answer of each choice while its deltas pass by. */
export class ChoiceCollector {
  readonly #deltas: Delta[][];

  constructor(count: number) {
    this.#deltas = Array.from({ length: count }, () => []);
  }

  add({ choice, delta }: ChoiceDelta): void {
    this.#deltas[choice]?.push(delta);
  }

  answers(): Promise<Answer[]> {
    return Promise.all(this.#deltas.map((deltas) => collectAnswer(replay(deltas))));
  }
}

async function* replay(deltas: readonly Delta[]): AsyncGenerator<Delta> {
  yield* deltas;
}
