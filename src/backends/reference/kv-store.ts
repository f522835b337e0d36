/**
 * Pages and scratch rows of K and V. Memory comes when a page is first written and goes when it is discarded; reading what
 * was never written is an error.
 *
 * What is stored is x / scale, an fp32 quotient, in the pool's dtype; what is read is that times the scale.
 */
import { bf16Decode, bf16Encode, e4m3Decode, e4m3Encode } from '../../dtypes/index.ts';
import { assert } from '../../util/index.ts';
import type { CommitPath, KvDtype, KvPool, KvSpec } from '../backend.ts';
import { pageOf } from './paths.ts';

type Codes = Float32Array | Uint16Array | Uint8Array;

interface Codec {
  readonly bytes: number;
  make(count: number): Codes;
  encode(value: number): number;
  decode(code: number): number;
}

const codecs: Record<KvDtype, Codec> = {
  f32: { bytes: 4, make: (n) => new Float32Array(n), encode: (x) => x, decode: (x) => x },
  bf16: { bytes: 2, make: (n) => new Uint16Array(n), encode: bf16Encode, decode: bf16Decode },
  fp8: {
    bytes: 1,
    make: (n) => new Uint8Array(n),
    encode: e4m3Encode,
    decode: (code) => e4m3Decode[code] as number,
  },
};

/** Memory of one page, in all layers. */
export function pageBytesOf(
  spec: Pick<KvSpec, 'dtype' | 'layers' | 'kvHeads' | 'headDim' | 'pageTokens'>,
): number {
  const { dtype, layers, kvHeads, headDim, pageTokens } = spec;
  return layers * 2 * kvHeads * pageTokens * headDim * codecs[dtype].bytes;
}

export type KvPart = 'k' | 'v';

/** Where one [headDim] vector lies. */
interface Place {
  readonly layer: number;
  readonly part: KvPart;
  readonly head: number;
}

export class KvStore {
  readonly pool: KvPool;
  readonly #codec: Codec;
  readonly #pages: (Codes | null)[];
  readonly #scratch: (Codes | null)[];

  constructor(id: number, spec: KvSpec) {
    const { dtype, layers, kvHeads, headDim, pageTokens, pages, slots, maxNodes } = spec;
    for (const [name, count] of Object.entries({ layers, kvHeads, headDim, pageTokens, pages, slots }))
      assert(Number.isSafeInteger(count) && count >= 0, `${name} of the KV pool is ${count}`);
    assert(kvHeads > 0 && headDim > 0 && pageTokens > 0 && maxNodes >= 0, 'the KV pool has a shape');
    this.#codec = codecs[dtype];
    this.pool = Object.freeze({ ...spec, id, pageBytes: pageBytesOf(spec) });
    this.#pages = new Array<Codes | null>(pages).fill(null);
    this.#scratch = new Array<Codes | null>(slots).fill(null);
  }

  checkLayer(layer: number): void {
    assert(
      Number.isInteger(layer) && layer >= 0 && layer < this.pool.layers,
      `KV layer ${layer} of ${this.pool.layers}`,
    );
  }

  /** x holds [kvHeads, headDim] from `from` on. */
  putToken(at: { pages: Int32Array; token: number }, place: Place, x: Float32Array, scale: number): void {
    const page = this.#pageFor(pageOf(at.pages, at.token, this.pool));
    this.#encode(page, this.#pageOffset(place, at.token % this.pool.pageTokens), x, scale);
  }

  putNode(at: { slot: number; node: number }, place: Place, x: Float32Array, scale: number): void {
    this.#encode(this.#scratchFor(at.slot), this.#scratchOffset(place, at.node), x, scale);
  }

