/** The BFCL v4 phase as a run plugs it in: requests over the run's endpoint, events, the entry of the result file. */
import { randomUUID } from 'node:crypto';
import { basename } from 'node:path';
import { UserError } from '../../../util/index.ts';
import type { Exchange } from '../../run/client.ts';
import { now } from '../../run/client.ts';
import { type AccuracyDataset, redactUrls } from '../../run/config.ts';
import { pythonRound } from '../../run/python.ts';
import type { AccuracyParts, AccuracyPhase, AccuracyResult, PreparedPhase } from '../accuracy.ts';
import { summarize } from '../series.ts';
import { Journal } from './journal.ts';
import { writeJson } from './json.ts';
import { messagesText, toolsOf } from './request.ts';
import { type AskedSample, type BfclAnswer, type Outcome, runSamples } from './run-samples.ts';
import { type BfclSample, selectSamples } from './samples.ts';
import { aggregate } from './score.ts';

const extractorName = 'function_call_extractor';

export const bfclPhase: AccuracyPhase = { evalMethod: 'bfcl_v4', prepare };

/** Throws UserError for an option that this phase does not have, and for data that it can not use. */
function prepare(
  { generate_params: params, accuracy_config: config }: AccuracyDataset,
  folder: string,
): PreparedPhase {
  if (config.num_repeats !== 1)
    throw new UserError(
      'bad_config',
      `accuracy_config.num_repeats is ${config.num_repeats}, only 1 can run`,
      {
        param: 'accuracy_config.num_repeats',
      },
    );
  if (config.extractor !== undefined && config.extractor !== extractorName)
    throw new UserError(
      'bad_config',
      `accuracy_config.extractor: '${config.extractor}' is not ${extractorName}`,
      {
        param: 'accuracy_config.extractor',
      },
    );
  const samples = selectSamples(folder, params);
  return (parts) => run(samples, parts);
}

async function run(samples: readonly BfclSample[], parts: AccuracyParts): Promise<AccuracyResult> {
  const { config, signal, warn } = parts;
  const journal = new Journal(parts.journalPath, redactUrls(config.endpoint_config.endpoints[0] ?? ''));
  if (journal.size > 0)
    warn(
      `going on with ${journal.size} answers of an interrupted run; delete ${basename(parts.journalPath)} to ask anew`,
    );
  const sampleIndex: Record<string, number> = {};
  const link = new EventedEndpoint(parts, sampleIndex);
  const started = now();
  const outcomes = await runSamples({
    samples,
    params: config.model_params,
    concurrency: config.settings.client.max_connections,
    ask: (asked) => link.ask(asked),
    onReused: (asked, answer) => link.replay(asked, answer),
    journal,
    signal,
    warn,
    onProgress: (progress) => parts.onSample?.(progress),
  });
  const seconds = Number(now() - started) / 1e9;
  if (link.failures > 0)
    warn(
      `${link.failures} accuracy requests failed and count as empty answers; the first: ${link.firstFailure}`,
    );
  const isComplete = outcomes.every((outcome) => outcome !== null);
  if (isComplete && outcomes.every((outcome) => outcome?.answer !== null)) journal.remove();
  return { entry: entryOf(parts, samples, outcomes, seconds), verdicts: verdictsOf(outcomes), sampleIndex };
}

/** Sends samples and writes their events: issued, first chunk, error if one came, complete. */
class EventedEndpoint {
  readonly #parts: AccuracyParts;
  readonly #sampleIndex: Record<string, number>;
  failures = 0;
  firstFailure = '';

  constructor(parts: AccuracyParts, sampleIndex: Record<string, number>) {
    this.#parts = parts;
    this.#sampleIndex = sampleIndex;
  }

  async ask(asked: AskedSample): Promise<BfclAnswer | null> {
    const { endpoint, events, signal } = this.#parts;
    const sampleUuid = this.#issue(asked);
    const onFirst = (ns: bigint): void => {
      if (!signal.aborted) events.add('sample.recv_first', ns, { sampleUuid });
    };
    const exchange = await endpoint.send(asked.body, {}, onFirst, () => !signal.aborted);
    // The log is closed by then.
    if (signal.aborted) return null;
    return this.#complete(sampleUuid, exchange);
  }

