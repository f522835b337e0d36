/** `copse chat`: a conversation in the terminal, with what each answer cost. */
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import pc from 'picocolors';
import type { ChatMessage } from '../chat/index.ts';
import { type ChatRequest, type Completion, type Delta, openModel } from '../completion/index.ts';
import { defaultSampling } from '../sampling/index.ts';
import { engineFolderOf } from './model.ts';
import {
  addEngineFlags,
  type EngineFlags,
  engineOptionsOf,
  parseCount,
  reasoningOption,
  thinkingOf,
} from './options.ts';

interface ChatFlags extends EngineFlags {
  readonly reasoning: string;
  readonly system?: string;
  readonly temperature: number;
  readonly maxTokens: number;
}

export function addChat(program: Command): void {
  const command = program
    .command('chat')
    .description('talk to a model in the terminal; an empty line or Ctrl-D ends')
    .argument('<model>', 'checkpoint folder or engine folder')
    .option('--system <text>', 'system message')
    .option('--temperature <t>', 'sampling temperature', Number, 0)
    .option('--max-tokens <n>', 'tokens of an answer', parseCount(1, 2 ** 24), 1024)
    .addOption(reasoningOption());
  addEngineFlags(command).action(chat);
}

async function chat(model: string, flags: ChatFlags): Promise<void> {
  const folder = await engineFolderOf(model, { recipe: flags.recipe, quiet: false });
  const completion = await openModel({
    folder,
    engine: engineOptionsOf(flags),
    enableThinking: thinkingOf(flags.reasoning),
  });
  const messages: ChatMessage[] =
    flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  terminal.setPrompt(pc.bold('> '));
  terminal.prompt();
  for await (const line of terminal) {
    if (line.trim() === '') break;
    messages.push({ role: 'user', content: line });
    messages.push(await answer(completion, messages, flags));
    terminal.prompt();
  }
  terminal.close();
  await completion.engine.close();
}

async function answer(
  completion: Completion,
  messages: readonly ChatMessage[],
  flags: ChatFlags,
): Promise<ChatMessage> {
  const request: ChatRequest = {
    messages,
    tools: null,
    toolChoice: { mode: 'auto', names: null },
    format: null,
    enableThinking: null,
    preserveThinking: null,
    templateKwargs: {},
    maxTokens: flags.maxTokens,
    sampling: { ...defaultSampling, temperature: flags.temperature },
    stop: [],
    topLogprobs: null,
  };
  const started = performance.now();
  let first = 0;
  let [content, reasoning] = ['', ''];
  for await (const delta of completion.chat(request)) {
    if (first === 0 && delta.type !== 'start') first = performance.now();
    if (delta.type === 'content') content += delta.text;
    if (delta.type === 'reasoning') reasoning += delta.text;
    print(delta, { started, first });
  }
  return { role: 'assistant', content, ...(reasoning === '' ? {} : { reasoning_content: reasoning }) };
}

function print(delta: Delta, { started, first }: { started: number; first: number }): void {
  if (delta.type === 'content') process.stdout.write(delta.text);
  else if (delta.type === 'reasoning') process.stdout.write(pc.dim(delta.text));
  else if (delta.type === 'finish') {
    const { usage } = delta;
    const seconds = (performance.now() - first) / 1000;
    const speed = seconds > 0 ? (usage.completionTokens / seconds).toFixed(1) : '–';
    const reuse = `${usage.cachedTokens} of ${usage.promptTokens} prompt tokens reused`;
    process.stdout.write(
      pc.dim(
        `\n[${usage.completionTokens} tokens, ${speed} tok/s, TTFT ${(first - started).toFixed(0)} ms, ${reuse}]\n`,
      ),
    );
  }
}
