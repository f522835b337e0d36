/** Answers drawn at random from what a grammar allows, and the judge of JSON Schema. */
import { join, resolve } from 'node:path';
import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js';
import formats from 'ajv-formats';
import { type Constraint, compileConstraint, type Matcher, vocabularyOf } from '../../src/grammar/index.ts';
import { loadTokenizer } from '../../src/tokenizer/index.ts';

export const tokenizer = loadTokenizer(join(resolve(import.meta.dirname, '../..'), 'models/copse-tiny'));
export const stopId = tokenizer.tokenId('<|im_end|>') as number;
export const vocabulary = vocabularyOf(tokenizer, [stopId]);

/** Numbers from 0 to 1, the same for the same seed. */
export function randomNumbers(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export function allowedIds(matcher: Matcher): number[] {
  const mask = new Uint32Array(vocabulary.words);
  matcher.mask(mask);
  const ids: number[] = [];
  mask.forEach((word, i) => {
    for (let bits = word; bits !== 0; bits &= bits - 1) ids.push(i * 32 + 31 - Math.clz32(bits & -bits));
  });
  return ids;
}

export interface SampleOptions {
  readonly seed: number;
  readonly mostTokens?: number;
  /** Looks at every place. */
  readonly visit?: (matcher: Matcher, allowed: readonly number[]) => void;
}

/** Tokens with which values end and structure goes on: random text would never come to an end without them. */
const closers = /^(?:["}\],:\n]|<\/?)/;
const closing = new Set(
  Array.from({ length: vocabulary.size }, (_, id) => id).filter(
    (id) => tokenizer.hasId(id) && closers.test(tokenizer.decode([id])) && tokenizer.decode([id]).length <= 2,
  ),
);

/** The text of an answer with random tokens, null where it does not end within the limit. */
export function sample(constraint: Constraint, options: SampleOptions): string | null {
  const random = randomNumbers(options.seed);
  const matcher = compileConstraint(constraint).matcher(vocabulary);
  const ids: number[] = [];
  const pick = (list: readonly number[]): number => list[Math.floor(random() * list.length)] as number;
  for (let i = 0; i < (options.mostTokens ?? 400); i++) {
    const allowed = allowedIds(matcher);
    if (allowed.length === 0) throw new Error(`nothing may follow ${JSON.stringify(tokenizer.decode(ids))}`);
    options.visit?.(matcher, allowed);
    const ends = random() < 0.4 ? allowed.filter((id) => id === stopId || closing.has(id)) : [];
    const id = pick(ends.length > 0 ? ends : allowed);
    if (!matcher.accept(id)) throw new Error(`${id} is in the mask and not accepted`);
    if (id === stopId) return tokenizer.decode(ids);
    ids.push(id);
  }
  return null;
}

/** Whether a text is accepted as a whole answer, token by token. */
export function acceptsText(constraint: Constraint, text: string): boolean {
  const matcher = compileConstraint(constraint).matcher(vocabulary);
  return (
    tokenizer.encode(text, { special: 'plain' }).every((id) => matcher.accept(id)) && matcher.accept(stopId)
  );
}

const ajv = new Ajv2020({ strict: false, logger: false });
formats.default(ajv);

export function validator(schema: unknown): ValidateFunction {
  return ajv.compile(schema as object);
}