  /** The first `tokens` vectors of a head, as stored, into out [tokens, headDim]. */
  getTokens(at: { pages: Int32Array; tokens: number }, place: Place, out: Float32Array, scale: number): void {
    const { headDim, pageTokens } = this.pool;
    for (let token = 0; token < at.tokens; token++) {
      const id = pageOf(at.pages, token, this.pool);
      const page = this.#pages[id];
      assert(page, `page ${id} was written before token ${token} is read`);
      const from = this.#pageOffset(place, token % pageTokens);
      for (let i = 0; i < headDim; i++)
        out[token * headDim + i] = this.#codec.decode(page[from + i] as number) * scale;
    }
  }

  getNode(at: { slot: number; node: number }, place: Place, out: Float32Array, scale: number): void {
    const scratch = this.#scratch[at.slot];
    assert(scratch, `slot ${at.slot} has nodes`);
    const from = this.#scratchOffset(place, at.node);
    for (let i = 0; i < this.pool.headDim; i++)
      out[i] = this.#codec.decode(scratch[from + i] as number) * scale;
  }

  commit(path: CommitPath, layers: { readonly from: number; readonly to: number }): void {
    const { slots, maxNodes, kvHeads, headDim } = this.pool;
    assert(
      layers.from >= 0 && layers.from <= layers.to && layers.to <= this.pool.layers,
      `KV layers ${layers.from} .. ${layers.to}`,
    );
    assert(path.slot >= 0 && path.slot < slots, `slot ${path.slot} is below ${slots}`);
    path.nodes.forEach((node, i) => {
      assert(node >= 0 && node < maxNodes, `node ${node} is below ${maxNodes}`);
      const token = path.ctxLen + i;
      const page = this.#pageFor(pageOf(path.pages, token, this.pool));
      const scratch = this.#scratchFor(path.slot);
      for (let layer = layers.from; layer < layers.to; layer++)
        for (const part of ['k', 'v'] as const)
          for (let head = 0; head < kvHeads; head++) {
            const place = { layer, part, head };
            const from = this.#scratchOffset(place, node);
            page.set(
              scratch.subarray(from, from + headDim),
              this.#pageOffset(place, token % this.pool.pageTokens),
            );
          }
    });
  }

  copyPage(dst: number, src: number): void {
    const from = this.#pages[src];
    assert(from, `page ${src} was written before it is copied`);
    this.#pageFor(dst).set(from);
  }

  discard(pages: Int32Array): void {
    for (const page of pages) {
      assert(page >= 0 && page < this.pool.pages, `page ${page} is below ${this.pool.pages}`);
      this.#pages[page] = null;
    }
  }

  #encode(codes: Codes, at: number, x: Float32Array, scale: number): void {
    for (let i = 0; i < x.length; i++)
      codes[at + i] = this.#codec.encode(Math.fround((x[i] as number) / scale));
  }

  #pageFor(id: number): Codes {
    const { layers, kvHeads, headDim, pageTokens, pages } = this.pool;
    assert(Number.isInteger(id) && id >= 0 && id < pages, `page ${id} is below ${pages}`);
    const page = this.#pages[id] ?? this.#codec.make(layers * 2 * kvHeads * pageTokens * headDim);
    this.#pages[id] = page;
    return page;
  }

  #scratchFor(slot: number): Codes {
    const { layers, kvHeads, headDim, maxNodes } = this.pool;
    const scratch = this.#scratch[slot] ?? this.#codec.make(layers * 2 * kvHeads * maxNodes * headDim);
    this.#scratch[slot] = scratch;
    return scratch;
  }

  #pageOffset(place: Place, token: number): number {
    return this.#offset(place, this.pool.pageTokens, token);
  }

  #scratchOffset(place: Place, node: number): number {
    return this.#offset(place, this.pool.maxNodes, node);
  }

  /** [layer][k|v][kvHead][rows][headDim] */
  #offset({ layer, part, head }: Place, rows: number, row: number): number {
    const { kvHeads, headDim } = this.pool;
    return (((layer * 2 + (part === 'k' ? 0 : 1)) * kvHeads + head) * rows + row) * headDim;
  }
}
