/**
 * The recorded conversations: one JSON object a line, checked before the first request is sent. Values keep their number
 * lexemes, since tools and tool calls pass through to the wire unchanged.
 */
import { readFileSync } from 'node:fs';
import { isJsonObject, type JsonObject, type JsonValue, parseLossless } from '../../chat/index.ts';
import { UserError } from '../../util/index.ts';

export interface DataRow {
  readonly line: number;
  readonly role: 'user' | 'assistant' | 'tool';
  readonly turn: number;
  readonly json: JsonObject;
}

export interface Conversation {
  readonly id: string;
  /** In turn order. */
  readonly rows: readonly DataRow[];
}

const follows: Record<string, readonly string[]> = {
  start: ['user'],
  user: ['assistant'],
  assistant: ['tool', 'user'],
  tool: ['assistant', 'user'],
};

export function loadConversations(path: string): Conversation[] {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new UserError('bad_dataset', `can not read ${path}: ${(cause as Error).message}`, { cause });
  }
  return parseConversations(text, path);
}

/** Throws UserError('bad_dataset') with the line and the rule. */
export function parseConversations(text: string, path: string): Conversation[] {
  const grouped = new Map<string, DataRow[]>();
  let current: string | null = null;
  let hasContent = false;
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const at = `${path}:${i + 1}`;
    const json = parseLine(line, at);
    if (json._type === 'dataset_metadata') continue;
    hasContent ||= 'content' in json;
    const { id, row } = readRow(json, i + 1, at);
    const rows = grouped.get(id) ?? [];
    if (rows.length > 0 && current !== id) throw bad(at, `the rows of conversation '${id}' are not together`);
    rows.push(row);
    grouped.set(id, rows);
    current = id;
  }
  if (grouped.size === 0) throw bad(path, 'holds no conversation');
  if (!hasContent) throw bad(path, "no row has the key 'content'");
  return [...grouped].map(([id, rows]) => ({ id, rows: checkedRows(rows, path) }));
}

/** In turn order: the file may have them in another. */
function checkedRows(rows: readonly DataRow[], path: string): DataRow[] {
  const sorted = [...rows].sort((a, b) => a.turn - b.turn);
  for (const [i, row] of sorted.entries()) checkRow(row, sorted[i - 1] ?? null, i + 1, `${path}:${row.line}`);
  return sorted;
}

const bad = (at: string, message: string): UserError => new UserError('bad_dataset', `${at}: ${message}`);

function parseLine(line: string, at: string): JsonObject {
  let json: JsonValue;
  try {
    json = parseLossless(line);
  } catch (error) {
    throw bad(at, `is not JSON: ${(error as Error).message}`);
  }
  if (!isJsonObject(json)) throw bad(at, 'is not a JSON object');
  return json;
}

function readRow(json: JsonObject, line: number, at: string): { id: string; row: DataRow } {
  const { conversation_id: given, turn, role } = json;
  // The official reader turns a numeric id into its decimal text.
  const id = typeof given === 'number' ? String(given) : given;
  if (typeof id !== 'string' || !/^[\x20-\x7e]+$/.test(id))
    throw bad(at, `conversation_id is ${JSON.stringify(id)}, expected printable ASCII`);
  if (typeof turn !== 'number' || !Number.isInteger(turn))
    throw bad(at, `turn is ${JSON.stringify(turn)}, expected a whole number`);
  if (role !== 'user' && role !== 'assistant' && role !== 'tool')
    throw bad(at, `role is ${JSON.stringify(role)}, expected user, assistant or tool`);
  return { id, row: { line, role, turn, json } };
}

function checkRow(row: DataRow, before: DataRow | null, expectedTurn: number, at: string): void {
  const { role, turn, json } = row;
  if (turn !== expectedTurn) throw bad(at, `turn is ${turn}, expected ${expectedTurn}`);
  const last = before?.role ?? 'start';
  if (!follows[last]?.includes(role))
    throw bad(at, `a ${role} row follows ${last === 'start' ? 'nothing' : `a ${last} row`}`);
  const calls = before?.json.tool_calls;
  const hasCalls = Array.isArray(calls) && calls.length > 0;
  if (role === 'user') {
    if (!isFilled(json.content)) throw bad(at, 'the content of a user row is empty');
    if (before?.role === 'assistant' && hasCalls)
      throw bad(at, 'a user row follows an assistant row with tool calls');
  } else if (role === 'tool') {
    if (before?.role === 'assistant' && !hasCalls)
      throw bad(at, 'a tool row follows an assistant row without tool calls');
    checkResults(json.tool_results, at);
  } else {
    checkCalls(json, at);
  }
}

const isFilled = (value: JsonValue | undefined): boolean =>
  typeof value === 'string' ? value !== '' : Array.isArray(value) && value.length > 0;

function checkResults(results: JsonValue | undefined, at: string): void {
  if (!Array.isArray(results) || results.length === 0) throw bad(at, 'tool_results is not a filled list');
  for (const result of results) {
    if (!isJsonObject(result) || typeof result.tool_call_id !== 'string' || result.tool_call_id === '')
      throw bad(at, 'a tool result has no tool_call_id');
    if (!('content' in result)) throw bad(at, `the result of '${result.tool_call_id}' has no content`);
  }
}

function checkCalls(json: JsonObject, at: string): void {
  const { tool_calls: calls, content } = json;
  if (calls === undefined || calls === null) {
    if (!isFilled(content)) throw bad(at, 'an assistant row has neither content nor tool calls');
    return;
  }
  if (!Array.isArray(calls) || calls.length === 0) throw bad(at, 'tool_calls is not a filled list');
  for (const call of calls) {
    const fn = isJsonObject(call) ? call.function : null;
    if (!isJsonObject(call) || typeof call.id !== 'string' || call.type !== 'function' || !isJsonObject(fn))
      throw bad(at, 'a tool call is not {id, type: "function", function}');
    if (typeof fn.name !== 'string' || fn.name === '')
      throw bad(at, `the function of call '${call.id}' has no name`);
    if (typeof fn.arguments !== 'string' && !isJsonObject(fn.arguments))
      throw bad(at, `the arguments of call '${call.id}' are neither text nor an object`);
  }
}
