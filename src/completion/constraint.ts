/** From what a request asks of its answer to the constraint that the engine holds it to. */
import { isJsonObject, type JsonValue, stringifyCompact, type ToolDef } from '../chat/index.ts';
import { type Constraint, compileConstraint } from '../grammar/index.ts';
import { UserError } from '../util/index.ts';
import type { AnswerFormat, ChatRequest } from './types.ts';

/** Tools that the answer may call, in the order of the request. */
export function callableTools({ tools, toolChoice }: ChatRequest): readonly ToolDef[] {
  const { mode, names } = toolChoice;
  const all = tools ?? [];
  if (mode === 'none') return [];
  const missing = names?.find((name) => !all.some((tool) => nameOf(tool) === name));
  if (missing !== undefined)
    throw new UserError(
      'invalid_request',
      `tool_choice names '${missing.slice(0, 200)}', which is not among the tools of the request`,
      { param: 'tool_choice' },
    );
  const callable = names === null ? all : all.filter((tool) => names.includes(nameOf(tool) ?? ''));
  if (mode === 'required' && callable.length === 0)
    throw new UserError('invalid_request', 'tool_choice asks for a call, but the request has no tools', {
      param: 'tool_choice',
    });
  return callable;
}

/**
 * The forms that an answer may have; none = any text. With tools and a format it is a call or content of that format; where a
 * call is required the format has nothing to say. Throws UserError that names what can not be compiled.
 */
export function formsOf(request: ChatRequest): readonly Constraint[] {
  const { toolChoice, format } = request;
  const tools = callableTools(request);
  const content = formatForms(format);
  const isRequired = toolChoice.mode === 'required';
  const limits = isRequired || toolChoice.names !== null || tools.some((tool) => strictOf(tool) === true);
  if (tools.length === 0 || (content.length === 0 && !limits)) return content;
  const shape = {
    // Content of a format leaves no room for other text before a call.
    required: isRequired || content.length > 0,
    parallel: request.parallelToolCalls !== false,
  };
  const calls = heldCalls({ tools, eager: shape.required, shape });
  return isRequired ? [calls] : [calls, ...content];
}

/** The form of content alone. Throws as `formsOf` does. */
export function formatForms(format: AnswerFormat | null): readonly Constraint[] {
  if (format === null) return [];
  const form = formatForm(format);
  const error = errorOf(form);
  const param = format.param ?? 'response_format';
  if (error !== null) throw atParam(error, param);
  return [form];
}

function formatForm(format: AnswerFormat): Constraint {
  switch (format.type) {
    case 'json_object':
      return { kind: 'json', schema: null };
    case 'json_schema':
      return { kind: 'json', schema: stringifyCompact(format.schema) };
    case 'regex':
      return { kind: 'regex', pattern: format.pattern };
    case 'choice':
      return { kind: 'choice', options: format.options };
  }
}

type CallsForm = Extract<Constraint, { kind: 'calls' }>;

interface CallsOptions {
  readonly tools: readonly ToolDef[];
  /** Hold tools to their schemas that do not say whether they are strict, where it can be done. */
  readonly eager: boolean;
  readonly shape: Pick<CallsForm, 'required' | 'parallel'>;
}

/** Of two tools with one name the last counts, as for the reader of the answer. Throws UserError that names the tool. */
function heldCalls({ tools, eager, shape }: CallsOptions): CallsForm {
  const byName = new Map(tools.map((tool) => [nameOf(tool) ?? '', tool]));
  const callable = [...byName].map(([name, tool]) => {
    const { parameters } = functionOf(tool);
    const schema = isJsonObject(parameters) ? stringifyCompact(parameters) : null;
    return { name, parameters: schema, strict: strictOf(tool) ?? eager };
  });
  const all: CallsForm = { kind: 'calls', tools: callable, ...shape };
  if (errorOf(all) === null) return all;
  const rest = callable.map((tool) => {
    const error = errorOf({ ...all, tools: [tool] });
    if (error === null) return tool;
    if (strictOf(byName.get(tool.name) ?? {}) === null && tool.strict) return { ...tool, strict: false };
    throw atParam(error, 'tools');
  });
  const some = { ...all, tools: rest };
  const error = errorOf(some);
  if (error !== null) throw atParam(error, 'tools');
  return some;
}

/** Why a constraint can not be compiled; null when it can. */
function errorOf(constraint: Constraint): UserError | null {
  try {
    compileConstraint(constraint);
    return null;
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    return error;
  }
}

function atParam(error: UserError, param: string): UserError {
  return new UserError(error.code, `${param}: ${error.message}`, { hint: error.hint, param, cause: error });
}

function functionOf(tool: ToolDef): Readonly<Record<string, JsonValue>> {
  return isJsonObject(tool.function) ? tool.function : tool;
}

function nameOf(tool: ToolDef): string | null {
  const { name } = functionOf(tool);
  return typeof name === 'string' ? name : null;
}

/** null where the tool does not say. */
function strictOf(tool: ToolDef): boolean | null {
  const { strict } = functionOf(tool);
  return typeof strict === 'boolean' ? strict : null;
}
