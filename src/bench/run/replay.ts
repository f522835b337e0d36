/**
 * The performance phase: conversations are replayed turn by turn, several at once if asked, each next turn as soon as the one
 * before is answered. A turn that fails or takes too long ends its conversation; the run goes on.
 *
 * Every sample that ends has exactly one complete event; a failed one has an error event before it. A sample that is still
 * unanswered when the phase ends has none, and counts as missing.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { stringifyCompact } from '../../chat/index.ts';
import type { Answer } from './answer.ts';
import { type Endpoint, now } from './client.ts';
import type { BenchConfig, PerformanceDataset } from './config.ts';
import type { EventLog } from './events.ts';
import type { ServerCounts } from './server-counts.ts';
import { messagesJson, saltedTurn, type Turn } from './wire.ts';

export interface SampleError {
  readonly type: string;
  readonly message: string;
}

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
  error: SampleError | null;
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
  /** Reads the server's own counts between turns, where it offers them. */
  readonly counts?: ServerCounts | null;
  readonly signal: AbortSignal;
  readonly onTurn?: (sample: Sample, done: number, total: number) => void;
}

export function replay(parts: ReplayParts): Promise<ReplayResult> {
  return new Replay(parts).run();
}

/** The longest delay that Node's timers keep, ms. */
const longestTimer = 2 ** 31 - 1;

class Replay {
  readonly #parts: ReplayParts;
  readonly #samples: Sample[] = [];
  readonly #budget: number;
  readonly #total: number;
  #nextTrajectory = 0;
  #tracking = true;
  #stopIssuing = false;
  #ended = false;
  #done = 0;

