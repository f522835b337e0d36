/** What drafts brought, counted for the engine as a whole and for each request. */

export interface DraftCount {
  readonly drafted: number;
  readonly accepted: number;
}

export interface SpeculationFigures {
  /** Steps that verified a draft. */
  readonly drafts: number;
  /** Verified nodes and right ones, by source and by depth. */
  readonly bySource: Readonly<Record<string, DraftCount>>;
  readonly byDepth: readonly DraftCount[];
  /** Milliseconds of decode steps as predicted and as measured; 0 where nothing is predicted. */
  readonly predictedMs: number;
  readonly measuredMs: number;
}

export class DraftFigures {
  #drafts = 0;
  readonly #bySource: Record<string, DraftCount> = {};
  readonly #byDepth: DraftCount[] = [];
  #predictedMs = 0;
  #measuredMs = 0;

  /** One verified tree: where each node came from, how deep it lay, whether it was right. */
  observe(
    nodes: readonly { readonly source: string; readonly depth: number; readonly isRight: boolean }[],
  ): void {
    if (nodes.length > 0) this.#drafts++;
    for (const { source, depth, isRight } of nodes) {
      this.#bySource[source] = counted(this.#bySource[source], isRight);
      while (this.#byDepth.length <= depth) this.#byDepth.push({ drafted: 0, accepted: 0 });
      this.#byDepth[depth] = counted(this.#byDepth[depth], isRight);
    }
  }

  observeStep(predictedMs: number, measuredMs: number): void {
    this.#predictedMs += predictedMs;
    this.#measuredMs += measuredMs;
  }

  /** A copy. */
  read(): SpeculationFigures {
    return {
      drafts: this.#drafts,
      bySource: { ...this.#bySource },
      byDepth: [...this.#byDepth],
      predictedMs: this.#predictedMs,
      measuredMs: this.#measuredMs,
    };
  }
}

function counted(before: DraftCount | undefined, isRight: boolean): DraftCount {
  const { drafted, accepted } = before ?? { drafted: 0, accepted: 0 };
  return { drafted: drafted + 1, accepted: accepted + (isRight ? 1 : 0) };
}

/** Tokens that a step with a draft brought on average: the right guesses and the one token that follows them. */
export function meanAcceptedLength({ drafts, bySource }: SpeculationFigures): number | null {
  if (drafts === 0) return null;
  return 1 + Object.values(bySource).reduce((sum, { accepted }) => sum + accepted, 0) / drafts;
}
