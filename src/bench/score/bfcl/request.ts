/** Requests of the accuracy phase, byte for byte: function documentation as tools, types mapped to those of JSON Schema. */
import { type JsonValue, stringifyCompact } from '../../../chat/index.ts';
import type { BenchConfig } from '../../run/config.ts';
import { floatText } from '../../run/python.ts';
import { joinFields } from '../../run/wire.ts';
import { wireName } from './check-call.ts';
import { writeJson } from './json.ts';
import type { BfclSample } from './samples.ts';
import { type Dict, isDict, type Value } from './value.ts';

const schemaTypes: Readonly<Record<string, string>> = {
  integer: 'integer',
  number: 'number',
  string: 'string',
  boolean: 'boolean',
  array: 'array',
  object: 'object',
  float: 'number',
  double: 'number',
  bool: 'boolean',
  list: 'array',
  tuple: 'array',
  ArrayList: 'array',
  Array: 'array',
  Queue: 'array',
  Stack: 'array',
  dict: 'object',
  HashMap: 'object',
  Hashtable: 'object',
  any: 'string',
  Any: 'string',
  char: 'string',
  String: 'string',
  byte: 'integer',
  short: 'integer',
  long: 'integer',
  Bigint: 'integer',
};

const schemaType = (type: Value | undefined): string =>
  typeof type === 'string' && Object.hasOwn(schemaTypes, type) ? (schemaTypes[type] as string) : 'string';

const floatNote = ' This is a float type value.';

export type RequestParams = BenchConfig['model_params'];

export function toolsOf({ functions }: BfclSample): Value[] {
  return functions.map((doc) => {
    const tool = new Map(doc);
    tool.set('name', wireName(String(doc.get('name'))));
    const parameters = new Map(doc.get('parameters') as Dict);
    parameters.set('type', 'object');
    parameters.set('properties', convertProperties(parameters.get('properties')));
    tool.set('parameters', parameters);
    return new Map<string, Value>([
      ['type', 'function'],
      ['function', tool],
    ]);
  });
}

function convertProperties(properties: Value | undefined): Value {
  if (!isDict(properties)) return properties ?? new Map();
  return new Map([...properties].map(([name, property]) => [name, convertProperty(property)]));
}

function convertProperty(property: Value): Value {
  if (!isDict(property)) return property;
  const converted = new Map(property);
  const isFloat = property.get('type') === 'float';
  const type = schemaType(property.get('type'));
  converted.set('type', type);
  if (isFloat) {
    converted.set('format', 'float');
    converted.set('description', `${String(property.get('description') ?? '')}${floatNote}`);
  }
  if (type !== 'array' && type !== 'object') return converted;
  if (converted.has('properties'))
    converted.set('properties', convertProperties(converted.get('properties')));
  else if (converted.has('items')) converted.set('items', convertItems(converted.get('items')));
  return converted;
}

/** Types of items, and one level below them; nothing deeper. */
function convertItems(items: Value | undefined): Value {
  if (!isDict(items)) return items ?? null;
  const converted = new Map(items);
  const type = schemaType(items.get('type'));
  converted.set('type', type);
  const inner = items.get('items');
  if (type === 'array' && isDict(inner)) {
    const mapped = new Map(inner);
    mapped.set('type', schemaType(inner.get('type')));
    converted.set('items', mapped);
  } else if (type === 'object' && items.has('properties'))
    converted.set('properties', convertProperties(items.get('properties')));
  return converted;
}

export function messagesText({ messages }: BfclSample): string {
  return writeJson(
    messages.map(
      ({ role, content }) =>
        new Map([
          ['role', role],
          ['content', content],
        ]),
    ),
  );
}

export function requestBody(sample: BfclSample, params: RequestParams): string {
  const float = (value: number | undefined): string | undefined =>
    value === undefined ? undefined : floatText(value);
  const json = (value: unknown): string | undefined =>
    value === undefined ? undefined : stringifyCompact(value as JsonValue);
  return joinFields([
    ['model', JSON.stringify(params.name)],
    ['messages', messagesText(sample)],
    ['temperature', float(params.temperature)],
    ['max_completion_tokens', String(params.max_new_tokens)],
    ['stream', String(params.streaming !== 'off')],
    ['seed', json(params.seed)],
    ['top_p', float(params.top_p)],
    ['top_k', json(params.top_k)],
    ['repetition_penalty', float(params.repetition_penalty)],
    ['presence_penalty', float(params.presence_penalty)],
    ['frequency_penalty', float(params.frequency_penalty)],
    ['chat_template_kwargs', json(params.chat_template_kwargs)],
    ['tools', writeJson(toolsOf(sample))],
    ['tool_choice', '"auto"'],
  ]);
}
