/**
 * Scripted answers to the accuracy samples, made from the accepted answers by fixed rules: what a perfect model says in different
 * ways, and what one says that gets types, optional parameters or names wrong. The official verdict on each is known.
 */
import {
  type BfclSample,
  type Dict,
  type ExpectedCall,
  isDict,
  isList,
  type Value,
  wireName,
  writeJson,
} from '../../src/bench/score/bfcl/index.ts';

export const oracleRules = ['A', 'B', 'C', 'D', 'E', 'F', 'G', 'J'] as const;
/**
 * A: each parameter with its first accepted value. B: A without optional parameters. C: A with Java and JavaScript values as source
 * text. D: C without optional parameters. E: D in upper case. F: B with whole numbers as floats. G: B in reverse order. J: B with
 * dots in names.
 */
export type OracleRule = (typeof oracleRules)[number];

export interface OracleCall {
  readonly name: string;
  /** JSON text, as a server sends it. */
  readonly arguments: string;
}

/** null where no call is the right answer. */
export function oracleCalls(sample: BfclSample, rule: OracleRule): OracleCall[] | null {
  if (sample.expected === null) return null;
  const calls = sample.expected.map((call) => ({
    name: rule === 'J' ? call.name : wireName(call.name),
    arguments: writeJson(argumentsOf(call, sample, rule)),
  }));
  return rule === 'G' ? calls.reverse() : calls;
}

function argumentsOf(call: ExpectedCall, sample: BfclSample, rule: OracleRule): Dict {
  const leavesOptionals = rule !== 'A' && rule !== 'C';
  const isSource = rule === 'C' || rule === 'D' || rule === 'E';
  const given = new Map<string, Value>();
  for (const [param, options] of call.options) {
    if (!isList(options) || (leavesOptionals && options.includes(''))) continue;
    const first = options.find((option) => option !== '');
    if (first === undefined) continue;
    const value = accepted(first);
    given.set(param, isSource ? source(value, typesOfParam(sample, call.name, param), sample) : value);
  }
  if (rule === 'E')
    return mapValues(given, (value) => (typeof value === 'string' ? value.toUpperCase() : value));
  if (rule === 'F') return mapValues(given, (value) => (typeof value === 'bigint' ? Number(value) : value));
  return given;
}

const mapValues = (dict: Dict, change: (value: Value) => Value): Dict =>
  new Map([...dict].map(([key, value]) => [key, change(value)]));

/** An option that is a dict lists accepted values by key; the first of each is taken. */
function accepted(option: Value): Value {
  if (isList(option)) return option.map(accepted);
  if (!isDict(option)) return option;
  const chosen = new Map<string, Value>();
  for (const [key, values] of option) {
    const first = isList(values) ? values.find((value) => value !== '') : values;
    if (first !== undefined) chosen.set(key, first);
  }
  return chosen;
}

interface ParamTypes {
  readonly own: string;
  readonly items: string;
}

function typesOfParam({ functions }: BfclSample, name: string, param: string): ParamTypes {
  const doc = functions.find((entry) => entry.get('name') === name);
  const typeAt = (...path: readonly string[]): string => {
    const steps = ['parameters', 'properties', param, ...path, 'type'];
    const type = steps.reduce<Value | undefined>((at, key) => (isDict(at) ? at.get(key) : undefined), doc);
    return typeof type === 'string' ? type : '';
  };
  return { own: typeAt(), items: typeAt('items') };
}

function source(value: Value, types: ParamTypes, { language }: BfclSample): Value {
  if (language === 'python' || typeof value === 'string') return value;
  return language === 'java' ? javaText(value, types) : javascriptText(value);
}

function numberText(value: Value): string {
  return typeof value === 'number' || typeof value === 'bigint' ? writeJson(value) : String(value);
}

const unknownTypes: ParamTypes = { own: '', items: '' };

function javaText(value: Value, { own, items: itemType }: ParamTypes): string {
  if (typeof value === 'string') return `"${value}"`;
  if (isList(value)) {
    const items = value.map((item) => javaText(item, { own: itemType, items: '' })).join(', ');
    return own === 'ArrayList' ? `new ArrayList<>(Arrays.asList(${items}))` : `new Object[]{${items}}`;
  }
  if (isDict(value)) {
    const puts = [...value].map(([key, item]) => `put("${key}", ${javaText(item, unknownTypes)});`);
    return `new HashMap<String, Object>() {{ ${puts.join(' ')} }}`;
  }
  const suffix = own === 'long' ? 'L' : own === 'float' ? 'f' : '';
  return typeof value === 'boolean' ? String(value) : `${numberText(value)}${suffix}`;
}

function javascriptText(value: Value): string {
  if (typeof value === 'string') return `'${value}'`;
  if (isList(value)) return `[${value.map(javascriptText).join(', ')}]`;
  if (isDict(value))
    return `{${[...value].map(([key, item]) => `'${key}': ${javascriptText(item)}`).join(', ')}}`;
  return numberText(value);
}
