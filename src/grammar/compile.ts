/** From constraints to grammars, which are kept: agents send the same schemas with every request. */
import { callsNode } from './calls.ts';
import { jsonNode } from './json-grammar.ts';
import { NodeGrammar } from './matcher.ts';
import type { Node } from './node.ts';
import { choiceNode, regexNode } from './plain.ts';
import type { Constraint, Grammar } from './types.ts';

const mostGrammars = 32;
const grammars = new Map<string, Grammar>();

/**
 * The grammar of a constraint. Throws UserError('invalid_request') that names the keyword and its place in the schema
 * when a schema is wrong, asks for what is not supported, or can not be met.
 */
export function compileConstraint(constraint: Constraint): Grammar {
  const key = JSON.stringify(constraint);
  const grammar = grammars.get(key) ?? new NodeGrammar(nodeOf(constraint));
  grammars.delete(key);
  grammars.set(key, grammar);
  if (grammars.size > mostGrammars) grammars.delete(grammars.keys().next().value as string);
  return grammar;
}

function nodeOf(constraint: Constraint): Node {
  switch (constraint.kind) {
    case 'json':
      return jsonNode(constraint.schema);
    case 'regex':
      return regexNode(constraint.pattern);
    case 'choice':
      return choiceNode(constraint.options);
    case 'calls':
      return callsNode(constraint);
  }
}
