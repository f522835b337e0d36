/**
 * The benchmark's YAML, official keys and defaults. Unknown keys are refused with their place in the file; the resolved form is
 * written to `config.yaml` and can be loaded again.
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, dirname, isAbsolute, join, resolve } from 'node:path';
import { type Document, isMap, isNode, isScalar, LineCounter, parseDocument, stringify } from 'yaml';
import { z } from 'zod';
import { UserError } from '../../util/index.ts';
import { type Ruleset, rulesets } from '../submit/rulesets.ts';

const count = z.number().int().min(0);
const positive = z.number().int().min(1);
/** Rulesets pin seeds of 64 bits. */
const seed = z.union([count, z.bigint().min(0n)]);

const modelParams = z.strictObject({
  name: z.string().min(1),
  tokenizer_name: z.string().min(1).optional(),
  temperature: z.number().min(0).optional(),
  top_p: z.number().min(0).max(1).optional(),
  top_k: z.number().int().optional(),
  repetition_penalty: z.number().optional(),
  presence_penalty: z.number().optional(),
  frequency_penalty: z.number().optional(),
  seed: z.number().int().optional(),
  max_new_tokens: positive.default(1024),
  streaming: z.enum(['auto', 'on', 'off']).default('auto'),
  chat_template_kwargs: z.record(z.string(), z.unknown()).optional(),
});

const agentic = z.strictObject({
  turn_timeout_s: z.number().positive().default(600),
  num_trajectories_to_issue: positive.optional(),
  enable_salt: z.boolean().default(false),
  inject_tool_delay: z.boolean().default(false),
  stop_issuing_on_first_user_complete: z.boolean().default(false),
  routing_headers: z.array(z.string().regex(/^[\w!#$%&'*+.^`|~-]+$/)).default(['X-Session-ID']),
});

export const categories = ['non_live', 'live', 'hallucination'] as const;
const percent = z.number().min(0).max(100);

const generateParams = z.strictObject({
  categories: z
    .array(z.enum(categories))
    .min(1)
    .default([...categories]),
  category_sample_pct: z.partialRecord(z.enum(categories), percent).default({}),
  subset_floor: count.default(25),
});

const accuracyConfig = z.strictObject({
  eval_method: z.enum(['agentic_inference_inline', 'bfcl_v4']),
  ground_truth: z.string().optional(),
  extractor: z.string().optional(),
  num_repeats: positive.default(1),
});

const performanceDataset = z.strictObject({
  name: z.string().min(1),
  type: z.literal('performance'),
  path: z.string().min(1),
  accuracy_config: accuracyConfig.optional(),
  agentic_inference: agentic.prefault({}),
});

const accuracyDataset = z.strictObject({
  name: z.string().min(1),
  type: z.literal('accuracy'),
  path: z.string().min(1).optional(),
  generate_params: generateParams.prefault({}),
  accuracy_config: accuracyConfig,
});

const configSchema = z.strictObject({
  name: z.string().min(1),
  version: z.string().default('1.0'),
  type: z.literal('online'),
  timeout: z.number().positive().optional(),
  submission_ref: z.strictObject({ model: z.string(), ruleset: z.string() }).optional(),
  model_params: modelParams,
  datasets: z.array(z.discriminatedUnion('type', [performanceDataset, accuracyDataset])).min(1),
  settings: z.strictObject({
    runtime: z
      .strictObject({
        min_duration_ms: count.default(0),
        max_duration_ms: count.optional(),
        dataloader_random_seed: seed.default(42),
        scheduler_random_seed: seed.default(42),
      })
      .prefault({}),
    load_pattern: z.strictObject({
      type: z.literal('agentic_inference'),
      target_concurrency: positive.default(1),
    }),
    client: z
      .strictObject({
        num_workers: positive.default(1),
        max_connections: positive.default(1),
        warmup_connections: count.default(0),
        stream_all_chunks: z.boolean().default(false),
        max_idle_time: z.number().positive().default(4),
      })
      .prefault({}),
    drain: z
      .strictObject({
        performance_timeout_s: z.number().min(0).default(240),
        accuracy_timeout_s: z.number().min(0).nullable().default(null),
        warmup_timeout_s: z.number().min(0).default(240),
        metrics_timeout_s: z.number().min(0).default(0),
      })
      .prefault({}),
    warmup: z
      .strictObject({
        enabled: z.boolean().default(false),
        n_requests: positive.nullable().default(null),
        salt: z.boolean().default(false),
        drain: z.boolean().default(false),
        warmup_random_seed: seed.default(42),
      })
      .prefault({}),
    profiling: z.strictObject({ enabled: z.boolean().default(false) }).prefault({}),
    early_stopping: z.strictObject({ enabled: z.boolean().default(true) }).prefault({}),
    service_ready_timeout_s: z.number().min(0).default(30),
  }),
  endpoint_config: z.strictObject({
    endpoints: z.array(z.url({ protocol: /^https?$/ })).min(1),
    api_type: z.literal('openai').default('openai'),
    api_key: z.string().nullable().default(null),
  }),
  audit: z.unknown().optional(),
  report_dir: z.string().min(1),
  verbose: z.boolean().default(false),
  enable_cpu_affinity: z.boolean().default(false),
});

export type BenchConfig = z.infer<typeof configSchema>;
export type PerformanceDataset = z.infer<typeof performanceDataset>;
export type AccuracyDataset = z.infer<typeof accuracyDataset>;

const bad = (message: string, param?: string): UserError =>
  new UserError('bad_config', message, param === undefined ? {} : { param });

/** Parses config text. `file` is named in errors, with line and column. */
export function parseBenchConfig(text: string, file: string): BenchConfig {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, uniqueKeys: true, intAsBigInt: true });
  const syntax = document.errors[0];
  if (syntax !== undefined)
    throw bad(
      `${file}:${syntax.linePos?.[0].line ?? 1}: ${syntax.message.split('\n')[0]?.replace(/:$/, '')}`,
    );
  const value = safeNumbers(document.toJS());
  const result = configSchema.safeParse(value);
  if (!result.success) throw schemaError(result.error.issues, { document, lines, file });
  return checkConfig(result.data, file);
}

/** Whole numbers that a double holds exactly become numbers; seeds of 64 bits stay bigints. */
function safeNumbers(value: unknown): unknown {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  if (Array.isArray(value)) return value.map(safeNumbers);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, safeNumbers(item)]));
}

