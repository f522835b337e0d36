/** Engines on models that are here: the bundled one and the golden hybrids, packed once per test file. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildEngine } from '../../src/build/index.ts';
import type { Engine, GenerateRequest, GenerationEvent, TokenLogprob } from '../../src/engine/index.ts';
import { defaultSampling } from '../../src/sampling/index.ts';

const root = new URL('../..', import.meta.url).pathname;
export const tinyCheckpoint = join(root, 'models/copse-tiny');
export const hybridCheckpoints = ['hybrid-rep1-tied-vl', 'hybrid-rep3-untied'].map((name) =>
  join(root, 'test/golden', name),
);

export interface Folders {
  of(checkpoint: string): string;
  remove(): void;
}

export function packedFolders(): Folders {
  const dir = mkdtempSync(join(tmpdir(), 'copse-engines-'));
  const built = new Map<string, string>();
  return {
    of(checkpoint) {
      const out =
        built.get(checkpoint) ??
        buildEngine({ checkpoint, out: join(dir, String(built.size)), recipe: 'nvfp4' });
      built.set(checkpoint, out);
      return out;
    },
    remove: () => rmSync(dir, { recursive: true, force: true }),
  };
}

export function requestOf(ids: ArrayLike<number>, more: Partial<GenerateRequest> = {}): GenerateRequest {
  return {
    ids: Int32Array.from(ids),
    maxTokens: 24,
    sampling: defaultSampling,
    stopIds: [],
    boundaries: [],
    topLogprobs: 5,
    tenant: '',
    constraint: null,
    ...more,
  };
}

export interface Outcome {
  readonly ids: number[];
  readonly logprobs: TokenLogprob[];
  readonly start: Extract<GenerationEvent, { type: 'start' }> | null;
  readonly end: Extract<GenerationEvent, { type: 'end' }> | null;
}

export async function collect(events: AsyncIterable<GenerationEvent>): Promise<Outcome> {
  const ids: number[] = [];
  const logprobs: TokenLogprob[] = [];
  let start: Outcome['start'] = null;
  let end: Outcome['end'] = null;
  for await (const event of events) {
    if (event.type === 'start') start = event;
    else if (event.type === 'end') end = event;
    else {
      ids.push(...event.ids);
      logprobs.push(...(event.logprobs ?? []));
    }
  }
  return { ids, logprobs, start, end };
}

export const run = (engine: Engine, request: GenerateRequest): Promise<Outcome> =>
  collect(engine.generate(request));

/** What an answer is: its tokens and, bit for bit, the logits they came from. */
export const answerOf = ({ ids, logprobs, end }: Outcome) => ({ ids, logprobs, reason: end?.reason });
