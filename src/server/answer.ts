/** The life of one request: read, generate, send, log. A client that is gone cancels its generation at whatever stage. */
import { randomUUID } from 'node:crypto';
import type { FastifyReply } from 'fastify';
import type { Logger } from 'pino';
import type { JsonValue } from '../chat/index.ts';
import type { Answer } from '../completion/index.ts';
import { UserError } from '../util/index.ts';
import { keyOf } from './access.ts';
import type { AnswerHead, Api, Call, Endpoint, ReadContext, StreamWriter } from './api.ts';
import { ChoiceCollector, type ChoiceDelta, runChoices } from './choices.ts';
import { Explained } from './explain.ts';
import type { Metrics } from './metrics.ts';
import { speculationBody, sumOfUsage } from './openai/usage.ts';
import { ResponseStream } from './stream.ts';

export interface AnswererParts {
  readonly context: Omit<ReadContext, 'log' | 'caller'>;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly pingMs: number;
  /** Tells what was thrown, in the API's shape, and logs it. */
  readonly describe: (api: Api, error: unknown, id: string | null) => { readonly body: unknown };
}

interface Times {
  readonly startedMs: number;
  /** When the first thing that the model wrote came by. */
  firstMs: number | null;
}

export class Answerer {
  readonly #parts: AnswererParts;
  /** What the last answers reused, and why not more. */
  readonly explained = new Explained();
  readonly #running = new Map<AbortController, number>();

  constructor(parts: AnswererParts) {
    this.#parts = parts;
  }

  cancelAll(): void {
    for (const abort of this.#running.keys()) abort.abort();
  }

  async answer(api: Api, endpoint: Endpoint, body: JsonValue, reply: FastifyReply): Promise<unknown> {
    const { context, log } = this.#parts;
    const times: Times = { startedMs: performance.now(), firstMs: null };
    const head: AnswerHead = {
      id: `${endpoint.idPrefix}${randomUUID().replaceAll('-', '')}`,
      created: Math.floor(Date.now() / 1000),
      model: context.modelName,
    };
    const note = (fields: Readonly<Record<string, unknown>>, message: string): void =>
      log.info({ id: head.id, ...fields }, message);
    const call = endpoint.read(body, { ...context, caller: keyOf(reply.request.headers), log: note });
    context.checkModel(call.model);
    if (call.unknown.length > 0) note({ fields: call.unknown }, 'unknown fields are ignored');
    if (call.notes.length > 0) note({ notes: call.notes }, 'read with changes');
    this.#checkRoom(call.choices);
    const abort = new AbortController();
    this.#running.set(abort, call.choices);
    // A client that is gone needs no answer: this also fires when the response is complete, then it does nothing.
    reply.raw.on('close', () => abort.abort());
    if (isGone(reply)) abort.abort();
    try {
      const deltas = runChoices(call.choices, (choice) => call.generate(choice, abort.signal));
      const timed = noteFirst(deltas, times);
      if (!call.stream) return await this.#whole(call, head, timed, { reply, times });
      reply.hijack();
      await this.#stream(api, call, head, timed, { reply, times });
      return reply;
    } finally {
      this.#running.delete(abort);
    }
  }

  /** Refuses at once what the engine's queue would refuse, so that a stream's headers may be sent at once too. */
  #checkRoom(choices: number): void {
    const { maxSequences, maxWaiting } = this.#parts.context.completion.engine.info;
    const held = [...this.#running.values()].reduce((sum, count) => sum + count, 0);
    if (held === 0 || held + choices <= maxSequences + maxWaiting) return;
    throw new UserError(
      'too_many_requests',
      `${held} answers are being made or wait, the limit is ${maxSequences + maxWaiting}`,
    );
  }

  async #whole(
    call: Call,
    head: AnswerHead,
    deltas: AsyncIterable<ChoiceDelta>,
    { reply, times }: { reply: FastifyReply; times: Times },
  ): Promise<unknown> {
    const collector = new ChoiceCollector(call.choices);
    for await (const delta of deltas) collector.add(delta);
    const answers = await collector.answers();
    this.#report(head, answers, times);
    if (isCancelled(answers)) {
      if (isGone(reply)) return reply;
      throw stopped();
    }
    call.keep?.(head, answers);
    return call.whole(head, answers);
  }

