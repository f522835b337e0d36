/** The performance phase over HTTP against a scripted server: order, failures, files. */
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import {
  recordedCommands,
  type SmallRunOptions,
  writeSmallRun,
} from '../../../test/support/oracle-dataset.ts';
import {
  callDeltas,
  type OracleAnswer,
  type OracleOptions,
  type OracleRequest,
  type OracleScript,
  type OracleServer,
  startOracle,
  wholeCallDelta,
} from '../../../test/support/oracle-server.ts';
import type { BenchOutcome, BenchRun } from '../index.ts';
import { runBench } from '../index.ts';

type Event = {
  event_type: string;
  timestamp_ns: number;
  sample_uuid: string;
  conversation_id: string;
  turn: number | null;
  data: unknown[] | null;
  finish_reason?: string;
};

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const act of cleanUp.splice(0)) await act();
});

interface Ran {
  readonly outcome: BenchOutcome;
  readonly server: OracleServer;
  readonly events: readonly Event[];
  readonly read: (name: string) => unknown;
}

type RunOptions = SmallRunOptions & { readonly run?: Partial<BenchRun>; readonly oracle?: OracleOptions };

async function bench(script: OracleScript, options: RunOptions = {}): Promise<Ran> {
  const server = await startOracle(script, options.oracle);
  cleanUp.push(() => server.close());
  const small = writeSmallRun(server.url, options);
  cleanUp.push(() => rmSync(small.folder, { recursive: true }));
  const outcome = await runBench({ config: small.configPath, reportDir: small.reportDir, ...options.run });
  const text = (name: string): string => readFileSync(join(small.reportDir, name), 'utf8');
  const events = text('events.jsonl')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Event);
  return { outcome, server, events, read: (name) => JSON.parse(text(name)) };
}

const sessionOf = ({ rawHeaders }: OracleRequest): string =>
  rawHeaders[rawHeaders.indexOf('X-Session-ID') + 1] ?? '';
const turnOf = ({ json }: OracleRequest): number =>
  (json.messages as { role: string }[]).filter(({ role }) => role === 'assistant').length;
const callsOf = (request: OracleRequest) =>
  (recordedCommands[sessionOf(request).replace(/__repeat_\d+$/, '')]?.[turnOf(request)] ?? []).map(
    (command) => ({ name: 'bash', arguments: JSON.stringify({ command }) }),
  );
const replayRecorded =
  (extra: OracleAnswer = {}): OracleScript =>
  (request) => ({ deltas: callDeltas(callsOf(request)), finishReason: 'tool_calls', ...extra });

