/**
 * How to speculate, as a person writes it: `off`, `auto`, `chain:STEPS`, `tree:STEPSxTOPKxNODES` (one greedy chain, shared candidate
 * lists; nodes count the root, as the reference submission does) or `full:STEPSxTOPKxNODES` (every frontier node expanded).
 */
import { UserError } from '../../util/index.ts';

export type DraftMode =
  | { readonly kind: 'off' }
  | { readonly kind: 'auto' }
  | {
      readonly kind: 'chain' | 'tree' | 'full';
      readonly steps: number;
      readonly topK: number;
      readonly nodes: number;
    };

/** Draft steps; the delta rule's log allows trees as deep as its chunk. */
export const maxSteps = 31;
export const maxTopK = 64;
/** Nodes of a tree with its root. */
export const maxTreeNodes = 65;

const bad = (text: string, message: string): UserError =>
  new UserError('bad_option', `speculation '${text}': ${message}`, {
    hint: 'Examples: auto, off, chain:3, tree:8x2x16, full:4x2x16.',
  });

export function parseDraftMode(text: string): DraftMode {
  if (text === 'off' || text === 'auto') return { kind: text };
  const chain = /^chain:(\d+)$/.exec(text);
  if (chain !== null) {
    const steps = within(text, 'steps', Number(chain[1]), maxSteps);
    return { kind: 'chain', steps, topK: 1, nodes: steps + 1 };
  }
  const tree = /^(tree|full):(\d+)x(\d+)x(\d+)$/.exec(text);
  if (tree === null) throw bad(text, 'is not a mode');
  const nodes = Number(tree[4]);
  if (nodes < 2) throw bad(text, `${nodes} nodes, at least 2 are needed (the root counts)`);
  return {
    kind: tree[1] as 'tree' | 'full',
    steps: within(text, 'steps', Number(tree[2]), maxSteps),
    topK: within(text, 'top-k', Number(tree[3]), maxTopK),
    nodes: within(text, 'nodes', nodes, maxTreeNodes),
  };
}

function within(text: string, name: string, value: number, most: number): number {
  if (value < 1 || value > most) throw bad(text, `${value} ${name}, expected 1 to ${most}`);
  return value;
}
