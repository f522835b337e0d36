/**
 * The tools of a request as the model is told of them. A custom tool is a function with one text, the functions of a
 * namespace have its name in front; the answer is told in the client's words again.
 */
import {
  isJsonObject,
  type JsonObject,
  type JsonValue,
  ObjectBuilder,
  orderedKeys,
  type ToolDef,
} from '../../chat/index.ts';
import type { ToolChoice } from '../../completion/index.ts';
import type { Notes } from '../content.ts';
import { type Fields, kindOf, wrongField } from '../fields.ts';

/** A tool in the client's words. */
export interface NamedTool {
  readonly kind: 'function' | 'custom';
  readonly name: string;
  readonly namespace: string | null;
}

export interface ToolTable {
  /** What the model is told; null without tools. */
  readonly defs: readonly ToolDef[] | null;
  /** By the name that the model knows. */
  readonly byName: ReadonlyMap<string, NamedTool>;
}

/** The parameter that holds the text of a custom tool. */
export const customParameter = 'input';

/** The name that the model knows a tool by. */
export function modelName(name: string, namespace: string | null): string {
  if (namespace === null) return name;
  return /[_.-]$/.test(namespace) ? namespace + name : `${namespace}__${name}`;
}

export function readTools(fields: Fields, notes: Notes): ToolTable {
  const defs: ToolDef[] = [];
  const byName = new Map<string, NamedTool>();
  const add = (tool: JsonValue, at: string, namespace: string | null): void => {
    if (!isJsonObject(tool)) throw wrongField(at, `is ${kindOf(tool)}, expected an object`);
    const { type } = tool;
    if (typeof type !== 'string') throw wrongField(`${at}.type`, `is ${kindOf(type)}, expected a text`);
    if (type === 'namespace' && namespace === null) {
      const { tools } = tool;
      const group = textOf(tool.name, `${at}.name`);
      if (!Array.isArray(tools)) throw wrongField(`${at}.tools`, `is ${kindOf(tools)}, expected a list`);
      tools.forEach((one: JsonValue, i) => {
        add(one, `${at}.tools[${i}]`, group);
      });
      return;
    }
    if (type !== 'function' && type !== 'custom') {
      notes.add(`the tool ${type.slice(0, 40)} is left out: this server does not have it`);
      return;
    }
    const { name, def } =
      type === 'function' ? functionTool(tool, at, namespace) : customTool(tool, at, namespace);
    const known = modelName(name, namespace);
    if (byName.has(known))
      throw wrongField(`${at}.name`, `is '${known.slice(0, 200)}', which another tool has`);
    byName.set(known, { kind: type, name, namespace });
    defs.push(def);
  };
  (fields.list('tools') ?? []).forEach((tool, i) => {
    add(tool, `tools[${i}]`, null);
  });
  return { defs: defs.length === 0 ? null : defs, byName };
}

interface ReadTool {
  readonly name: string;
  readonly def: ToolDef;
}

const functionKeys = ['description', 'parameters', 'strict'];

/** In the shape of the chat API, keys as they were written: the prompt is the same through both. */
function functionTool(tool: JsonObject, at: string, namespace: string | null): ReadTool {
  // Some clients send the chat API's shape.
  const fn = isJsonObject(tool.function) ? tool.function : tool;
  const name = textOf(fn.name, `${at}.name`);
  const { parameters } = fn;
  if (parameters !== undefined && parameters !== null && !isJsonObject(parameters))
    throw wrongField(`${at}.parameters`, `is ${kindOf(parameters)}, expected an object`);
  const told = new ObjectBuilder();
  for (const key of orderedKeys(fn)) {
    if (key === 'name') told.set('name', modelName(name, namespace));
    else if (functionKeys.includes(key) && fn[key] !== null) told.set(key, fn[key] as JsonValue);
  }
  return { name, def: { type: 'function', function: told.finish() } };
}

function customTool(tool: JsonObject, at: string, namespace: string | null): ReadTool {
  const name = textOf(tool.name, `${at}.name`);
  const { description, format } = tool;
  const grammar = isJsonObject(format) && format.type === 'grammar' ? format : null;
  const words = [
    typeof description === 'string' ? description : '',
    grammar === null
      ? ''
      : `The ${customParameter} must match this grammar (${String(grammar.syntax)}):\n${String(grammar.definition)}`,
  ].filter((text) => text !== '');
  const parameters = {
    type: 'object',
    properties: { [customParameter]: { type: 'string' } },
    required: [customParameter],
  };
  const fn = {
    name: modelName(name, namespace),
    ...(words.length === 0 ? {} : { description: words.join('\n\n') }),
    parameters,
  };
  return { name, def: { type: 'function', function: fn } };
}

/** Throws wrongField for a tool that the request does not have. */
export function readToolChoice(fields: Fields, { byName }: ToolTable): ToolChoice {
  const choice = fields.value('tool_choice');
  if (choice === undefined || choice === 'auto') return { mode: 'auto', names: null };
  if (choice === 'none') return { mode: 'none', names: null };
  if (choice !== 'required' && !isJsonObject(choice))
    throw wrongField('tool_choice', `is ${kindOf(choice)}, expected auto, none, required or a tool`);
  if (byName.size === 0)
    throw wrongField('tool_choice', 'asks for a call, and tools has none that this server has');
  if (choice === 'required') return { mode: 'required', names: null };
  if (choice.type !== 'allowed_tools')
    return { mode: 'required', names: [chosenName(choice, 'tool_choice', byName)] };
  const { mode, tools } = choice;
  if (mode !== 'auto' && mode !== 'required')
    throw wrongField('tool_choice.mode', `is ${kindOf(mode)}, expected auto or required`);
  if (!Array.isArray(tools) || tools.length === 0)
    throw wrongField('tool_choice.tools', `is ${kindOf(tools)}, expected a list of tools`);
  return { mode, names: tools.map((tool, i) => chosenName(tool, `tool_choice.tools[${i}]`, byName)) };
}

function chosenName(choice: JsonValue, at: string, byName: ToolTable['byName']): string {
  if (!isJsonObject(choice)) throw wrongField(at, `is ${kindOf(choice)}, expected an object`);
  const { type, namespace } = choice;
  if (type !== 'function' && type !== 'custom')
    throw wrongField(`${at}.type`, `is ${kindOf(type)}, this server calls functions and custom tools only`);
  const name = textOf(choice.name, `${at}.name`);
  const known = modelName(name, typeof namespace === 'string' ? namespace : null);
  if (!byName.has(known))
    throw wrongField(`${at}.name`, `is '${name.slice(0, 200)}', which tools does not have`);
  return known;
}

function textOf(value: JsonValue | undefined, at: string): string {
  if (typeof value !== 'string' || value === '')
    throw wrongField(at, `is ${kindOf(value)}, expected a text that is not empty`);
  return value;
}
