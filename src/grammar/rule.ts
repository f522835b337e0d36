/** Values of a schema: their shapes, and how many frames the smallest of them needs. */
import { alt, frame, guard, lazy, type Node } from './node.ts';

/** One way to write a value. */
export interface Shape {
  /** Rules of values without which this can not be written. */
  readonly needs: readonly Rule[];
  /** Frames inside the value, given those of all rules; infinite where it can not be written. */
  height(): number;
  /** What is written, once all heights are known. */
  node(): Node;
}

export class Rule {
  readonly shapes: Shape[] = [];
  /** Frames that a value needs, its own included; infinite: it can not be written. */
  height = Number.POSITIVE_INFINITY;
  /** Why shapes are missing. */
  readonly notes: string[] = [];
  #node: Node | null = null;

  get isPossible(): boolean {
    return this.height < Number.POSITIVE_INFINITY;
  }

  /** The value in its frame. */
  get node(): Node {
    this.#node ??= frame(
      lazy(() => alt(this.#possible().map((shape) => guard(shape.node(), shape.height())))),
      this.height,
    );
    return this.#node;
  }

  #possible(): Shape[] {
    return this.shapes.filter((shape) => shape.height() < Number.POSITIVE_INFINITY);
  }

  /** Takes in what is known of other rules. Returns whether the height has changed. */
  settle(): boolean {
    const height = 1 + Math.min(Number.POSITIVE_INFINITY, ...this.shapes.map((shape) => shape.height()));
    const changes = height !== this.height;
    this.height = height;
    return changes;
  }
}

/** Why a rule that is not possible is not. */
export function causeOf(rule: Rule): string {
  const seen = new Set([rule]);
  const todo = [rule];
  for (let at = todo.shift(); at !== undefined; at = todo.shift()) {
    if (at.notes[0] !== undefined && at.shapes.length === 0) return at.notes[0];
    for (const needed of at.shapes.flatMap((shape) => shape.needs))
      if (!needed.isPossible && !seen.has(needed)) {
        seen.add(needed);
        todo.push(needed);
      }
  }
  return rule.notes[0] ?? 'a $ref leads back to itself and never to a value';
}

/** A shape without values inside. */
export function plainShape(node: Node): Shape {
  return { needs: [], height: () => 0, node: () => node };
}

export function highest(rules: readonly Rule[]): number {
  return rules.reduce((most, rule) => Math.max(most, rule.height), 0);
}