describe('a replay whose answers are the recorded ones', () => {
  it('scores 1, misses nothing and writes every file', async () => {
    const { outcome, server, read } = await bench(replayRecorded());
    expect(outcome.scores).toMatchObject({
      score: 1,
      turns: { issued: 5, expected: 4, observed: 4, missing: 0, scored: 4 },
    });
    expect(outcome.scores?.excluded_turns).toEqual([
      { conversation_id: 'beta', turn: 4, domain: 'coding', exclude_reason: 'no ground truth' },
    ]);
    expect(outcome.summary).toMatchObject({
      n_samples_issued: 5,
      n_samples_completed: 5,
      n_samples_failed: 0,
      state: 'complete',
      finish_reason_counts: { tool_calls: 5 },
    });
    expect(server.requests).toHaveLength(5);
    expect(server.connections).toBe(1);
    const files = [
      'config.yaml',
      'events.jsonl',
      'sample_idx_map.json',
      'scores.json',
      'report.txt',
      'report.html',
      'report.json',
      'metrics/final_snapshot.json',
      'performance/result_summary.json',
      'accuracy/accuracy_results.json',
    ];
    expect(files.filter((file) => !existsSync(join(outcome.reportDir, file)))).toEqual([]);
    expect(Object.values((read('sample_idx_map.json') as { performance: object }).performance)).toEqual([
      0, 1, 2, 3, 4,
    ]);
  });

  it('sends the recorded history unchanged, with the headers in official order', async () => {
    const { server } = await bench(replayRecorded());
    const [first, , third] = server.requests;
    expect(first?.body).toMatch(
      /^\{"model":"M","messages":\[\{"role":"system","content":"You are careful."\},\{"role":"user","content":"Fix it, s’il te plaît"\}\],"temperature":0.0,"max_completion_tokens":1024,"stream":true,"seed":42,"tools":\[.*"weight":1.0.*\]\}$/,
    );
    expect(third?.body).toContain(
      '{"role":"assistant","tool_calls":[{"id":"functions.bash:1","type":"function"',
    );
    expect(third?.body).toContain(
      '"reasoning_content":"Search."},{"role":"tool","content":"none","tool_call_id":"functions.bash:1"},{"role":"tool","content":"x = 1","tool_call_id":"functions.bash:2"}],',
    );
    expect(third?.body).not.toContain('"content":null');
    const names = first?.rawHeaders
      .filter((_, i) => i % 2 === 0)
      .map((name) => name.toLowerCase())
      .filter((name) => name !== 'connection');
    expect(names).toEqual(['host', 'content-type', 'accept', 'x-session-id', 'content-length']);
  });

  it('logs each turn as issued, first chunk, complete, in the order of time', async () => {
    const { events } = await bench(replayRecorded());
    const kinds = events.map(({ event_type }) => event_type);
    const turn = ['sample.issued', 'sample.recv_first', 'sample.complete'];
    expect(kinds).toEqual([
      'session.started',
      'session.start_performance_tracking',
      ...turn,
      ...turn,
      ...turn,
      ...turn,
      ...turn,
      'session.stop_performance_tracking',
      'session.ended',
    ]);
    const times = events.map(({ timestamp_ns }) => timestamp_ns);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    const [issued, , complete] = events.slice(2);
    expect(issued?.data?.slice(0, 3)).toEqual(['PromptData', null, null]);
    expect(issued?.data).toHaveLength(8);
    expect(complete).toMatchObject({ conversation_id: 'alpha', turn: 1, finish_reason: 'tool_calls' });
    expect(complete?.data?.[1]).toEqual([]);
  });

  it('counts lengths with the tokenizer that is named, and tokens after the first delta in the fallback form', async () => {
    const { outcome } = await bench(replayRecorded(), { run: { tokenizer: 'models/copse-tiny' } });
    const {
      input_sequence_lengths: input,
      output_sequence_lengths: output,
      tpot,
    } = outcome.summary as unknown as Record<string, { total: number; min: number }>;
    expect(input?.min).toBeGreaterThan(100);
    expect(output?.min).toBeGreaterThan(5);
    expect(tpot?.min).toBeGreaterThan(0);
    expect(outcome.summary?.tps).toBeGreaterThan(0);
  });

  it('has no time per token when a call comes in one delta', async () => {
    const { outcome } = await bench((request) => ({ deltas: [wholeCallDelta(callsOf(request))] }), {
      run: { tokenizer: 'models/copse-tiny' },
    });
    expect(outcome.scores?.score).toBe(1);
    expect(outcome.summary?.tpot).toEqual({ early_stopping_percentiles: expect.anything() });
    expect(Object.keys(outcome.summary?.ttft ?? {})).toContain('total');
  });

  it('reads answers cut anywhere, inside characters and JSON', async () => {
    for (const pieceBytes of [1, 3, 7]) {
      const { outcome } = await bench(replayRecorded({ pieceBytes }));
      expect(outcome.scores?.score).toBe(1);
    }
  });
});

