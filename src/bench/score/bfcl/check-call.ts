/**
 * The official comparison of calls with accepted answers: one call, several functions to choose from, several calls in any order.
 * Function documentation is the original one, with dots in names and the language's own types.
 */
import { checkDict, checkDictList, checkList, checkText, checkType, type HostType } from './checks.ts';
import { fromJava, javaTypes, ScorerError } from './convert-java.ts';
import { fromJavascript, javascriptTypes } from './convert-javascript.ts';
import { contains, type Dict, isDict, isList, type List, typeOf, type Value } from './value.ts';

export type Language = 'python' | 'java' | 'javascript';

export interface Call {
  readonly name: string;
  readonly arguments: Value;
}

/** Accepted options by parameter. */
export interface ExpectedCall {
  readonly name: string;
  readonly options: Dict;
}

const pythonTypes: Readonly<Record<string, HostType>> = {
  string: 'str',
  any: 'str',
  integer: 'int',
  float: 'float',
  boolean: 'bool',
  array: 'list',
  tuple: 'list',
  dict: 'dict',
};

const tables: Readonly<Record<Language, Readonly<Record<string, HostType>>>> = {
  python: pythonTypes,
  java: javaTypes,
  javascript: javascriptTypes,
};

const nestedTypes: Readonly<Record<Language, readonly string[]>> = {
  python: ['array', 'tuple'],
  java: ['Array', 'ArrayList'],
  javascript: ['array'],
};

export const wireName = (name: string): string => name.replaceAll('.', '_');

export interface CallCheck {
  readonly functions: readonly Dict[];
  readonly expected: readonly ExpectedCall[];
  readonly language: Language;
  readonly subset: string;
}

/** An error type, or null when the calls are right. */
export function checkCalls(calls: readonly Call[], check: CallCheck): string | null {
  if (check.subset.includes('parallel')) return checkInAnyOrder(calls, check);
  const [answer] = check.expected;
  const isMultiple = check.subset.includes('multiple');
  const checker = isMultiple ? 'multiple_function_checker' : 'simple_function_checker';
  const [call] = calls;
  if (call === undefined || answer === undefined || calls.length !== check.expected.length)
    return `${checker}:wrong_count`;
  const doc = isMultiple ? docOf(check.functions, answer.name) : check.functions[0];
  if (doc === undefined) throw new ScorerError('the sample has no function');
  return checkCall(call, answer, doc, check.language);
}

function docOf(functions: readonly Dict[], name: string): Dict {
  const doc = functions.find((entry) => entry.get('name') === name);
  if (doc === undefined) throw new ScorerError(`no function is named ${name}`);
  return doc;
}

/** Each answer takes the first call left that fits; no going back. */
function checkInAnyOrder(calls: readonly Call[], check: CallCheck): string | null {
  if (calls.length !== check.expected.length) return 'parallel_function_checker_no_order:wrong_count';
  const used = new Set<Call>();
  for (const answer of check.expected) {
    const doc = docOf(check.functions, answer.name);
    const match = calls.find(
      (call) => !used.has(call) && checkCall(call, answer, doc, check.language) === null,
    );
    if (match === undefined) return 'parallel_function_checker_no_order:cannot_find_match';
    used.add(match);
  }
  return null;
}

const dictAt = (value: Value | undefined, key: string): Dict => {
  const found = isDict(value) ? value.get(key) : undefined;
  return isDict(found) ? found : new Map();
};

export function checkCall(call: Call, answer: ExpectedCall, doc: Dict, language: Language): string | null {
  const name = doc.get('name');
  if (typeof name !== 'string' || call.name !== wireName(name))
    return 'simple_function_checker:wrong_func_name';
  const parameters = dictAt(doc, 'parameters');
  const given = argumentsOf(call.arguments);
  const required = parameters.get('required');
  for (const param of isList(required) ? required : [])
    if (typeof param === 'string' && !given.has(param)) return 'simple_function_checker:missing_required';
  const properties = dictAt(parameters, 'properties');
  for (const [param, value] of given) {
    const options = answer.options.get(param);
    const property = properties.get(param);
    if (!isDict(property) || !isList(options)) return 'simple_function_checker:unexpected_param';
    const error = checkArgument(value, options, property, language);
    if (error !== null) return error;
  }
  for (const [param, options] of answer.options)
    if (!given.has(param) && !(isList(options) && contains(options, '')))
      return 'simple_function_checker:missing_optional';
  return null;
}

/** Arguments that are not an object make the official scorer raise, except an empty list. */
function argumentsOf(value: Value): Dict {
  if (isDict(value)) return value;
  if (isList(value) && value.length === 0) return new Map();
  throw new ScorerError(`the arguments are of type ${typeOf(value)}, not an object`);
}

function checkArgument(raw: Value, options: List, property: Dict, language: Language): string | null {
  const type = property.get('type');
  const host = hostType(type, language);
  const isNested = typeof type === 'string' && nestedTypes[language].includes(type);
  const itemType = isNested ? dictAt(property, 'items').get('type') : undefined;
  const nested = itemType === undefined ? null : hostType(itemType, language);
  const itemName = typeof itemType === 'string' ? itemType : null;
  if (language !== 'python' && typeof raw !== 'string')
    return `type_error:${language === 'java' ? 'java' : 'js'}`;
  const value = converted(raw, String(type), itemName, language);
  const { error, isVariable } = checkType(value, options, host, nested);
  if (error !== null) return error;
  if (!isVariable) {
    if (host === 'dict') return checkDict(value, options);
    if (typeof value === 'string' && host === 'str') return checkText(value, options);
    if (isList(value)) return nested === 'dict' ? checkDictList(value, options) : checkList(value, options);
  }
  return contains(options, value) ? null : 'value_error:others';
}

function hostType(type: Value | undefined, language: Language): HostType {
  const table = tables[language];
  const host = typeof type === 'string' && Object.hasOwn(table, type) ? table[type] : undefined;
  if (host === undefined) throw new ScorerError(`type ${String(type)} is not one of ${language}`);
  return host;
}

function converted(raw: Value, type: string, itemType: string | null, language: Language): Value {
  if (language === 'python') return type === 'float' && typeof raw === 'bigint' ? Number(raw) : raw;
  if (typeof raw !== 'string') return raw;
  return language === 'java' ? fromJava(raw, type, itemType) : fromJavascript(raw, type, itemType);
}
