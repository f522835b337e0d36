/** Answers that hold a form: JSON Schema, patterns, choices and tool calls, as masks over tokens. */
export { compileConstraint } from './compile.ts';
export type { CallableTool, Constraint, Grammar, Matcher } from './types.ts';
export { type TokenSource, Vocabulary, vocabularyOf } from './vocabulary.ts';