interface Source {
  readonly document: Document.Parsed;
  readonly lines: LineCounter;
  readonly file: string;
}

/** The first complaint, with the line of its key or of the nearest thing around it. */
function schemaError(issues: readonly z.core.$ZodIssue[], { document, lines, file }: Source): UserError {
  const issue = issues[0];
  const unknown = issue?.code === 'unrecognized_keys' ? [issue.keys[0] ?? ''] : [];
  const path = [...(issue?.path ?? []), ...unknown].map((key) =>
    typeof key === 'symbol' ? String(key) : key,
  );
  const key = path.join('.');
  const offset = offsetOf(document, path);
  const at = offset === null ? '' : `:${lines.linePos(offset).line}`;
  const message =
    issue?.code === 'unrecognized_keys'
      ? `'${unknown[0]}' is not a key of this place`
      : (issue?.message ?? 'is not valid').replace(
          /^Invalid input: expected (.*), received undefined$/,
          'is missing, expected $1',
        );
  const found = document.getIn(path) as unknown;
  const value =
    found === null || typeof found === 'object' || found === undefined ? '' : ` (found ${String(found)})`;
  return bad(`${file}${at}: ${key === '' ? 'the file' : key}: ${message}${value}`, key);
}

function offsetOf(document: Document.Parsed, path: readonly (string | number)[]): number | null {
  for (let length = path.length; length > 0; length--) {
    const parent = document.getIn(path.slice(0, length - 1), true);
    const last = path[length - 1];
    const pair = isMap(parent)
      ? parent.items.find(({ key }) => isScalar(key) && key.value === last)
      : undefined;
    const node = isScalar(pair?.key) ? pair.key : document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return node.range[0];
  }
  return null;
}

