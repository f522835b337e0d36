/**
 * Finds the chat template of a checkpoint folder and chooses its renderer: our own where the template's bytes are
 * known to mean what it does (by SHA-256), the Jinja interpreter for every other.
 */
import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadTokenizer } from '../tokenizer/index.ts';
import { UserError } from '../util/index.ts';
import { JinjaTemplate } from './jinja-template.ts';
import { type QwenDialect, QwenTemplate } from './qwen-template.ts';
import type { ChatTemplate } from './types.ts';

const published: QwenDialect = { vision: true, leadingToolOpensTurn: false, emptyArguments: false };
const bundled: QwenDialect = { vision: false, leadingToolOpensTurn: true, emptyArguments: true };

/** SHA-256 of the template text -> what our renderer must do to equal it. */
const knownTemplates: Readonly<Record<string, QwenDialect>> = {
  // Qwen3.6, as published with Qwen/Qwen3.6-27B and its quantized forms (7764 bytes).
  e84f32a23fdda27689f868aa4a1a5621f41133e51a48d7f3efcbea2839574259: published,
  // The same file with a newline at its end, as editors and some converters leave it; Jinja drops that newline.
  c726bb991c3150f3ee3d690930f43ed1e7c28dcef27cfbc6de3400db1da2a9a6: published,
  // models/copse-tiny, text only; without and with the newline at its end.
  '2941595de08bc914145fa5346033d83b7cf5e685fc90a64e9d6b893f99cc5195': bundled,
  d651bcf456c399bdea0a99d0fcd57cb84c7f67574bb1c78f9240494d0afd65ca: bundled,
};

export interface LoadTemplateOptions {
  /** 'jinja' interprets a known template too. Default 'auto'. */
  readonly renderer?: 'auto' | 'jinja';
  /** Texts of the control tokens, for templates that are interpreted; read from the folder's tokenizer if absent. */
  readonly controlTokens?: readonly string[];
}

/** chat_template.jinja of the folder, else chat_template of its tokenizer_config.json. */
export function loadTemplate(folder: string, options: LoadTemplateOptions = {}): ChatTemplate {
  const config = readConfig(join(folder, 'tokenizer_config.json'));
  const source = readSource(folder, config);
  const known = knownTemplates[createHash('sha256').update(source).digest('hex')];
  if (known && options.renderer !== 'jinja') return new QwenTemplate(known);
  const controlTokens = options.controlTokens ?? loadTokenizer(folder).controlTokens;
  try {
    return new JinjaTemplate(source, { controlTokens, variables: tokenVariables(config) });
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new UserError('bad_checkpoint', `the chat template of ${folder} cannot be read: ${reason}`, {
      cause,
    });
  }
}

type Config = Readonly<Record<string, unknown>>;

function readConfig(file: string): Config {
  if (!existsSync(file)) return {};
  try {
    const value: unknown = JSON.parse(readFileSync(file, 'utf8'));
    if (typeof value === 'object' && value !== null) return value as Config;
  } catch (cause) {
    throw new UserError('bad_checkpoint', `${file} is not valid JSON`, { cause });
  }
  throw new UserError('bad_checkpoint', `${file} does not hold a JSON object`);
}

function readSource(folder: string, config: Config): string {
  const file = join(folder, 'chat_template.jinja');
  if (existsSync(file)) return readFileSync(file, 'utf8');
  const { chat_template: inConfig } = config;
  if (typeof inConfig === 'string') return inConfig;
  const named = Array.isArray(inConfig) ? inConfig.find((entry) => entry?.name === 'default') : undefined;
  if (typeof named?.template === 'string') return named.template;
  throw new UserError(
    'bad_checkpoint',
    `${folder} has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json`,
  );
}

/** bos_token and its kind: a text, or an added token's description. */
function tokenVariables(config: Config): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const [key, value] of Object.entries(config)) {
    const content = typeof value === 'object' && value !== null && 'content' in value ? value.content : value;
    if (key.endsWith('_token') && typeof content === 'string') variables[key] = content;
  }
  return variables;
}