describe('failures', () => {
  const failing =
    (answer: OracleAnswer): OracleScript =>
    (request) =>
      sessionOf(request) === 'alpha' && turnOf(request) === 1 ? answer : replayRecorded()(request);

  it.each<[string, OracleAnswer, RegExp]>([
    [
      'a status of 500',
      { status: 500, raw: '{"error":"boom"}', contentType: 'application/json' },
      /^HTTP 500: \{"error":"boom"\}$/,
    ],
    ['a dropped connection', { drop: 'before' }, /SocketError/],
    ['a connection dropped half-way', { deltas: [{ content: 'x' }], drop: 'after' }, /Error/],
  ])('%s ends the conversation and no other', async (_, answer, message) => {
    const { outcome, events, server } = await bench(failing(answer));
    expect(outcome.summary).toMatchObject({
      n_samples_issued: 5,
      n_samples_completed: 5,
      n_samples_failed: 2,
      state: 'complete',
    });
    expect(outcome.scores).toMatchObject({
      score: 0.5,
      turns: { issued: 5, expected: 4, observed: 2, missing: 2 },
    });
    expect(server.requests).toHaveLength(4);
    const errors = events.filter(({ event_type }) => event_type === 'error.generic');
    expect(errors.map(({ data }) => data?.[2])).toEqual([
      expect.stringMatching(message),
      'turn 3 of alpha failed',
    ]);
    expect(errors[1]?.data?.[1]).toBe('TurnAbortedByPriorFailure');
    for (const { sample_uuid } of errors) {
      const own = events
        .filter((event) => event.sample_uuid === sample_uuid)
        .map(({ event_type }) => event_type);
      expect(own.filter((kind) => kind !== 'sample.recv_first')).toEqual([
        'sample.issued',
        'error.generic',
        'sample.complete',
      ]);
    }
    expect(outcome.report.turns?.missing).toBe(2);
  });

  it('a turn that never ends times out; its request is not cancelled and blocks the one connection', async () => {
    const { outcome, events, server } = await bench(failing({ deltas: [{ content: 'a' }], hang: true }), {
      timeoutSeconds: 0.3,
    });
    expect(server.requests).toHaveLength(2);
    const types = events
      .filter(({ event_type }) => event_type === 'error.generic')
      .map(({ data }) => data?.[1]);
    expect(types).toEqual([
      'TurnTimeout',
      'TurnAbortedByPriorFailure',
      'TurnTimeout',
      'TurnAbortedByPriorFailure',
    ]);
    expect(outcome.summary).toMatchObject({ n_samples_completed: 5, n_samples_failed: 4 });
  });

  it('an error event inside a stream of status 200 is an empty success', async () => {
    const { outcome } = await bench(failing({ raw: 'data: {"error":{"message":"no"}}\n\ndata: [DONE]\n\n' }));
    expect(outcome.summary?.n_samples_failed).toBe(0);
    expect(outcome.scores).toMatchObject({ turns: { observed: 4, missing: 0 }, score: 0.75 });
  });
});

