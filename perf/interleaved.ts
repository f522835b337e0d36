/**
 * Ways of drafting side by side: every turn of the trace is answered by one engine per mode, one after the other in the same
 * process, so that whatever disturbs the machine disturbs all of them alike.
 *
 *   npx tsx perf/interleaved.ts CONFIG.yaml RESULT.json CONVERSATIONS MODE...      the first mode is the base of ratios
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { findData, loadBenchConfig } from '../src/bench/run/config.ts';
import { loadConversations } from '../src/bench/run/dataset.ts';

import { turnsOf } from '../src/bench/run/wire.ts';
import { buildEngine } from '../src/build/index.ts';
import type { ChatMessage, ToolDef } from '../src/chat/index.ts';
import { chatRequest, openModel } from '../src/completion/index.ts';

const [configPath, result, count, ...modes] = process.argv.slice(2);
if (configPath === undefined || result === undefined || modes.length === 0)
  throw new Error('usage: interleaved.ts CONFIG RESULT CONVERSATIONS MODE...');
const config = loadBenchConfig(configPath);
const dataset = config.datasets.find(({ type }) => type === 'performance');
const conversations = loadConversations(findData(dataset?.path ?? '', configPath)).slice(0, Number(count));
const dir = mkdtempSync(join(tmpdir(), 'copse-perf-'));
const folder = buildEngine({ checkpoint: 'models/copse-tiny', out: join(dir, 'engine'), recipe: 'nvfp4' });
const models = [];
for (const speculation of modes)
  models.push(
    await openModel({
      folder,
      worker: false,
      enableThinking: false,
      engine: { speculation, cacheBytes: 2 ** 29 },
    }),
  );
const totals = modes.map((mode) => ({
  mode,
  ms: 0,
  prefillMs: 0,
  decodeMs: 0,
  steps: 0,
  tokens: 0,
  drafted: 0,
  accepted: 0,
  answers: 0,
  differing: 0,
}));
const perConversation: { conversation: string; ms: number[] }[] = [];
for (const conversation of conversations) {
  const ms = modes.map(() => 0);
  for (const turn of turnsOf(conversation, config, 0)) {
    let reference = '';
    for (const [k, model] of models.entries()) {
      const total = totals[k] as (typeof totals)[number];
      const request = chatRequest({
        messages: turn.messages as unknown as ChatMessage[],
        tools: turn.tools as ToolDef[],
        maxTokens: 1024,
      });
      const started = performance.now();
      let text = '';
      for await (const delta of model.chat(request)) {
        if (delta.type === 'content' || delta.type === 'reasoning') text += delta.text;
        else if (delta.type === 'tool-start') text += delta.name;
        else if (delta.type === 'tool-args') text += delta.fragment;
        else if (delta.type === 'finish') {
          const { stats } = delta;
          total.prefillMs += stats.prefillMs;
          total.decodeMs += stats.decodeMs;
          total.steps += stats.steps;
          total.tokens += stats.generatedTokens;
          total.drafted += stats.draftedTokens;
          total.accepted += stats.acceptedTokens;
        }
      }
      const took = performance.now() - started;
      total.ms += took;
      ms[k] = (ms[k] ?? 0) + took;
      total.answers++;
      if (k === 0) reference = text;
      else if (text !== reference) total.differing++;
    }
  }
  perConversation.push({ conversation: conversation.id, ms });
  console.log(conversation.id, ...ms.map((value) => (value / (ms[0] ?? 1)).toFixed(3)));
}
const base = totals[0]?.ms ?? 1;
const rows = totals.map((total, k) => ({
  ...total,
  tokensPerStep: total.tokens / total.steps,
  timeAgainstBase: total.ms / base,
  decodeTimeAgainstBase: total.decodeMs / (totals[0]?.decodeMs ?? 1),
  slowestConversationAgainstBase: Math.max(...perConversation.map(({ ms }) => (ms[k] ?? 0) / (ms[0] ?? 1))),
}));
const stats = await Promise.all(models.map((model) => model.engine.stats()));
for (const model of models) await model.engine.close();
rmSync(dir, { recursive: true });
const machine = { cpu: cpus()[0]?.model.trim(), cores: cpus().length };
writeFileSync(
  result,
  `${JSON.stringify({ date: new Date().toISOString(), machine, conversations: conversations.length, rows, perConversation, speculation: stats.map(({ speculation }) => speculation) }, null, 1)}\n`,
);
console.table(rows, [
  'mode',
  'ms',
  'prefillMs',
  'decodeMs',
  'tokensPerStep',
  'timeAgainstBase',
  'decodeTimeAgainstBase',
  'slowestConversationAgainstBase',
  'differing',
]);
