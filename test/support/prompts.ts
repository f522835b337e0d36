/** Prompts of many kinds as token ids: function-calling questions, agent turns, plain text, random ids. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Tokenizer } from '../../src/tokenizer/index.ts';
import { publicData } from './public-data.ts';

const repository = new URL('../..', import.meta.url).pathname;

export function randomIds(length: number, salt: number, vocab: number): number[] {
  let state = (salt * 2654435761 + 12345) >>> 0;
  return Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 8) % vocab;
  });
}

/** `count` prompts, a quarter of each kind; what public data would give comes from this repository's own texts where it is absent. */
export function promptsFor(tokenizer: Tokenizer, count: number): number[][] {
  const quarter = Math.ceil(count / 4);
  const encode = (text: string): number[] => [...tokenizer.encode(text, { special: 'parse' })];
  const turn = (text: string): number[] =>
    encode(`<|im_start|>user\n${text}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n`);
  const plain = readFileSync(join(repository, 'LICENSE'), 'utf8');
  const pieces = Array.from({ length: quarter }, (_, i) =>
    encode(plain.slice((i * 83) % 9000, ((i * 83) % 9000) + 400)),
  );
  const random = Array.from({ length: quarter }, (_, i) => randomIds(20 + (i % 60), i, 8000));
  const questions = functionQuestions(quarter).map(turn);
  const agent = agentTexts(quarter).map(turn);
  return [...questions, ...agent, ...pieces, ...random].slice(0, count);
}

function functionQuestions(count: number): string[] {
  const path = publicData('bfcl_v4/BFCL_v4_simple_python.json');
  if (path === null) return demoTexts('question', count);
  const lines = readFileSync(path, 'utf8').trim().split('\n').slice(0, count);
  return lines.map((line) => {
    const { question, function: functions } = JSON.parse(line);
    return `${JSON.stringify(functions[0])}\n${question[0][0].content}`;
  });
}

function agentTexts(count: number): string[] {
  const path = publicData('edge-agentic/agentic_coding_2.5h.jsonl');
  if (path === null) return demoTexts('turn', count);
  const rows = readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const results = rows
    .filter((row) => row.role === 'tool')
    .map((row) => String(row.tool_results[0].content).slice(0, 900));
  return Array.from({ length: count }, (_, i) => results[(i * 7) % results.length] ?? '');
}

function demoTexts(kind: string, count: number): string[] {
  const rows = readFileSync(join(repository, 'demo/agent-demo.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  const texts = rows
    .map((row) => String(row.content ?? row.tool_results?.[0]?.content ?? ''))
    .filter((text) => text !== '');
  // No two are alike, also where there are fewer texts than prompts.
  return Array.from({ length: count }, (_, i) => `${kind} ${i}. ${texts[i % texts.length] ?? ''}`);
}
