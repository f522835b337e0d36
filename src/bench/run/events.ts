/** The event log, one compact JSON object a line, written as it happens. */
import { closeSync, openSync, writeSync } from 'node:fs';

export type EventType =
  | 'session.started'
  | 'session.start_performance_tracking'
  | 'session.stop_performance_tracking'
  | 'session.ended'
  | 'sample.issued'
  | 'sample.recv_first'
  | 'sample.complete'
  | 'error.generic';

export interface EventFields {
  readonly sampleUuid?: string;
  readonly conversationId?: string;
  readonly turn?: number;
  /** JSON text, or null. */
  readonly data?: string | null;
  readonly finishReason?: string | null;
  readonly workerId?: number;
}

export class EventLog {
  readonly #fd: number;
  #pending: string[] = [];
  #bytes = 0;

  constructor(path: string) {
    this.#fd = openSync(path, 'w');
  }

  add(type: EventType, timestampNs: bigint, fields: EventFields = {}): void {
    const { sampleUuid = '', conversationId = '', turn = null, data = null, finishReason, workerId } = fields;
    const head = `{"event_type":"${type}","timestamp_ns":${timestampNs},"sample_uuid":${JSON.stringify(sampleUuid)}`;
    const tail = [
      `,"conversation_id":${JSON.stringify(conversationId)},"turn":${turn},"data":${data}`,
      finishReason === undefined || finishReason === null
        ? ''
        : `,"finish_reason":${JSON.stringify(finishReason)}`,
      workerId === undefined ? '' : `,"worker_id":${workerId}`,
    ].join('');
    const line = `${head}${tail}}\n`;
    this.#pending.push(line);
    this.#bytes += line.length;
    if (this.#bytes > 1 << 20) this.flush();
  }

  flush(): void {
    const bytes = Buffer.from(this.#pending.join(''));
    for (let done = 0; done < bytes.length; ) done += writeSync(this.#fd, bytes, done);
    this.#pending = [];
    this.#bytes = 0;
  }

  close(): void {
    this.flush();
    closeSync(this.#fd);
  }
}
