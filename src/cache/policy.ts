/**
 * Where snapshots are taken inside a prompt: at message boundaries that are computed now. Always after the
 * system-and-tools block, after the last message before the generation prompt and after the one before it (an edited last
 * message continues from there), and at the deepest boundary that another prompt shares; elsewhere when enough tokens lie between.
 */
export interface PromptShape {
  /** Token counts at which messages end, ascending. */
  readonly boundaries: readonly number[];
  readonly cachedLen: number;
  readonly matchedLen: number;
  readonly promptLen: number;
  /** Tokens that an ordinary boundary must lie beyond the snapshot before it. */
  readonly spacing: number;
}

export function snapshotPositions({
  boundaries,
  cachedLen,
  matchedLen,
  promptLen,
  spacing,
}: PromptShape): number[] {
  const inside = boundaries.filter((at) => at < promptLen);
  const shared = inside.filter((at) => at <= matchedLen).at(-1);
  const always = new Set([inside[0], inside.at(-1), inside.at(-2), shared]);
  let last = cachedLen;
  return inside.filter((at) => {
    if (at <= cachedLen || (!always.has(at) && at - last < spacing)) return false;
    last = at;
    return true;
  });
}
