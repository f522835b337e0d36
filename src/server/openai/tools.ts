/** Tools, which of them may or must be called, and the `functions` that were there before them. */
import { isJsonObject, type JsonObject, type JsonValue, type ToolDef } from '../../chat/index.ts';
import type { ToolChoice } from '../../completion/index.ts';
import { type Fields, kindOf, wrongField } from '../fields.ts';
import { asksSomething } from './constraints.ts';

export interface ReadTools {
  readonly tools: readonly ToolDef[] | null;
  readonly toolChoice: ToolChoice;
  /** Calls are answered as `function_call`. */
  readonly legacy: boolean;
  /** The request names the one tool to call; OpenAI then says that the answer stopped, not that it called. */
  readonly named: boolean;
}

export function readToolFields(fields: Fields): ReadTools {
  const functions = fields.list('functions') ?? [];
  const call = fields.value('function_call');
  const tools = readTools(fields);
  const choice = fields.value('tool_choice');
  if (functions.length === 0) {
    if (asksSomething(call)) throw wrongField('function_call', 'needs functions: with tools use tool_choice');
    return { tools, ...readChoice(choice, 'tool_choice', tools), legacy: false };
  }
  if (tools !== null) throw wrongField('functions', 'can not stand beside tools: use one of them');
  if (choice !== undefined && choice !== 'auto')
    throw wrongField('tool_choice', 'needs tools: with functions use function_call');
  const wrapped = functions.map((fn, i) => toolOf({ type: 'function', function: fn }, `functions[${i}]`));
  // `{ name }` is the tool_choice of its time.
  const named = isJsonObject(call) ? { type: 'function', function: call } : call;
  if (named !== undefined && !isJsonObject(named) && named !== 'auto' && named !== 'none')
    throw wrongField('function_call', `is ${kindOf(call)}, expected auto, none or {name}`);
  return { tools: wrapped, ...readChoice(named, 'function_call', wrapped), legacy: true };
}

function readTools(fields: Fields): ToolDef[] | null {
  const tools = fields.list('tools');
  if (tools === undefined || tools.length === 0) return null;
  return tools.map((tool, i) => toolOf(tool, `tools[${i}]`));
}

function toolOf(tool: JsonValue, param: string): JsonObject {
  const fn = isJsonObject(tool) ? tool.function : undefined;
  const isTool = isJsonObject(tool) && tool.type === 'function' && isJsonObject(fn);
  if (!isTool || typeof fn.name !== 'string' || fn.name === '')
    throw wrongField(param, 'is not {type: "function", function: {name, ...}}');
  const { parameters, strict } = fn;
  if (parameters !== undefined && parameters !== null && !isJsonObject(parameters))
    throw wrongField(`${param}.function.parameters`, `is ${kindOf(parameters)}, expected an object`);
  if (strict !== undefined && strict !== null && typeof strict !== 'boolean')
    throw wrongField(`${param}.function.strict`, `is ${kindOf(strict)}, expected true or false`);
  return tool;
}

function readChoice(
  choice: JsonValue | undefined,
  param: string,
  tools: readonly ToolDef[] | null,
): { toolChoice: ToolChoice; named: boolean } {
  if (choice === undefined || choice === 'auto')
    return { toolChoice: { mode: 'auto', names: null }, named: false };
  if (choice === 'none') return { toolChoice: { mode: 'none', names: null }, named: false };
  // 'any' is what Mistral's clients say.
  if (choice === 'required' || choice === 'any') {
    if (tools === null) throw wrongField(param, `is ${kindOf(choice)}, which needs tools`);
    return { toolChoice: { mode: 'required', names: null }, named: false };
  }
  if (isJsonObject(choice) && choice.type === 'function') {
    const names = [declaredName(choice, param, tools)];
    return { toolChoice: { mode: 'required', names }, named: true };
  }
  if (isJsonObject(choice) && choice.type === 'allowed_tools')
    return { toolChoice: readAllowed(choice, param, tools), named: false };
  throw wrongField(
    param,
    `is ${isJsonObject(choice) ? `of the type ${kindOf(choice.type)}` : kindOf(choice)}, expected auto, none, required, a function or allowed_tools`,
  );
}

/** All tools stay in the prompt, so that it is the same whichever are allowed. */
function readAllowed(choice: JsonObject, param: string, tools: readonly ToolDef[] | null): ToolChoice {
  const allowed = choice.allowed_tools ?? choice;
  if (!isJsonObject(allowed))
    throw wrongField(`${param}.allowed_tools`, `is ${kindOf(allowed)}, expected an object`);
  const { mode = 'auto', tools: list } = allowed;
  if (mode !== 'auto' && mode !== 'required')
    throw wrongField(`${param}.allowed_tools.mode`, `is ${kindOf(mode)}, expected auto or required`);
  if (!Array.isArray(list) || list.length === 0)
    throw wrongField(
      `${param}.allowed_tools.tools`,
      `is ${Array.isArray(list) ? 'an empty list' : kindOf(list)}, expected at least one tool`,
    );
  const names = list.map((tool: JsonValue, i) =>
    declaredName(tool, `${param}.allowed_tools.tools[${i}]`, tools),
  );
  return { mode, names: [...new Set(names)] };
}

/** The name in `{ function: { name } }`, or in `{ name }`. */
function declaredName(choice: JsonValue, param: string, tools: readonly ToolDef[] | null): string {
  const inner = isJsonObject(choice) ? (choice.function ?? choice) : choice;
  const name = isJsonObject(inner) ? inner.name : undefined;
  if (typeof name !== 'string') throw wrongField(param, 'has no name of a function');
  const isDeclared = tools?.some((tool) => isJsonObject(tool.function) && tool.function.name === name);
  if (isDeclared !== true)
    throw wrongField(param, `names ${kindOf(name)}, which is not among the tools of the request`);
  return name;
}
