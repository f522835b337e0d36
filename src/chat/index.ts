/** Messages <-> text: lossless JSON, chat templates, and the reader of what a model writes. Knows no HTTP. */
export type { ReaderEvent } from './call-builder.ts';
export { holdsNoArguments, toolsForPrompt, withOneSystem, withParsedArguments } from './history.ts';
export { type JsonLimits, jsonDepthLimit, type ParseOptions, parseLossless } from './json-parse.ts';
export { quoteJson, stringifyCompact, stringifyPython, stringifySpaced } from './json-stringify.ts';
export {
  isJsonObject,
  JsonNumber,
  type JsonObject,
  type JsonValue,
  ObjectBuilder,
  orderedKeys,
  toPlainJson,
} from './json-value.ts';
export { type LoadTemplateOptions, loadTemplate } from './load-template.ts';
export { type OutputEnd, OutputReader, type OutputReaderOptions } from './output-reader.ts';
export {
  collectEvents,
  type ReadAnswerOptions,
  type ReadMessage,
  type ReadToolCall,
  readAnswer,
} from './read-answer.ts';
export { propertyType } from './schema-type.ts';
export {
  type ChatMessage,
  type ChatTemplate,
  type PromptBoundary,
  type RenderedPrompt,
  type RenderInput,
  TemplateError,
  type ToolCall,
  type ToolDef,
} from './types.ts';
export { type StableMessages, withStableLines } from './volatile-lines.ts';
