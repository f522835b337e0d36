/**
 * A small recording for end-to-end tests: two conversations of three and two client turns, with reasoning, a parallel call,
 * number lexemes, non-ASCII text and line separators; and a config that points a run at an endpoint.
 */
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const bashTool =
  '[{"type":"function","function":{"name":"bash","description":"Execute a bash command","parameters":{"type":"object","properties":{"command":{"type":"string","weight":1.0}},"required":["command"]}}}]';

const call = (id: number, command: string): string =>
  `{"id":"functions.bash:${id}","type":"function","function":{"name":"bash","arguments":${JSON.stringify(JSON.stringify({ command }))}}}`;

const row = (id: string, turn: number, role: string, rest: string): string =>
  `{"conversation_id":"${id}","turn":${turn},"role":"${role}",${rest}}`;

const result = (id: number, content: string): string =>
  `{"tool_call_id":"functions.bash:${id}","content":${JSON.stringify(content)}}`;

/** Recorded commands per client turn: alpha has 3 turns, beta 2. */
export const recordedCommands: Readonly<Record<string, readonly (readonly string[])[]>> = {
  alpha: [['ls -la'], ['grep -rn "naïve\u2028" src | head -5', 'cat a.py'], ['python -m pytest']],
  beta: [['git status'], ['echo done > x']],
};

export const smallDataset: string = [
  row(
    'alpha',
    1,
    'user',
    `"content":"Fix it, s’il te plaît","system":"You are careful.","tools":${bashTool}`,
  ),
  row('alpha', 2, 'assistant', `"reasoning_content":"Look first.","tool_calls":[${call(0, 'ls -la')}]`),
  row('alpha', 3, 'tool', `"tool_results":[${result(0, 'a.py')}],"delay_seconds":0.05`),
  row(
    'alpha',
    4,
    'assistant',
    `"reasoning_content":"Search.","tool_calls":[${call(1, 'grep -rn "naïve\u2028" src | head -5')},${call(2, 'cat a.py')}]`,
  ),
  row('alpha', 5, 'tool', `"tool_results":[${result(1, 'none')},${result(2, 'x = 1')}],"delay_seconds":0.05`),
  row('alpha', 6, 'assistant', `"reasoning_content":"Test.","tool_calls":[${call(3, 'python -m pytest')}]`),
  row('beta', 1, 'user', `"content":"What changed?","system":"You are careful.","tools":${bashTool}`),
  row('beta', 2, 'assistant', `"reasoning_content":"Ask git.","tool_calls":[${call(0, 'git status')}]`),
  row('beta', 3, 'tool', `"tool_results":[${result(0, 'clean')}],"delay_seconds":0.05`),
  row('beta', 4, 'assistant', `"reasoning_content":"Note it.","tool_calls":[${call(1, 'echo done > x')}]`),
  '',
].join('\n');

export interface SmallRun {
  readonly folder: string;
  readonly configPath: string;
  readonly reportDir: string;
}

export interface SmallRunOptions {
  readonly concurrency?: number;
  /** Lines of YAML under the dataset's `agentic_inference`, at its indent. */
  readonly agentic?: readonly string[];
  /** Further top-level keys or settings, as YAML text. */
  readonly runtime?: readonly string[];
  readonly dataset?: string;
  /** Default 20. */
  readonly timeoutSeconds?: number;
}

/** A fresh folder with the recording and its config. */
export function writeSmallRun(endpoint: string, options: SmallRunOptions = {}): SmallRun {
  const folder = mkdtempSync(join(tmpdir(), 'bench-'));
  mkdirSync(join(folder, 'data'));
  writeFileSync(join(folder, 'data', 'small.jsonl'), options.dataset ?? smallDataset);
  const configPath = join(folder, 'run.yaml');
  writeFileSync(configPath, smallConfig(endpoint, options));
  return { folder, configPath, reportDir: join(folder, 'report') };
}

export function smallConfig(
  endpoint: string,
  { concurrency = 1, agentic = [], runtime = [], timeoutSeconds = 20 }: SmallRunOptions,
): string {
  return [
    'name: small',
    'version: "1.0"',
    'type: online',
    'model_params:',
    '  name: M',
    '  temperature: 0',
    '  seed: 42',
    '  max_new_tokens: 1024',
    'datasets:',
    '  - name: small_coding',
    '    type: performance',
    '    path: data/small.jsonl',
    '    accuracy_config:',
    '      eval_method: agentic_inference_inline',
    '    agentic_inference:',
    `      turn_timeout_s: ${timeoutSeconds}`,
    ...agentic.map((line) => `      ${line}`),
    'settings:',
    '  runtime:',
    '    dataloader_random_seed: 42',
    ...runtime.map((line) => `    ${line}`),
    '  load_pattern:',
    '    type: agentic_inference',
    `    target_concurrency: ${concurrency}`,
    '  client:',
    '    num_workers: 1',
    `    max_connections: ${concurrency}`,
    'endpoint_config:',
    `  endpoints: ["${endpoint}"]`,
    'report_dir: report',
    '',
  ].join('\n');
}
