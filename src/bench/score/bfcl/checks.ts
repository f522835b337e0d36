/** The comparisons of one argument with its accepted options: type, text, list, dict. Each returns an error type or null. */
import {
  contains,
  type Dict,
  equal,
  isDict,
  isList,
  type List,
  type TypeName,
  typeOf,
  type Value,
} from './value.ts';

/** 'set' and unknown types never equal the type of a JSON value. */
export type HostType = TypeName | 'set';

/** What does not count when texts are compared: some punctuation, blanks, case, the kind of quotes. */
export function standardize(text: string): string {
  return text
    .replace(/[ ,./\-_*^]/g, '')
    .toLowerCase()
    .replaceAll("'", '"');
}

const standard = (value: Value): Value => (typeof value === 'string' ? standardize(value) : value);

export interface TypeVerdict {
  readonly error: string | null;
  /** The options are of another type than the documentation says: they name a variable. */
  readonly isVariable: boolean;
}

export function checkType(value: Value, options: List, host: HostType, nested: HostType | null): TypeVerdict {
  const sample = options.find((option) => option !== '');
  const optionType = sample === undefined ? null : typeOf(sample);
  if (typeOf(value) !== host)
    return typeOf(value) === optionType
      ? { error: null, isVariable: true }
      : { error: 'type_error:simple', isVariable: false };
  const isVariable = optionType !== null && optionType !== host;
  if (nested === null) return { error: null, isVariable };
  const items = isList(value) ? value : [];
  const fits = options.some(
    (option) =>
      !isList(option) || items.every((item) => checkType(item, option, nested, null).error === null),
  );
  return { error: fits ? null : 'type_error:nested', isVariable };
}

export function checkText(value: string, options: List): string | null {
  const found = options.some(
    (option) => typeof option === 'string' && standardize(option) === standardize(value),
  );
  return found ? null : 'value_error:string';
}

export function checkList(value: List, options: List): string | null {
  const found = value.map(standard);
  // The checker walks through a text option letter by letter, so "" is the empty list.
  const lists = options.map((option) =>
    typeof option === 'string' ? [...option] : isList(option) ? option : null,
  );
  return lists.some((list) => list !== null && equal(list.map(standard), found))
    ? null
    : 'value_error:list/tuple';
}

export function checkDict(value: Value, options: List): string | null {
  let error: string | null = 'dict_checker:unclear';
  for (const option of options) {
    if (option === '' || !isDict(option)) continue;
    error = dictError(value, option);
    if (error === null) return null;
  }
  return error;
}

function dictError(value: Value, option: Dict): string | null {
  if (!isDict(value)) return 'type_error:nested';
  for (const [key, item] of value) {
    const accepted = option.get(key);
    if (accepted === undefined) return missingKey(value, option) ?? 'value_error:dict_key';
    const list = isList(accepted) ? accepted.map(standard) : [];
    if (!contains(list, standard(item))) return missingKey(value, option) ?? 'value_error:dict_value';
  }
  return missingKey(value, option);
}

function missingKey(value: Dict, option: Dict): string | null {
  for (const [key, accepted] of option)
    if (!value.has(key) && !(isList(accepted) && contains(accepted, ''))) return 'value_error:dict_key';
  return null;
}

export function checkDictList(value: List, options: List): string | null {
  let error: string | null = 'list_dict_checker:unclear';
  for (const option of options) {
    const size = isList(option) || typeof option === 'string' ? option.length : -1;
    if (size !== value.length) {
      error = 'value_error:list_dict_count';
      continue;
    }
    const dicts = isList(option) ? option : [];
    error = null;
    for (const [i, item] of value.entries()) {
      error = checkDict(item, [dicts[i] ?? '']);
      if (error !== null) break;
    }
    if (error === null) return null;
  }
  return error;
}
