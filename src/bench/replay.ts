/**
 * The performance phase: conversations are replayed turn by turn, several at once if asked, each next turn as soon as the one
 * before is answered. A turn that fails or takes too long ends its conversation; the run goes on.
 */
import { randomUUID } from 'node:crypto';
import { stringifyCompact } from '../chat/index.ts';
import type { Answer } from './answer.ts';
import { type Endpoint, now } from './client.ts';
import type { BenchConfig, PerformanceDataset } from './config.ts';
import type { EventLog } from './events.ts';
import type { Turn } from './wire.ts';

export interface Sample {
  readonly uuid: string;
  readonly turn: Turn;
  /** Conversation id with its pass, e.g. `a__repeat_2`. */
  readonly logicalId: string;
  readonly pass: number;
  /** Issued while performance was tracked. */
  readonly tracked: boolean;
  readonly issuedNs: bigint;
  firstNs: bigint | null;
  completeNs: bigint | null;
  /** null when the turn failed. */
  answer: Answer | null;
  error: { readonly type: string; readonly message: string } | null;
}

export interface ReplayResult {
  readonly samples: readonly Sample[];
  readonly startNs: bigint;
  readonly state: 'complete' | 'interrupted';
}

export interface ReplayParts {
  readonly config: BenchConfig;
  readonly dataset: PerformanceDataset;
  /** Turns of each conversation, in file order. */
  readonly conversations: readonly (readonly Turn[])[];
  readonly endpoint: Endpoint;
  readonly events: EventLog;
  readonly signal: AbortSignal;
  readonly onTurn?: (sample: Sample, done: number, total: number) => void;
}

export function replay(parts: ReplayParts): Promise<ReplayResult> {
  return new Replay(parts).run();
}

class Replay {
  readonly #parts: ReplayParts;
  readonly #samples: Sample[] = [];
  readonly #budget: number;
  readonly #total: number;
  #nextTrajectory = 0;
  #tracking = true;
  #stopIssuing = false;
  #done = 0;

  constructor(parts: ReplayParts) {
    this.#parts = parts;
    this.#budget = parts.dataset.agentic_inference.num_trajectories_to_issue ?? parts.conversations.length;
    this.#total = Array.from(
      { length: this.#budget },
      (_, k) => parts.conversations[k % parts.conversations.length]?.length ?? 0,
    ).reduce((a, b) => a + b, 0);
  }

