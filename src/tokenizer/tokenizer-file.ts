/**
 * Reads tokenizer.json (and the added tokens that only tokenizer_config.json lists) into a checked description
 * of a byte-level BPE. Everything that would change ids and is not implemented is refused by name.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { UserError } from '../util/index.ts';
import { gpt2Pattern } from './pre-tokenizer.ts';

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** A control token: hidden by `skipSpecial`, and in prompts the template's alone. */
  readonly special: boolean;
}

export interface BpeSpec {
  readonly vocab: ReadonlyMap<string, number>;
  /** In order of rank. */
  readonly merges: readonly (readonly [string, string])[];
  readonly added: readonly AddedToken[];
  readonly patterns: readonly string[];
  readonly nfc: boolean;
  /** A piece that is a vocabulary entry is taken whole, whatever the merges say. */
  readonly ignoreMerges: boolean;
}

type Json = Readonly<Record<string, unknown>>;

export function bad(message: string, param?: string, cause?: unknown): UserError {
  return new UserError('bad_checkpoint', message, param === undefined ? { cause } : { param, cause });
}

function isObject(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function readTokenizerFile(path: string): BpeSpec {
  const file = existsSync(path) && statSync(path).isDirectory() ? join(path, 'tokenizer.json') : path;
  const spec = parseTokenizerJson(readJson(file));
  const config = join(dirname(file), 'tokenizer_config.json');
  if (!existsSync(config)) return spec;
  return { ...spec, added: withConfigTokens(spec.added, readJson(config)) };
}

function readJson(file: string): Json {
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (cause) {
    throw bad(`cannot read ${file}: ${cause instanceof Error ? cause.message : cause}`, undefined, cause);
  }
  try {
    const value: unknown = JSON.parse(text);
    if (isObject(value)) return value;
  } catch (cause) {
    throw bad(
      `${file} is not valid JSON: ${cause instanceof Error ? cause.message : cause}`,
      undefined,
      cause,
    );
  }
  throw bad(`${file} does not hold a JSON object`);
}

export function parseTokenizerJson(root: Json): BpeSpec {
  const model = root.model;
  if (!isObject(model)) throw bad('tokenizer.json has no "model"', 'model');
  // Files of old versions leave the type out; merges tell BPE from the rest.
  const type = model.type ?? (Array.isArray(model.merges) ? 'BPE' : 'unknown');
  if (type !== 'BPE')
    throw bad(`tokenizer.json describes a ${type} tokenizer; copse reads byte-level BPE`, 'model');
  for (const key of ['continuing_subword_prefix', 'end_of_word_suffix', 'dropout']) {
    if (model[key]) throw bad(`tokenizer.json: model.${key} is not supported`, `model.${key}`);
  }
  return {
    vocab: readVocab(model.vocab),
    merges: readMerges(model.merges),
    added: readAdded(root.added_tokens),
    patterns: readPatterns(root.pre_tokenizer),
    nfc: readNormalizer(root.normalizer),
    ignoreMerges: model.ignore_merges === true,
  };
}

function isId(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 26;
}

function readVocab(vocab: unknown): Map<string, number> {
  if (!isObject(vocab)) throw bad('tokenizer.json: model.vocab is not an object', 'model.vocab');
  const ids = new Map<string, number>();
  for (const token in vocab) {
    const id = vocab[token];
    if (!isId(id)) throw bad(`tokenizer.json: the id of ${JSON.stringify(token)} is ${id}`, 'model.vocab');
    ids.set(token, id);
  }
  return ids;
}

function readMerges(merges: unknown): [string, string][] {
  if (!Array.isArray(merges)) throw bad('tokenizer.json: model.merges is not a list', 'model.merges');
  return merges.map((merge: unknown, rank) => {
    const [left, right, ...more]: unknown[] =
      typeof merge === 'string' ? merge.split(' ') : Array.isArray(merge) ? merge : [];
    if (typeof left === 'string' && typeof right === 'string' && more.length === 0) return [left, right];
    throw bad(`tokenizer.json: merge ${rank} is ${JSON.stringify(merge)}`, `model.merges[${rank}]`);
  });
}

function readAdded(tokens: unknown): AddedToken[] {
  if (tokens === undefined || tokens === null) return [];
  if (!Array.isArray(tokens)) throw bad('tokenizer.json: added_tokens is not a list', 'added_tokens');
  return tokens.map((token: unknown, i) => readAddedToken(token, undefined, `added_tokens[${i}]`));
}

function readAddedToken(token: unknown, idOfKey: number | undefined, where: string): AddedToken {
  if (!isObject(token)) throw bad(`tokenizer: ${where} is not an object`, where);
  const id = idOfKey ?? token.id;
  const { content } = token;
  if (!isId(id) || typeof content !== 'string' || content === '') {
    throw bad(`tokenizer: ${where} has id ${id} and content ${JSON.stringify(content)}`, where);
  }
  for (const option of ['single_word', 'lstrip', 'rstrip']) {
    if (token[option] === true)
      throw bad(`tokenizer: ${where} (${content}) sets ${option}, which is not supported`, where);
  }
  return { id, content, special: token.special === true };
}

/** tokenizer_config.json may know added tokens that tokenizer.json does not; where both do, it decides `special`. */
function withConfigTokens(added: readonly AddedToken[], config: Json): AddedToken[] {
  const byContent = new Map(added.map((token) => [token.content, token]));
  const decoder = config.added_tokens_decoder;
  if (!isObject(decoder)) return [...added];
  for (const [key, value] of Object.entries(decoder)) {
    const token = readAddedToken(value, Number(key), `added_tokens_decoder.${key}`);
    byContent.set(token.content, token);
  }
  return [...byContent.values()];
}

function steps(node: unknown, list: 'pretokenizers' | 'normalizers'): Json[] {
  if (node === null || node === undefined) return [];
  if (!isObject(node)) throw bad(`tokenizer.json: ${list} is not an object`);
  if (node.type !== 'Sequence') return [node];
  const children = node[list];
  if (!Array.isArray(children)) throw bad(`tokenizer.json: Sequence without ${list}`);
  return children.flatMap((child) => steps(child, list));
}

function readNormalizer(normalizer: unknown): boolean {
  const kinds = steps(normalizer, 'normalizers').map((step) => step.type);
  const other = kinds.find((kind) => kind !== 'NFC');
  if (other !== undefined)
    throw bad(`tokenizer.json: the normalizer ${other} is not supported`, 'normalizer');
  return kinds.length > 0;
}

function readPatterns(preTokenizer: unknown): string[] {
  const list = steps(preTokenizer, 'pretokenizers');
  if (list.at(-1)?.type !== 'ByteLevel') {
    throw bad(
      'tokenizer.json describes a BPE without a final ByteLevel pre-tokenizer; copse reads byte-level BPE',
      'pre_tokenizer',
    );
  }
  return list.flatMap((step) => {
    if (step.type === 'Split') return [splitPattern(step)];
    if (step.type !== 'ByteLevel')
      throw bad(`tokenizer.json: the pre-tokenizer ${step.type} is not supported`, 'pre_tokenizer');
    if (step.add_prefix_space === true)
      throw bad('tokenizer.json: add_prefix_space is not supported', 'pre_tokenizer');
    return step.use_regex === false ? [] : [gpt2Pattern];
  });
}

function splitPattern(step: Json): string {
  const regex = isObject(step.pattern) ? step.pattern.Regex : undefined;
  if (typeof regex !== 'string' || step.behavior !== 'Isolated' || step.invert === true) {
    throw bad('tokenizer.json: only a Split by an isolated Regex is supported', 'pre_tokenizer');
  }
  return regex;
}