  async #stream(
    api: Api,
    call: Call,
    head: AnswerHead,
    deltas: AsyncIterable<ChoiceDelta>,
    { reply, times }: { reply: FastifyReply; times: Times },
  ): Promise<void> {
    const writer: StreamWriter = call.writer(head);
    const { contentType, ping } = writer;
    const stream = new ResponseStream(reply.raw, { contentType, ping, pingMs: this.#parts.pingMs });
    try {
      await stream.send(writer.open());
      const collector = new ChoiceCollector(call.choices);
      for await (const item of deltas) {
        collector.add(item);
        const { delta, choice } = item;
        // A cancelled one is left open: whoever cancelled it knows what to say.
        const isCut = delta.type === 'finish' && delta.reason === 'cancelled';
        if (!isCut) await stream.send(writer.delta(delta, choice));
      }
      const answers = await collector.answers();
      this.#report(head, answers, times);
      if (isCancelled(answers)) {
        if (!isGone(reply)) throw stopped();
        return;
      }
      call.keep?.(head, answers);
      stream.end(writer.end(answers.map(({ finish }) => finish)));
    } catch (error) {
      // The status is out already: the error goes into the stream.
      stream.end(writer.fail(this.#parts.describe(api, error, head.id).body));
    }
  }

  #report(head: AnswerHead, answers: readonly Answer[], { startedMs, firstMs }: Times): void {
    const now = performance.now();
    const finishes = answers.map(({ finish }) => finish);
    const { promptTokens, cachedTokens, completionTokens, steps } = sumOfUsage(finishes);
    const [first] = answers;
    const reason = isCancelled(answers) ? 'cancelled' : (first?.finish.reason ?? 'stop');
    const decodeMs = firstMs === null ? 0 : now - firstMs;
    const later = completionTokens - 1;
    this.#parts.metrics.observe({
      ttftSeconds: firstMs === null ? null : (firstMs - startedMs) / 1000,
      secondsPerToken: later > 0 && firstMs !== null ? decodeMs / 1000 / later : null,
      seconds: (now - startedMs) / 1000,
      reason,
    });
    const stats = first?.finish.stats;
    const start = first?.start ?? null;
    if (start !== null) this.explained.add(head, start);
    this.#parts.log.info(
      {
        id: head.id,
        reused: cachedTokens,
        computed: promptTokens - cachedTokens,
        generated: completionTokens,
        reuseLimit: first?.start?.reuseLimit ?? null,
        ...(start?.broke ? { broke: start.broke } : {}),
        ...(start?.stableLines ? { stableLines: start.stableLines } : {}),
        ttftMs: firstMs === null ? null : round(firstMs - startedMs),
        tokensPerSecond: later > 0 && decodeMs > 0 ? round((1000 * later) / decodeMs) : null,
        tokensPerStep: steps === 0 ? 0 : round(completionTokens / steps),
        ...(stats === undefined || stats.speculation.drafts === 0
          ? {}
          : { speculation: speculationBody(stats) }),
        reason,
      },
      reason === 'cancelled' ? 'cancelled' : 'answered',
    );
  }
}

const round = (value: number): number => Math.round(100 * value) / 100;

const isCancelled = (answers: readonly Answer[]): boolean =>
  answers.some(({ finish }) => finish.reason === 'cancelled');

const stopped = (): UserError =>
  new UserError('overloaded', 'the server stopped before the answer was complete');

/** The client closed the connection before its answer was complete. */
function isGone({ raw }: FastifyReply): boolean {
  return raw.destroyed || raw.socket?.destroyed === true;
}

async function* noteFirst(deltas: AsyncIterable<ChoiceDelta>, times: Times): AsyncGenerator<ChoiceDelta> {
  for await (const item of deltas) {
    const { type } = item.delta;
    if (type !== 'start' && type !== 'finish') times.firstMs ??= performance.now();
    yield item;
  }
}
