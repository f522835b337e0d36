/** `copse serve`: a model behind the OpenAI API. */
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { pino } from 'pino';
import type { JsonObject } from '../chat/index.ts';
import { type Completion, openModel, openScript } from '../completion/index.ts';
import { startServer } from '../server/index.ts';
import { UserError } from '../util/index.ts';
import { engineFolderOf, modelNameOf } from './model.ts';
import {
  addEngineFlags,
  type EngineFlags,
  engineOptionsOf,
  parseBytes,
  parseCount,
  parseObject,
  reasoningOption,
  thinkingOf,
} from './options.ts';

interface ServeFlags extends EngineFlags {
  readonly script?: string;
  readonly host: string;
  readonly port: number;
  readonly apiKey?: string;
  readonly name?: string;
  readonly alias?: string[];
  readonly reasoning: string;
  readonly trustMessages?: boolean;
  readonly bodyLimit?: number;
  readonly usageDetails?: boolean;
  readonly strictContent?: boolean;
  readonly corsOrigin?: string[];
  readonly preserveThinking?: boolean;
  readonly keepVolatileLines?: boolean;
  readonly templateKwargs?: JsonObject;
  readonly json?: boolean;
}

export function addServe(program: Command): void {
  const command = program
    .command('serve')
    .description('serve a model through the OpenAI API')
    .argument(
      '[model]',
      'checkpoint folder (packed once) or engine folder; with --script, whose template is used',
    )
    .option('--script <file>', 'no model: say what a file of answers says, for tests of clients')
    .option('--host <address>', 'address to listen on', '127.0.0.1')
    .option('--port <n>', 'port, 0 = any free one', parseCount(0, 65_535), 8080)
    .option('--api-key <key>', 'key that clients must send')
    .option('--name <name>', 'model name, else that of the folder')
    .option('--alias <name...>', 'further names that requests may use, * = any')
    .addOption(reasoningOption())
    .option('--trust-messages', 'let text of messages produce control tokens, as the reference does')
    .option('--body-limit <size>', 'largest request body, else what the context could hold', parseBytes)
    .option('--usage-details', 'tell in usage.speculation what drafts did for an answer')
    .option('--strict-content', 'refuse images and files in messages, instead of a placeholder text')
    .option('--preserve-thinking', 'keep past thinking in the prompt when a request does not say')
    .option('--template-kwargs <json>', 'template variables when a request does not give them', parseObject)
    .option(
      '--keep-volatile-lines',
      'leave lines of system messages that change with every request as they are',
    )
    .option('--cors-origin <origin...>', 'origins of web pages that may ask, * = any')
    .option('--json', 'log as JSON');
  addEngineFlags(command).action(serve);
}

/** What a scripted model takes its tokenizer and template from when none is named. */
const bundledModel = fileURLToPath(new URL('../../models/copse-tiny', import.meta.url));

async function open(model: string | undefined, flags: ServeFlags): Promise<Completion> {
  const options = {
    enableThinking: thinkingOf(flags.reasoning),
    trustMessages: flags.trustMessages === true,
    preserveThinking: flags.preserveThinking === true ? true : null,
    templateKwargs: flags.templateKwargs ?? {},
    keepVolatileLines: flags.keepVolatileLines === true,
  };
  const { script, context, sequences, maxWaiting } = flags;
  if (script !== undefined)
    return openScript({
      ...options,
      script,
      folder: model ?? bundledModel,
      ...(context === 0 ? {} : { contextTokens: context }),
      maxSequences: sequences,
      maxWaiting,
    });
  if (model === undefined) throw new UserError('bad_option', 'name a model folder, or a --script');
  const folder = await engineFolderOf(model, { recipe: flags.recipe, quiet: flags.json === true });
  return openModel({ ...options, folder, engine: engineOptionsOf(flags) });
}

async function serve(model: string | undefined, flags: ServeFlags): Promise<void> {
  const completion = await open(model, flags);
  const log = flags.json ? pino() : pino({ base: null, timestamp: pino.stdTimeFunctions.isoTime });
  const { info } = completion.engine;
  const modelName = flags.name ?? (model === undefined ? 'scripted' : modelNameOf(model));
  const server = await startServer({
    completion,
    modelName,
    aliases: flags.alias ?? [],
    host: flags.host,
    port: flags.port,
    apiKey: flags.apiKey ?? null,
    bodyLimitBytes: flags.bodyLimit ?? null,
    usageDetails: flags.usageDetails === true,
    strictContent: flags.strictContent === true,
    corsOrigins: flags.corsOrigin ?? [],
    log,
  }).catch(async (error: unknown) => {
    await completion.engine.close();
    throw error;
  });
  console.log(
    `${modelName} at ${server.url}/v1 · ${info.backend} (${info.backendDetail}) · context ${info.contextTokens} tokens · ${info.maxSequences} sequences · ${info.speculation}`,
  );
  const stop = async (): Promise<void> => {
    await server.close();
    await completion.engine.close();
    process.exit(0);
  };
  process.once('SIGTERM', stop);
  process.once('SIGINT', stop);
}
