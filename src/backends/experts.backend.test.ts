/** Mixture of experts: every back-end against `reference`, and against `linear` bit for bit. */
import { afterAll, describe, expect, it } from 'vitest';
import { availableBackends } from '../../test/support/backends.ts';
import { randomFrom, randomValues } from '../../test/support/rig.ts';
import { makeWeight } from '../../test/support/weights.ts';
import { type Backend, type Buffer, openReference, type WeightFormat } from './index.ts';

const formats: WeightFormat[] = [
  'nvfp4-tile',
  'bf16',
  'f32',
  'fp8',
  'fp8-row',
  'fp8-128',
  'fp8-64',
  'fp8-32',
];

async function floats(backend: Backend, buffer: Buffer): Promise<Float32Array> {
  const values = new Float32Array(buffer.bytes / 4);
  await backend.read(buffer, 0, values);
  return values;
}

async function ints(backend: Backend, buffer: Buffer): Promise<number[]> {
  const values = new Int32Array(buffer.bytes / 4);
  await backend.read(buffer, 0, values);
  return [...values];
}

/** Ids without repetition in a row; expert 0 is never chosen, expert 1 by every row. */
function choose(rows: number, k: number, experts: number, random: () => number): Int32Array {
  return Int32Array.from(
    Array.from({ length: rows }, () => {
      const others = Array.from({ length: experts - 2 }, (_, e) => e + 2);
      const first = Math.floor(random() * others.length);
      return [1, ...[...others.slice(first), ...others.slice(0, first)].slice(0, k - 1)];
    }).flat(),
  );
}

interface Grouped {
  readonly format: WeightFormat;
  readonly rows: number;
  readonly input: 'row' | 'choice';
}

const [outDim, inDim, expertCount, k] = [40, 144, 7, 3];

async function grouped(backend: Backend, { format, rows, input }: Grouped) {
  const random = randomFrom(3);
  const experts = Array.from({ length: expertCount }, () =>
    makeWeight(backend, format, [outDim, inDim], random),
  );
  const x = randomValues((input === 'row' ? rows : rows * k) * inDim, random);
  const ids = choose(rows, k, expertCount, random);
  const idBuffer = backend.alloc(ids.length);
  backend.write(idBuffer, 0, ids);
  const out = backend.alloc(rows * k * outDim);
  backend.groupedLinear(out, experts, backend.upload(x), { experts: idBuffer, rows, k, input });
  return { experts, x, ids, out: await floats(backend, out) };
}

const cases = formats.flatMap((format) =>
  [1, 5, 40].flatMap((rows) => (['row', 'choice'] as const).map((input) => ({ format, rows, input }))),
);

describe.each(availableBackends())('$name', ({ open }) => {
  const backend = open();
  const reference = openReference();
  afterAll(() => {
    backend.close();
    reference.close();
  });

  it.each(cases)(
    'groups $rows rows of $format experts by $input as linear alone, bit for bit',
    async (given) => {
      const { experts, x, ids, out } = await grouped(backend, given);
      const one = backend.alloc(outDim);
      for (const [i, id] of ids.entries()) {
        const row = given.input === 'row' ? Math.floor(i / k) : i;
        const input = backend.upload(x.slice(row * inDim, (row + 1) * inDim));
        backend.linear(one, experts[id] as never, input, 1);
        expect([...out.slice(i * outDim, (i + 1) * outDim)]).toEqual([...(await floats(backend, one))]);
      }
    },
  );

  it.each(cases)('agrees with reference on $rows rows of $format experts by $input', async (given) => {
    const [actual, expected] = [await grouped(backend, given), await grouped(reference, given)];
    const size = Math.max(...expected.out.map(Math.abs));
    for (const [i, value] of expected.out.entries())
      expect(Math.abs((actual.out[i] as number) - value)).toBeLessThanOrEqual(2e-6 * size);
  });

  it.each([true, false])('routes over all experts in order, renormalize %s', async (renormalize) => {
    const logits = [0, 3, 3, -1, 5, 2, 1, -2, -2, -2, -2, -2];
    const out = { experts: backend.alloc(6), weights: backend.alloc(6) };
    const shape = { rows: 2, experts: 6, k: 3, renormalize };
    backend.route(out, backend.upload(Float32Array.from(logits)), shape);
    expect(await ints(backend, out.experts)).toEqual([4, 1, 2, 0, 1, 2]);
    const weights = [...(await floats(backend, out.weights))];
    const exps = (row: number[]): number[] => row.map((x) => Math.exp(x));
    const sum = (row: number[]): number => row.reduce((a, b) => a + b, 0);
    const whole = sum(exps(renormalize ? [5, 3, 3] : logits.slice(0, 6)));
    const second = sum(exps(renormalize ? [1, -2, -2] : logits.slice(6)));
    const expected = [...exps([5, 3, 3]).map((x) => x / whole), ...exps([1, -2, -2]).map((x) => x / second)];
    for (const [i, value] of expected.entries()) expect(weights[i]).toBeCloseTo(value, 6);
  });

  it('mixes the choices of a row, and adds a gated row', async () => {
    const y = backend.upload(Float32Array.of(1, 2, 10, 20, -1, 0, 4, 8));
    const out = backend.alloc(4);
    backend.mixExperts(out, y, backend.upload(Float32Array.of(0.5, 0.25, 1, 0.5)), { rows: 2, k: 2, dim: 2 });
    expect([...(await floats(backend, out))]).toEqual([3, 6, 1, 4]);
    backend.addGated(
      out,
      backend.upload(Float32Array.of(2, 4, 6, 8)),
      backend.upload(Float32Array.of(0, 90)),
      {
        rows: 2,
        dim: 2,
      },
    );
    expect([...(await floats(backend, out))]).toEqual([4, 8, 7, 12]);
  });

  it('refuses an expert that does not exist, experts of several shapes, and more choices than experts', () => {
    const random = randomFrom(1);
    const experts = [
      makeWeight(backend, 'f32', [4, 16], random),
      makeWeight(backend, 'f32', [5, 16], random),
    ];
    const [ids, x, out] = [backend.alloc(2), backend.alloc(32), backend.alloc(32)];
    const issue = (): void =>
      backend.groupedLinear(out, experts, x, { experts: ids, rows: 2, k: 1, input: 'row' });
    backend.write(ids, 0, Int32Array.of(0, 1));
    expect(issue).toThrow(/\[[45], 16\]/);
    backend.write(ids, 0, Int32Array.of(0, 7));
    expect(issue).toThrow();
    const shape = { rows: 1, experts: 3, k: 4, renormalize: true };
    expect(() => backend.route({ experts: ids, weights: out }, x, shape)).toThrow('of 3');
  });
});
