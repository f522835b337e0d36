/**
 * What a request says of the form of its answer: `response_format`, and the fields of other servers that ask for the same.
 * Each is held to or refused; one that is dropped would give a wrong answer.
 */
import { isJsonObject, type JsonObject, type JsonValue, parseLossless } from '../../chat/index.ts';
import type { AnswerFormat } from '../../completion/index.ts';
import { type Fields, kindOf, wrongField } from '../fields.ts';

/** Fields that constrain the answer and that this server has not: an answer without them would be wrong. */
const unsupported: Readonly<Record<string, string>> = {
  guided_grammar: 'an answer can not be held to a grammar: use a schema or a pattern',
  guided_whitespace_pattern: 'where blanks may stand can not be chosen',
  grammar: 'an answer can not be held to a grammar: use a schema or a pattern',
  ebnf: 'an answer can not be held to a grammar: use a schema or a pattern',
  structural_tag: 'an answer can not be held to tags: use tools',
  bad_words: 'use logit_bias',
  allowed_token_ids: 'use logit_bias',
  min_tokens: 'an answer ends where the model ends it',
  stop_token_ids: 'use stop',
  web_search_options: 'this server searches nothing',
  audio: 'answers are text',
};

/** Refuses what can not be held to. */
export function checkUnsupported(fields: Fields): void {
  refuseFields(fields, unsupported);
}

/** Some clients send every field, with a value that asks for nothing. */
export function asksSomething(value: JsonValue | undefined): boolean {
  const asksNothing =
    value === undefined || value === 0 || value === false || value === 'auto' || value === 'none';
  return !asksNothing && !(Array.isArray(value) && value.length === 0);
}

/** Refuses fields that this API has no place for. */
export function refuseFields(fields: Fields, refused: Readonly<Record<string, string>>): void {
  for (const [name, instead] of Object.entries(refused))
    if (asksSomething(fields.value(name))) throw wrongField(name, `is not supported: ${instead}`);
}

export type NamedFormat = AnswerFormat & { readonly param: string };

/** null = any text. Two fields that both ask for a form are refused. `own`: what an API's own field asks for. */
export function readFormat(fields: Fields, own: NamedFormat | null = null): NamedFormat | null {
  const asked: NamedFormat[] = [
    own,
    readResponseFormat(fields),
    ...Object.entries(formFields).map(([name, read]) => {
      const value = fields.value(name);
      return asksSomething(value) ? read(value, name) : null;
    }),
    readStructuredOutputs(fields),
  ].filter((format) => format !== null);
  const [first, second] = asked;
  if (second !== undefined && first !== undefined)
    throw wrongField(
      second.param,
      `asks for a form, and so does ${first.param}: only one of them can be held`,
    );
  return first ?? null;
}

type Read = (value: JsonValue | undefined, param: string) => NamedFormat;

const schemaFormat: Read = (value, param) => ({ type: 'json_schema', schema: schemaOf(value, param), param });

const regexFormat: Read = (value, param) => {
  if (typeof value !== 'string') throw wrongField(param, `is ${kindOf(value)}, expected a pattern as text`);
  return { type: 'regex', pattern: value, param };
};

const choiceFormat: Read = (value, param) => {
  if (!Array.isArray(value)) throw wrongField(param, `is ${kindOf(value)}, expected a list of texts`);
  if (value.length === 0) throw wrongField(param, 'is an empty list, at least one text is needed');
  const options = value.map((option: JsonValue, i) => {
    if (typeof option !== 'string' || option === '')
      throw wrongField(`${param}[${i}]`, `is ${kindOf(option)}, expected a text that is not empty`);
    return option;
  });
  return { type: 'choice', options, param };
};

/** Of vLLM (`guided_*`), SGLang and llama.cpp (the others). */
const formFields: Readonly<Record<string, Read>> = {
  guided_json: schemaFormat,
  guided_regex: regexFormat,
  guided_choice: choiceFormat,
  json_schema: schemaFormat,
  regex: regexFormat,
};

/** A schema, or the JSON text of one. */
function schemaOf(value: JsonValue | undefined, param: string): JsonValue {
  if (isJsonObject(value) || typeof value === 'boolean') return value;
  if (typeof value !== 'string')
    throw wrongField(param, value === undefined ? 'is missing' : `is ${kindOf(value)}, expected a schema`);
  let schema: JsonValue;
  try {
    schema = parseLossless(value);
  } catch {
    throw wrongField(param, `is ${kindOf(value)}, expected a schema or the JSON text of one`);
  }
  return schemaOf(typeof schema === 'string' ? null : schema, param);
}

const formatTypes = ['text', 'json_object', 'json_schema'];

function readResponseFormat(fields: Fields): NamedFormat | null {
  const param = 'response_format';
  const format = fields.object(param);
  if (format === undefined) return null;
  const { type } = format;
  if (typeof type !== 'string' || !formatTypes.includes(type))
    throw wrongField(`${param}.type`, `is ${kindOf(type)}, supported are ${formatTypes.join(', ')}`);
  if (type === 'text') return null;
  // llama.cpp puts the schema beside the type.
  const beside = format.schema ?? undefined;
  if (type === 'json_object')
    return beside === undefined ? { type, param } : schemaFormat(beside, `${param}.schema`);
  if (beside !== undefined && (format.json_schema ?? undefined) === undefined)
    return schemaFormat(beside, `${param}.schema`);
  return readNamedSchema(format.json_schema, `${param}.json_schema`);
}

/** `{ name, schema, strict, description }`; the answer is held to the schema whether it is strict or not. */
function readNamedSchema(value: JsonValue | undefined, param: string): NamedFormat {
  if (value === undefined || value === null) throw wrongField(param, 'is missing');
  if (!isJsonObject(value)) throw wrongField(param, `is ${kindOf(value)}, expected an object`);
  const { name, strict, schema } = value;
  if (name !== undefined && name !== null && typeof name !== 'string')
    throw wrongField(`${param}.name`, `is ${kindOf(name)}, expected a text`);
  if (strict !== undefined && strict !== null && typeof strict !== 'boolean')
    throw wrongField(`${param}.strict`, `is ${kindOf(strict)}, expected true or false`);
  return schemaFormat(schema ?? undefined, `${param}.schema`);
}

const structuredReads: ReadonlyMap<string, Read> = new Map<string, Read>([
  ['json', schemaFormat],
  ['regex', regexFormat],
  ['choice', choiceFormat],
  ['json_object', (_value, param) => ({ type: 'json_object', param })],
]);

/** vLLM's object: one of its fields says the form. */
function readStructuredOutputs(fields: Fields): NamedFormat | null {
  const param = 'structured_outputs';
  const given: JsonObject = fields.object(param) ?? {};
  const formats = Object.entries(given).flatMap(([name, value]) => {
    if (value === null || !asksSomething(value)) return [];
    const read = structuredReads.get(name);
    if (read === undefined)
      throw wrongField(
        `${param}.${name}`,
        `is not supported, ${param} may have ${[...structuredReads.keys()].join(', ')}`,
      );
    return [read(value, `${param}.${name}`)];
  });
  if (formats.length > 1)
    throw wrongField(
      param,
      `asks for ${formats.length} forms (${formats.map((format) => format.param).join(', ')}), only 1 can be held`,
    );
  return formats[0] ?? null;
}