  constructor(parts: ReplayParts) {
    const { conversations, dataset } = parts;
    this.#parts = parts;
    this.#budget = dataset.agentic_inference.num_trajectories_to_issue ?? conversations.length;
    const lengths = Array.from(
      { length: this.#budget },
      (_, k) => conversations[k % conversations.length]?.length ?? 0,
    );
    this.#total = lengths.reduce((a, b) => a + b, 0);
  }

  async run(): Promise<ReplayResult> {
    const { events, config, signal } = this.#parts;
    const startNs = now();
    events.add('session.start_performance_tracking', startNs);
    const stopped = this.#untilStopped();
    const count = Math.min(config.settings.load_pattern.target_concurrency, this.#budget);
    try {
      await Promise.race([Promise.all(Array.from({ length: count }, () => this.#slot())), stopped.promise]);
    } finally {
      stopped.cancel();
    }
    this.#ended = true;
    this.#stopTracking();
    return { samples: this.#samples, startNs, state: signal.aborted ? 'interrupted' : 'complete' };
  }

  /** Resolves at once when the person interrupts, and some time after the longest allowed duration. */
  #untilStopped(): { promise: Promise<void>; cancel: () => void } {
    const { config, signal } = this.#parts;
    const { runtime, drain } = config.settings;
    const timers: NodeJS.Timeout[] = [];
    const later = (ms: number, act: () => void): void => {
      if (ms <= longestTimer) timers.push(setTimeout(act, ms));
    };
    let resolve = (): void => {};
    const promise = new Promise<void>((settle) => {
      resolve = settle;
    });
    const onAbort = (): void => {
      this.#stopIssuing = true;
      resolve();
    };
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort);
    if (runtime.max_duration_ms !== undefined)
      later(runtime.max_duration_ms, () => {
        this.#stopIssuing = true;
        later(drain.performance_timeout_s * 1000, resolve);
      });
    const cancel = (): void => {
      for (const timer of timers) clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    };
    return { promise, cancel };
  }

  async #slot(): Promise<void> {
    while (this.#nextTrajectory < this.#budget && !this.#stopIssuing) {
      await this.#conversation(this.#nextTrajectory++);
      if (this.#nextTrajectory < this.#budget) continue;
      this.#stopTracking();
      if (this.#parts.dataset.agentic_inference.stop_issuing_on_first_user_complete) this.#stopIssuing = true;
    }
  }

  #stopTracking(): void {
    if (!this.#tracking) return;
    this.#tracking = false;
    this.#parts.events.add('session.stop_performance_tracking', now());
  }

  async #conversation(k: number): Promise<void> {
    const { conversations, dataset, counts } = this.#parts;
    const { inject_tool_delay: hasDelay, enable_salt: isSalted } = dataset.agentic_inference;
    const pass = Math.floor(k / conversations.length) + 1;
    const recorded = conversations[k % conversations.length] ?? [];
    const turns = isSalted ? recorded.map((turn) => saltedTurn(turn, pass)) : recorded;
    for (const [i, turn] of turns.entries()) {
      if (hasDelay && i > 0 && turn.delaySeconds > 0) await sleep(turn.delaySeconds * 1000);
      if (this.#stopIssuing) return;
      const sample = this.#newSample(turn, pass);
      if (await this.#exchange(sample)) {
        await counts?.afterTurn(sample.uuid, sample.answer);
        continue;
      }
      if (this.#ended) return;
      for (const rest of turns.slice(i + 1)) this.#abort(this.#newSample(rest, pass), turn);
      return;
    }
  }

  #newSample(turn: Turn, pass: number): Sample {
    const sample: Sample = {
      uuid: randomUUID().replaceAll('-', ''),
      turn,
      logicalId: pass === 1 ? turn.conversationId : `${turn.conversationId}__repeat_${pass}`,
      pass,
      tracked: this.#tracking,
      issuedNs: now(),
      firstNs: null,
      completeNs: null,
      answer: null,
      error: null,
    };
    this.#samples.push(sample);
    return sample;
  }

  #logIssued(sample: Sample): void {
    const { turn } = sample;
    const tools = turn.tools === undefined ? 'null' : stringifyCompact(turn.tools);
    const data = `["PromptData",null,null,${messagesJson(turn)},${tools},null,null,null]`;
    this.#parts.events.add('sample.issued', sample.issuedNs, { ...idsOf(sample), data });
  }

  /** True when the turn was answered in time. A late answer is dropped, but its request is not cancelled. */
  async #exchange(sample: Sample): Promise<boolean> {
    const { endpoint, dataset, events } = this.#parts;
    const { turn_timeout_s: seconds, routing_headers: names } = dataset.agentic_inference;
    const headers = Object.fromEntries(names.map((name) => [name, sample.logicalId]));
    const isWanted = (): boolean => sample.completeNs === null && !this.#ended;
    const onFirst = (ns: bigint): void => {
      sample.firstNs = ns;
      events.add('sample.recv_first', ns, idsOf(sample));
    };
    // The request goes out first: writing a long event takes time that is not the server's. No answer can come in between.
    const answered = endpoint.send(sample.turn.body, headers, onFirst, isWanted);
    this.#logIssued(sample);
    const timer = new AbortController();
    const timeout = sleep(Math.min(seconds * 1000, longestTimer), null, { signal: timer.signal });
    const exchange = await Promise.race([answered, timeout]);
    timeout.catch(() => null);
    timer.abort();
    if (!isWanted()) return false;
    if (exchange === null) this.#fail(sample, timeoutError(seconds), now());
    else if (exchange.error !== null) this.#fail(sample, exchange.error, exchange.completeNs);
    else this.#complete(sample, exchange.answer, exchange.completeNs);
    return sample.answer !== null;
  }

  #complete(sample: Sample, answer: Answer, at: bigint): void {
    sample.answer = answer;
    sample.completeNs = at;
    this.#parts.events.add('sample.complete', at, {
      ...idsOf(sample),
      data: JSON.stringify(answer.eventData),
      finishReason: answer.finishReason,
      workerId: 0,
    });
    this.#report(sample);
  }

  #abort(sample: Sample, cause: Turn): void {
    this.#logIssued(sample);
    const message = `turn ${cause.turn} of ${sample.logicalId} failed`;
    this.#fail(sample, { type: 'TurnAbortedByPriorFailure', message }, now());
  }

  #fail(sample: Sample, error: SampleError, at: bigint): void {
    const { events } = this.#parts;
    sample.error = error;
    sample.completeNs = at;
    const data = JSON.stringify(['ErrorData', error.type, error.message]);
    events.add('error.generic', at, { ...idsOf(sample), data });
    events.add('sample.complete', at, { ...idsOf(sample), workerId: 0 });
    this.#report(sample);
  }

  #report(sample: Sample): void {
    this.#parts.events.flush();
    this.#done++;
    this.#parts.onTurn?.(sample, this.#done, this.#total);
  }
}

const timeoutError = (seconds: number): SampleError => ({
  type: 'TurnTimeout',
  message: `no complete answer within ${seconds} s`,
});

function idsOf(sample: Sample): { sampleUuid: string; conversationId: string; turn: number } {
  return { sampleUuid: sample.uuid, conversationId: sample.logicalId, turn: sample.turn.turn };
}
