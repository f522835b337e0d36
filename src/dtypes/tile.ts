/**
 * The layout that kernels read: tiles of 16 outputs x 16 inputs, one NVFP4 block per output row, 144 bytes each,
 * in memory order by row tile, then input block.
 *
 *   byte 4r + i       : inputs i (low nibble) and 4 + i (high nibble) of row r, i = 0..3
 *   byte 64 + 4r + i  : inputs 8 + i and 12 + i
 *   byte 128 + r      : block scale of row r
 *
 * Rows beyond outDim are zero.
 */
import { assert } from '../util/index.ts';
import { nvfp4Block } from './nvfp4.ts';

export const tileRows = 16;
export const tileBytes = 144;

export function tiledBytes(outDim: number, inDim: number): number {
  return Math.ceil(outDim / tileRows) * (inDim / nvfp4Block) * tileBytes;
}

/**
 * codes [outDim, inDim / 2], scales [outDim, inDim / 16]. Inputs 2i and 2i + 1 of a block share byte i, so bytes i and i + 2 hold
 * the partners of two tile bytes.
 */
export function packTiles(codes: Uint8Array, scales: Uint8Array, outDim: number, inDim: number): Uint8Array {
  checkSizes(codes, scales, outDim, inDim);
  const blocks = inDim / nvfp4Block;
  const out = new Uint8Array(tiledBytes(outDim, inDim));
  for (let row = 0; row < outDim; row++) {
    const lane = row % tileRows;
    let tile = ((row - lane) / tileRows) * blocks * tileBytes;
    for (let block = row * blocks; block < (row + 1) * blocks; block++, tile += tileBytes) {
      for (let half = 0; half < 2; half++) {
        const from = block * 8 + half * 4;
        const to = tile + half * 64 + 4 * lane;
        const b0 = codes[from] as number;
        const b1 = codes[from + 1] as number;
        const b2 = codes[from + 2] as number;
        const b3 = codes[from + 3] as number;
        out[to] = (b0 & 15) | (b2 << 4);
        out[to + 1] = (b0 >> 4) | (b2 & 0xf0);
        out[to + 2] = (b1 & 15) | (b3 << 4);
        out[to + 3] = (b1 >> 4) | (b3 & 0xf0);
      }
      out[tile + 128 + lane] = scales[block] as number;
    }
  }
  return out;
}

/** The exact inverse of `packTiles`. */
export function unpackTiles(
  tiles: Uint8Array,
  outDim: number,
  inDim: number,
): { codes: Uint8Array; scales: Uint8Array } {
  const blocks = inDim / nvfp4Block;
  assert(
    tiles.length === tiledBytes(outDim, inDim),
    `${tiles.length} bytes are tiles of [${outDim}, ${inDim}]`,
  );
  const codes = new Uint8Array((outDim * inDim) / 2);
  const scales = new Uint8Array(outDim * blocks);
  for (let row = 0; row < outDim; row++) {
    const lane = row % tileRows;
    let tile = ((row - lane) / tileRows) * blocks * tileBytes;
    for (let block = row * blocks; block < (row + 1) * blocks; block++, tile += tileBytes) {
      for (let half = 0; half < 2; half++) {
        const from = tile + half * 64 + 4 * lane;
        const to = block * 8 + half * 4;
        const t0 = tiles[from] as number;
        const t1 = tiles[from + 1] as number;
        const t2 = tiles[from + 2] as number;
        const t3 = tiles[from + 3] as number;
        codes[to] = (t0 & 15) | (t1 << 4);
        codes[to + 1] = (t2 & 15) | (t3 << 4);
        codes[to + 2] = (t0 >> 4) | (t1 & 0xf0);
        codes[to + 3] = (t2 >> 4) | (t3 & 0xf0);
      }
      scales[block] = tiles[tile + 128 + lane] as number;
    }
  }
  return { codes, scales };
}

function checkSizes(codes: Uint8Array, scales: Uint8Array, outDim: number, inDim: number): void {
  assert(inDim % nvfp4Block === 0, `inDim ${inDim} is a multiple of ${nvfp4Block}`);
  assert(codes.length * 2 === outDim * inDim, `${codes.length} bytes are codes of [${outDim}, ${inDim}]`);
  assert(
    scales.length * nvfp4Block === outDim * inDim,
    `${scales.length} bytes are scales of [${outDim}, ${inDim}]`,
  );
}