  /** Events of an answer from the journal: the log of this run has every sample. */
  replay(asked: AskedSample, { content, reasoning, calls, finishReason }: BfclAnswer): void {
    const sampleUuid = this.#issue(asked);
    const data = JSON.stringify(['TextModelOutput', content, reasoning === '' ? null : reasoning, calls]);
    this.#parts.events.add('sample.complete', now(), { sampleUuid, data, finishReason });
  }

  #issue({ sample, index }: AskedSample): string {
    const sampleUuid = randomUUID().replaceAll('-', '');
    this.#sampleIndex[sampleUuid] = index;
    const data = `["PromptData",null,null,${messagesText(sample)},${writeJson(toolsOf(sample))},null,null,"auto"]`;
    this.#parts.events.add('sample.issued', now(), { sampleUuid, data });
    return sampleUuid;
  }

  #complete(sampleUuid: string, { answer, error, completeNs }: Exchange): BfclAnswer | null {
    const { events } = this.#parts;
    if (error !== null) {
      if (this.failures++ === 0) this.firstFailure = error.message;
      const data = JSON.stringify(['ErrorData', error.type, error.message]);
      events.add('error.generic', completeNs, { sampleUuid, data });
      events.add('sample.complete', completeNs, { sampleUuid, workerId: 0 });
      return null;
    }
    const { finishReason } = answer;
    const data = JSON.stringify(answer.eventData);
    events.add('sample.complete', completeNs, { sampleUuid, data, finishReason, workerId: 0 });
    const [content, reasoning] = [answer.content.join(''), answer.reasoning.join('')];
    return { content, reasoning, calls: answer.calls, finishReason };
  }
}

function entryOf(
  { dataset, counter, signal }: AccuracyParts,
  samples: readonly BfclSample[],
  outcomes: readonly (Outcome | null)[],
  seconds: number,
): AccuracyResult['entry'] {
  const { score, breakdown } = aggregate(
    samples,
    outcomes.map((outcome) => outcome?.verdict ?? null),
  );
  const completed = outcomes.filter((outcome) => outcome !== null);
  const empty = completed.filter(({ text }) => text === '').length;
  const lengths = counter === null ? null : completed.map(outputText).filter((text) => text !== '');
  return {
    dataset_name: dataset.name,
    extractor: 'FunctionCallExtractor',
    ground_truth_column: dataset.accuracy_config.ground_truth ?? 'ground_truth',
    score,
    unit_samples: samples.length,
    num_repeats: dataset.accuracy_config.num_repeats,
    total_samples: samples.length * dataset.accuracy_config.num_repeats,
    duration_s: pythonRound(seconds, 3),
    complete: completed.length === samples.length && !signal.aborted,
    dataset_type: 'accuracy',
    breakdown,
    response_counts: {
      issued: samples.length,
      scored: completed.length - empty,
      empty,
      missing: samples.length - completed.length,
    },
    ...(counter === null || lengths === null
      ? {}
      : {
          output_sequence_lengths: summarize(
            lengths.map((text) => counter.text(text)),
            { estimates: false },
          ),
        }),
  };
}

/** What output lengths are counted over: content, then the calls as compact JSON. */
function outputText({ answer }: Outcome): string {
  if (answer === null) return '';
  return `${answer.content}${answer.calls === null ? '' : JSON.stringify(answer.calls)}`;
}

function verdictsOf(outcomes: readonly (Outcome | null)[]): AccuracyResult['verdicts'] {
  return outcomes.flatMap((outcome) =>
    outcome === null
      ? []
      : [
          {
            id: outcome.sample.id,
            passed: outcome.verdict.passed,
            error: outcome.verdict.error,
            answer: outcome.text,
          },
        ],
  );
}
