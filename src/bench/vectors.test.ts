/** Verdicts of the official code on inputs written for this project, and the hashes of its requests. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { publicData } from '../../test/support/public-data.ts';
import { parseBenchConfig } from './run/config.ts';
import { loadConversations } from './run/dataset.ts';
import { pythonRound } from './run/python.ts';
import { type Turn, turnsOf } from './run/wire.ts';
import { earlyStopping, minPassing, overLatencyCount } from './score/early-stopping.ts';
import { executablesOf, executablesOfCalls, intersectionOverUnion } from './score/executables.ts';

const vectors = JSON.parse(
  readFileSync(new URL('../../test/golden/edge-agentic-vectors.json', import.meta.url), 'utf8'),
);
const trace = publicData('edge-agentic/agentic_coding_2.5h.jsonl');
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const config = parseBenchConfig(
  `name: t
type: online
model_params: {name: M, temperature: 0, seed: 42, max_new_tokens: 1024}
datasets: [{name: a, type: performance, path: x}]
settings: {load_pattern: {type: agentic_inference}}
endpoint_config: {endpoints: ["http://localhost:1"]}
report_dir: r
`,
  't.yaml',
);

describe('executables', () => {
  it.each(vectors.executables as [string, string[]][])('of %j', (command, expected) => {
    expect(executablesOf(command)).toEqual(expected);
  });

  it.each(vectors.executables_calls as [unknown[], string[]][])('of the calls %j', (calls, expected) => {
    expect(executablesOfCalls(calls)).toEqual(expected);
  });
});

describe('early stopping', () => {
  it('needs the official number of samples', () => {
    for (const [p, floor] of Object.entries(vectors.early_stopping_min_queries as Record<string, number>)) {
      expect(minPassing(1, Number(p)) + 1).toBe(floor);
    }
    expect([minPassing(0, 99), minPassing(0, 90), minPassing(1, 99)]).toEqual([459, 44, 661]);
  });

  it('allows the official number of samples above the estimate', () => {
    for (const [key, counts] of Object.entries(
      vectors.early_stopping_t as Record<string, Record<string, number>>,
    )) {
      for (const [p, t] of Object.entries(counts))
        expect(overLatencyCount(Number(key.slice(2)), Number(p))).toBe(t);
    }
  });

  it('gives null where there are too few samples', () => {
    const values = Array.from({ length: 27 }, (_, i) => i + 1);
    expect(earlyStopping(values)).toMatchObject({ '99.9': null, '80.0': null, '75.0': 27, '50.0': 21 });
  });
});

describe('rounding', () => {
  it('sends exact ties to the even digit, and only exact ones', () => {
    expect([0.03125, 0.09375, 2.675, -0.03125, 1e21].map((x) => pythonRound(x, 4))).toEqual([
      0.0312, 0.0938, 2.675, -0.0312, 1e21,
    ]);
    expect(pythonRound(2.675, 2)).toBe(2.67);
    expect([0.5, 1.5, 2.5].map((x) => pythonRound(x, 0))).toEqual([0, 2, 2]);
  });
});

describe.skipIf(trace === null)('the official trace', () => {
  const conversations = trace === null ? [] : loadConversations(trace);
  let sample = 0;
  const turns: Turn[] = conversations.flatMap((conversation) => {
    const list = turnsOf(conversation, config, sample);
    sample += list.length;
    return list;
  });

  it('becomes the official requests, byte for byte', () => {
    const { perf } = vectors.request_bodies;
    const bytes = turns.map(({ body }) => Buffer.byteLength(body));
    expect(turns.length).toBe(perf.count);
    expect([Math.max(...bytes), bytes.reduce((a, b) => a + b, 0)]).toEqual([
      perf.max_bytes,
      perf.total_bytes,
    ]);
    expect(sha256(turns[0]?.body ?? '')).toBe(perf.first.sha256);
    expect(sha256(turns.at(-1)?.body ?? '')).toBe(perf.last.sha256);
    expect(sha256(turns.map(({ body }) => body).join(''))).toBe(perf.sha256_of_concatenation);
  });

  it('scores made-up answers as the official scorer does', () => {
    const expected = vectors['iou_aggregates_over_agentic_coding_2.5h'];
    const recorded = turns.map(
      ({ recorded }) => recorded?.json.tool_calls as { function: { arguments: string } }[],
    );
    const truth = recorded.map(executablesOfCalls);
    const call = (command: string) => [
      { function: { name: 'bash', arguments: JSON.stringify({ command }) } },
    ];
    const mean = (answers: (i: number) => unknown): number => {
      const scored = truth.flatMap((gt, i) =>
        gt.length === 0 ? [] : [intersectionOverUnion(gt, executablesOfCalls(answers(i)))],
      );
      return pythonRound(scored.reduce((a, b) => a + b, 0) / scored.length, 4);
    };
    const cut = (i: number) => {
      const first = recorded[i]?.[0];
      return first === undefined ? [] : call(JSON.parse(first.function.arguments).command.slice(0, 80));
    };
    expect(truth.filter((gt) => gt.length > 0).length).toBe(expected.scored_turns);
    expect({
      replay_recorded: mean((i) => recorded[i]),
      empty_output: mean(() => []),
      next_turn_of_file: mean((i) => recorded[(i + 1) % recorded.length]),
      always_ls: mean(() => call('ls -la')),
      always_python: mean(() => call('python -c "x"')),
      grep_pipe_head: mean(() => call('cd /testbed && grep -rn "foo" . | head -20')),
      first_recorded_call_only: mean((i) => recorded[i]?.slice(0, 1)),
    }).toEqual({
      replay_recorded: expected.replay_recorded,
      empty_output: expected.empty_output,
      next_turn_of_file: expected.next_turn_of_file,
      always_ls: expected.always_ls,
      always_python: expected.always_python,
      grep_pipe_head: expected.grep_pipe_head,
      first_recorded_call_only: expected.first_recorded_call_only,
    });
    expect(mean(cut)).toBe(expected.first_command_cut_to_80_chars);
    expect(mean((i) => recorded.at(i - 1))).toBe(expected.previous_turn_of_file);
  });
});
