/** The inline accuracy of the performance phase: which programs the model ran, against those of the recording. */

import { byCodePoint, pythonRound } from '../run/python.ts';
import type { Sample } from '../run/replay.ts';
import type { Turn } from '../run/wire.ts';
import { executablesOfCalls, intersectionOverUnion } from './executables.ts';

export interface TurnScore {
  readonly conversation_id: string;
  readonly repeat: number;
  /** Turn number of the recorded assistant row. */
  readonly turn: number;
  readonly domain: string;
  readonly missing?: true;
  readonly gt_actions: readonly string[];
  readonly model_actions: readonly string[];
  readonly score: number;
}

export interface Scores {
  readonly score: number | null;
  readonly turns: { issued: number; expected: number; observed: number; missing: number; scored: number };
  readonly domains: Record<string, { score: number; scored: number }>;
  readonly per_turn: readonly TurnScore[];
  readonly excluded_turns?: readonly {
    conversation_id: string;
    turn: number;
    domain: string;
    exclude_reason: string;
  }[];
}

/** Conversations of the workflow domain are scored by intents, those of the coding domain by programs. */
export const isWorkflow = (id: string): boolean => /^sim_\d+$/.test(id);

const domainOf = (id: string): 'workflow' | 'coding' => (isWorkflow(id) ? 'workflow' : 'coding');

const mean = (values: readonly number[]): number =>
  values.reduce((sum, value) => sum + value, 0) / values.length;

/** Scores of the issued turns; those of a recording without programs are left out and listed. */
export function scoreTurns(samples: readonly Sample[], conversations: readonly (readonly Turn[])[]): Scores {
  const scored: (TurnScore & { pass: number; clientTurn: number })[] = [];
  for (const { turn, pass, answer } of samples) {
    const expected = executablesOfCalls(turn.recorded?.json.tool_calls);
    if (turn.recorded === null || expected.length === 0) continue;
    const found = executablesOfCalls(answer?.calls ?? []);
    scored.push({
      conversation_id: turn.conversationId,
      repeat: pass,
      turn: turn.recorded.turn,
      domain: domainOf(turn.conversationId),
      ...(answer === null ? { missing: true as const } : {}),
      gt_actions: expected,
      model_actions: found,
      score: intersectionOverUnion(expected, found),
      pass,
      clientTurn: turn.turn,
    });
  }
  scored.sort(
    (a, b) =>
      byCodePoint(a.conversation_id, b.conversation_id) || a.pass - b.pass || a.clientTurn - b.clientTurn,
  );
  const missing = scored.filter((turn) => turn.missing).length;
  const excluded = conversations
    .flat()
    .filter(({ recorded }) => recorded !== null && executablesOfCalls(recorded.json.tool_calls).length === 0);
  return {
    score: scored.length === 0 ? null : pythonRound(mean(scored.map(({ score }) => score)), 4),
    turns: {
      issued: samples.length,
      expected: scored.length,
      observed: scored.length - missing,
      missing,
      scored: scored.length,
    },
    domains: domainsOf(scored),
    per_turn: scored.map(({ pass: _pass, clientTurn: _turn, ...turn }) => turn),
    ...(excluded.length === 0 ? {} : { excluded_turns: excluded.map(excludedTurn) }),
  };
}

function domainsOf(scored: readonly TurnScore[]): Scores['domains'] {
  const names = [...new Set(scored.map(({ domain }) => domain))];
  return Object.fromEntries(
    names.map((name) => {
      const scores = scored.filter(({ domain }) => domain === name).map(({ score }) => score);
      return [name, { score: pythonRound(mean(scores), 4), scored: scores.length }];
    }),
  );
}

function excludedTurn({ conversationId, recorded }: Turn) {
  return {
    conversation_id: conversationId,
    turn: recorded?.turn ?? 0,
    domain: domainOf(conversationId),
    exclude_reason: 'no ground truth',
  };
}
