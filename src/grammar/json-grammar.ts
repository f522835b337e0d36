/** JSON answers. */
import { emptyLines } from './layout.ts';
import { type Node, seq } from './node.ts';
import { plainJson, SchemaCompiler } from './schema-compiler.ts';
import { SchemaSource } from './schema-source.ts';

const anyObject = '{"type":"object"}';

/** Throws UserError('invalid_request'). `schema`: JSON text, null for any object. */
export function jsonNode(schema: string | null): Node {
  const source = new SchemaSource(schema ?? anyObject, 'schema');
  const compiler = new SchemaCompiler(source, plainJson);
  const root = compiler.settle('schema', () => compiler.rule([source.root]));
  return seq(emptyLines, root.node);
}
