/** Guessed continuations of a sequence, below its last known token. */
export interface DraftTree {
  /** Token of each node; parents come before their children. */
  readonly ids: Int32Array;
  /** Parent node, -1 = the last known token. */
  readonly parents: Int32Array;
}

export const emptyTree: DraftTree = { ids: new Int32Array(0), parents: new Int32Array(0) };

/** Depth of each node; a child of -1 has depth 0. */
export function nodeDepths(parents: Int32Array): Int32Array {
  const depths = new Int32Array(parents.length);
  parents.forEach((parent, node) => {
    depths[node] = parent < 0 ? 0 : (depths[parent] as number) + 1;
  });
  return depths;
}

/** The child of `parent` with token `id`, the lowest one, or -1. */
export function childOf(tree: DraftTree, parent: number, id: number): number {
  for (let node = parent + 1; node < tree.ids.length; node++) {
    if (tree.parents[node] === parent && tree.ids[node] === id) return node;
  }
  return -1;
}