  async run(): Promise<ReplayResult> {
    const { events, config, signal } = this.#parts;
    const { runtime, load_pattern: pattern, drain } = config.settings;
    const startNs = now();
    events.add('session.start_performance_tracking', startNs);
    const slots = Array.from({ length: Math.min(pattern.target_concurrency, this.#budget) }, () =>
      this.#slot(),
    );
    const all = Promise.all(slots);
    const stop = new Promise<'stopped'>((resolve) => {
      const end = (): void => {
        this.#stopIssuing = true;
        setTimeout(() => resolve('stopped'), drain.performance_timeout_s * 1000).unref();
      };
      if (runtime.max_duration_ms !== undefined) setTimeout(end, runtime.max_duration_ms).unref();
      signal.addEventListener('abort', () => {
        this.#stopIssuing = true;
        resolve('stopped');
      });
    });
    await Promise.race([all, stop]);
    this.#stopTracking();
    for (const sample of this.#samples)
      if (sample.completeNs === null)
        this.#fail(sample, { type: 'Interrupted', message: 'the run ended before an answer came' });
    return { samples: this.#samples, startNs, state: signal.aborted ? 'interrupted' : 'complete' };
  }

  async #slot(): Promise<void> {
    while (this.#nextTrajectory < this.#budget && !this.#stopIssuing) {
      const k = this.#nextTrajectory++;
      await this.#conversation(k);
      if (this.#nextTrajectory >= this.#budget) {
        this.#stopTracking();
        if (this.#parts.dataset.agentic_inference.stop_issuing_on_first_user_complete)
          this.#stopIssuing = true;
      }
    }
  }

  #stopTracking(): void {
    if (!this.#tracking) return;
    this.#tracking = false;
    this.#parts.events.add('session.stop_performance_tracking', now());
  }

  async #conversation(k: number): Promise<void> {
    const { conversations, dataset } = this.#parts;
    const turns = conversations[k % conversations.length] ?? [];
    const pass = Math.floor(k / conversations.length) + 1;
    for (const [i, turn] of turns.entries()) {
      if (this.#stopIssuing) return;
      if (dataset.agentic_inference.inject_tool_delay && i > 0 && turn.delaySeconds > 0)
        await sleep(turn.delaySeconds * 1000);
      const sample = this.#issue(turn, pass);
      if (await this.#exchange(sample)) continue;
      for (const rest of turns.slice(i + 1)) {
        const aborted = this.#issue(rest, pass);
        this.#fail(aborted, {
          type: 'TurnAbortedByPriorFailure',
          message: `turn ${turn.turn} of ${sample.logicalId} failed`,
        });
      }
      return;
    }
  }

  #issue(turn: Turn, pass: number): Sample {
    const logicalId = pass === 1 ? turn.conversationId : `${turn.conversationId}__repeat_${pass}`;
    const sample: Sample = {
      uuid: randomUUID().replaceAll('-', ''),
      turn,
      logicalId,
      pass,
      tracked: this.#tracking,
      issuedNs: now(),
      firstNs: null,
      completeNs: null,
      answer: null,
      error: null,
    };
    this.#samples.push(sample);
    const messages = turn.messages.map(stringifyCompact).join(',');
    const tools = turn.tools === undefined ? 'null' : stringifyCompact(turn.tools);
    const data = `["PromptData",null,null,[${messages}],${tools},null,null,null]`;
    this.#parts.events.add('sample.issued', sample.issuedNs, { ...this.#ids(sample), data });
    return sample;
  }

  /** True when the turn was answered in time. A late answer is dropped, but its request is not cancelled. */
  async #exchange(sample: Sample): Promise<boolean> {
    const { endpoint, dataset, events } = this.#parts;
    const { turn_timeout_s: seconds, routing_headers: names } = dataset.agentic_inference;
    const headers = Object.fromEntries(names.map((name) => [name, sample.logicalId]));
    const onFirst = (ns: bigint): void => {
      if (sample.completeNs !== null) return;
      sample.firstNs = ns;
      events.add('sample.recv_first', ns, this.#ids(sample));
    };
    let timer: NodeJS.Timeout | undefined;
    const timeout = new Promise<null>((resolve) => {
      timer = setTimeout(() => resolve(null), seconds * 1000);
    });
    const exchange = await Promise.race([endpoint.send(sample.turn.body, headers, onFirst), timeout]);
    clearTimeout(timer);
    if (sample.completeNs !== null) return false;
    if (exchange === null) {
      this.#fail(sample, { type: 'TurnTimeout', message: `no complete answer within ${seconds} s` });
      return false;
    }
    if (exchange.error !== null) {
      this.#fail(sample, exchange.error, exchange.completeNs);
      return false;
    }
    sample.answer = exchange.answer;
    sample.completeNs = exchange.completeNs;
    const { answer } = exchange;
    events.add('sample.complete', exchange.completeNs, {
      ...this.#ids(sample),
      data: JSON.stringify(answer.eventData),
      finishReason: answer.finishReason,
      workerId: 0,
    });
    this.#report(sample);
    return true;
  }

  #fail(sample: Sample, error: { type: string; message: string }, at = now()): void {
    sample.error = error;
    sample.completeNs = at;
    this.#parts.events.add('error.generic', at, {
      ...this.#ids(sample),
      data: JSON.stringify(['ErrorData', error.type, error.message]),
    });
    this.#parts.events.add('sample.complete', at, { ...this.#ids(sample), workerId: 0 });
    this.#report(sample);
  }

  #report(sample: Sample): void {
    this.#done++;
    this.#parts.onTurn?.(sample, this.#done, this.#total);
  }

  #ids(sample: Sample): { sampleUuid: string; conversationId: string; turn: number } {
    return { sampleUuid: sample.uuid, conversationId: sample.logicalId, turn: sample.turn.turn };
  }
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