function checkConfig(config: BenchConfig, file: string): BenchConfig {
  const { audit, settings, datasets } = config;
  if (audit !== undefined && audit !== null)
    throw bad(
      `${file}: audit: the output-caching audit accepts the load patterns max_throughput and concurrency, not agentic_inference`,
      'audit',
    );
  if (settings.warmup.enabled)
    throw bad(
      `${file}: settings.warmup.enabled: a warmup phase is not supported; start the server warm instead`,
      'settings.warmup.enabled',
    );
  const performance = datasets.filter(({ type }) => type === 'performance');
  if (performance.length > 1)
    throw bad(`${file}: datasets: ${performance.length} performance datasets, at most 1 can run`, 'datasets');
  const { submission_ref: submission } = config;
  const ruleset = submission === undefined ? null : rulesets[submission.ruleset];
  if (ruleset === undefined)
    throw bad(
      `${file}: submission_ref.ruleset: '${submission?.ruleset}' is not one of ${Object.keys(rulesets).join(', ')}`,
      'submission_ref.ruleset',
    );
  return {
    ...(ruleset === null ? config : withSeeds(config, ruleset)),
    model_params: {
      ...config.model_params,
      streaming: config.model_params.streaming === 'off' ? 'off' : 'on',
    },
  };
}

/** A round pins both seeds, and that of the warmup. */
function withSeeds(config: BenchConfig, { schedulerSeed, sampleIndexSeed }: Ruleset): BenchConfig {
  const { settings } = config;
  const seeds = { scheduler_random_seed: schedulerSeed, dataloader_random_seed: sampleIndexSeed };
  return {
    ...config,
    settings: {
      ...settings,
      runtime: { ...settings.runtime, ...seeds },
      warmup: { ...settings.warmup, warmup_random_seed: schedulerSeed },
    },
  };
}

export function loadBenchConfig(path: string): BenchConfig {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new UserError('bad_config', `can not read ${path}: ${(cause as Error).message}`, { cause });
  }
  return parseBenchConfig(text, path);
}

/** A file that a config names: from the config's or the working folder, else by its name beside the config or in the data folders. */
export function findData(path: string, configPath: string | null): string {
  const roots = [...(configPath === null ? [] : [dirname(resolve(configPath))]), process.cwd()];
  const places = isAbsolute(path) ? [path] : roots.map((root) => join(root, path));
  if (configPath !== null) places.push(join(dirname(resolve(configPath)), basename(path)));
  for (const data of [process.env.COPSE_DATA, '../shared/data'])
    if (data !== undefined)
      places.push(join(data, 'edge-agentic', basename(path)), join(data, basename(path)));
  const found = places.find((place) => existsSync(place));
  if (found === undefined)
    throw new UserError('bad_config', `${path} was not found; looked at ${places.join(', ')}`);
  return found;
}

/** Without user names and passwords in URLs. */
export function redactUrls(text: string): string {
  return text.replace(/(\w+:\/\/)[^/@\s]+@/g, '$1redacted@');
}

const secret = /^(?:api_key|.*_token|.*_key|.*password.*|.*secret.*)$/i;

/** The resolved config as YAML, without nulls and with secrets blotted out. */
export function configYaml(config: BenchConfig): string {
  const clean = (value: unknown, key = ''): unknown => {
    if (Array.isArray(value)) return value.map((item) => clean(item, key));
    if (typeof value === 'string') return secret.test(key) ? '<redacted>' : redactUrls(value);
    if (typeof value !== 'object' || value === null) return value;
    const kept = Object.entries(value).filter(([, item]) => item !== null && item !== undefined);
    return Object.fromEntries(kept.map(([name, item]) => [name, clean(item, name)]));
  };
  // The official tool reads YAML 1.1, where a bare `on` is a boolean.
  return stringify(clean(config), { version: '1.1' });
}