describe('scheduling', () => {
  it('repeats conversations under ids of their own and routes by them', async () => {
    const { server, outcome } = await bench(replayRecorded(), { agentic: ['num_trajectories_to_issue: 3'] });
    expect([...new Set(server.requests.map(sessionOf))]).toEqual(['alpha', 'beta', 'alpha__repeat_2']);
    expect(
      outcome.scores?.per_turn.map(({ conversation_id, repeat, turn }) => [conversation_id, repeat, turn]),
    ).toEqual([
      ['alpha', 1, 2],
      ['alpha', 1, 4],
      ['alpha', 1, 6],
      ['alpha', 2, 2],
      ['alpha', 2, 4],
      ['alpha', 2, 6],
      ['beta', 1, 2],
    ]);
  });

  it('runs conversations side by side, and measures until the first slot finds none left', async () => {
    const slowAlpha: OracleScript = (request) =>
      replayRecorded({ delayMs: sessionOf(request) === 'alpha' ? 60 : 0 })(request);
    const { outcome, events, server } = await bench(slowAlpha, { concurrency: 2 });
    expect(server.connections).toBeGreaterThanOrEqual(2);
    expect(outcome.summary).toMatchObject({ n_samples_issued: 3, n_samples_completed: 3 });
    expect(outcome.scores?.turns.issued).toBe(5);
    const stop = events.findIndex(({ event_type }) => event_type === 'session.stop_performance_tracking');
    expect(events.slice(stop).filter(({ event_type }) => event_type === 'sample.issued')).toHaveLength(2);
  });

  it('stops issuing when the first slot finds none left, if asked', async () => {
    const slowAlpha: OracleScript = (request) =>
      replayRecorded({ delayMs: sessionOf(request) === 'alpha' ? 60 : 0 })(request);
    const { server } = await bench(slowAlpha, {
      concurrency: 2,
      agentic: ['stop_issuing_on_first_user_complete: true'],
    });
    expect(server.requests).toHaveLength(3);
  });

  it('waits for the tool where asked, and salts each pass apart', async () => {
    const { server, events } = await bench(replayRecorded(), {
      agentic: ['inject_tool_delay: true', 'enable_salt: true', 'num_trajectories_to_issue: 3'],
    });
    const system = (request: OracleRequest | undefined): unknown =>
      (request?.json.messages as { content: string }[] | undefined)?.[0]?.content;
    expect(system(server.requests[0])).toMatch(
      /^\[salt: 4461\]\n\nYou are careful\.\n\n\[salt: [0-9a-f]{4}\]$/,
    );
    expect(system(server.requests[5])).toMatch(/^\[salt: (?!4461)[0-9a-f]{4}\]\n\nYou are careful\./);
    expect(
      JSON.stringify(events.find(({ event_type }) => event_type === 'sample.issued')?.data?.[3]),
    ).toContain('[salt: 4461]');
    const [one, two] = events.filter(({ event_type }) => event_type === 'sample.issued');
    expect((two?.timestamp_ns ?? 0) - (one?.timestamp_ns ?? 0)).toBeGreaterThan(45e6);
  });

  it('ends at the longest allowed duration; what is unanswered then is missing', async () => {
    const { outcome } = await bench(replayRecorded({ delayMs: 80 }), { runtime: ['max_duration_ms: 100'] });
    expect(outcome.summary).toMatchObject({ n_samples_issued: 2, n_samples_completed: 2, state: 'complete' });
  });

  it('keeps complete files when it is interrupted', async () => {
    const abort = new AbortController();
    const script: OracleScript = (request) => {
      if (request.index === 2) setTimeout(() => abort.abort(), 20);
      return replayRecorded(request.index === 2 ? { hang: true } : {})(request);
    };
    const { outcome, read } = await bench(script, { run: { signal: abort.signal } });
    expect(outcome.interrupted).toBe(true);
    expect(read('performance/result_summary.json')).toMatchObject({
      state: 'interrupted',
      complete: false,
      n_samples_issued: 3,
      n_samples_completed: 2,
    });
    expect(read('scores.json')).toMatchObject({ turns: { issued: 3, expected: 3, observed: 2, missing: 1 } });
  });
});

describe('what the server says of its cache', () => {
  it('comes from its metrics page, turn by turn, without another word in the requests', async () => {
    let [queries, hits] = [1000, 500];
    const metrics = (): string =>
      `# HELP x\nvllm:prefix_cache_queries_total{engine="0"} ${queries}\nvllm:prefix_cache_hits_total{engine="0"} ${hits}\n`;
    const script: OracleScript = (request) => {
      queries += 100;
      hits += 10 * request.index;
      return replayRecorded()(request);
    };
    const { outcome } = await bench(script, { oracle: { metrics } });
    expect(
      outcome.report.perTurn.map(({ promptTokens, cachedTokens }) => [promptTokens, cachedTokens]),
    ).toEqual([
      [100, 0],
      [100, 10],
      [100, 20],
      [100, 30],
      [100, 40],
    ]);
    expect(outcome.report.cache).toMatchObject({ promptTokens: 500, cachedTokens: 100, share: 0.2 });
  });

  it('is not reported where there is no page', async () => {
    const { outcome } = await bench(replayRecorded());
    expect(outcome.report.cache).toBeNull();
    expect(readFileSync(join(outcome.reportDir, 'report.txt'), 'utf8')).toContain(
      'not reported by the server',
    );
  });

  it('comes with the answer where the server adds it as a comment', async () => {
    const raw =
      'data: {"choices":[{"delta":{"content":"ok"}}]}\n\n: usage {"prompt_tokens":50,"cached_tokens":40,"steps":2}\n\ndata: [DONE]\n\n';
    const { outcome } = await bench(() => ({ raw }));
    expect(outcome.report.cache).toMatchObject({ promptTokens: 250, cachedTokens: 200 });
    expect(outcome.report.perTurn[0]?.steps).toBe(2);
  });
});
