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

const nibbleAt = (codes: Uint8Array, index: number): number => {
  const byte = codes[index >> 1] as number;
  return index % 2 === 0 ? byte & 15 : byte >> 4;
};

/** codes [outDim, inDim / 2], scales [outDim, inDim / 16] */
export function packTiles(codes: Uint8Array, scales: Uint8Array, outDim: number, inDim: number): Uint8Array {
  assert(inDim % nvfp4Block === 0, `inDim ${inDim} is a multiple of ${nvfp4Block}`);
  const blocks = inDim / nvfp4Block;
  const out = new Uint8Array(tiledBytes(outDim, inDim));
  for (let row = 0; row < outDim; row++) {
    const lane = row % tileRows;
    for (let block = 0; block < blocks; block++) {
      const tile = (Math.floor(row / tileRows) * blocks + block) * tileBytes;
      const from = row * inDim + block * nvfp4Block;
      for (let i = 0; i < 4; i++) {
        out[tile + 4 * lane + i] = nibbleAt(codes, from + i) | (nibbleAt(codes, from + 4 + i) << 4);
        out[tile + 64 + 4 * lane + i] = nibbleAt(codes, from + 8 + i) | (nibbleAt(codes, from + 12 + i) << 4);
      }
      out[tile + 128 + lane] = scales[row * blocks + block] as number;
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
  const codes = new Uint8Array((outDim * inDim) / 2);
  const scales = new Uint8Array(outDim * blocks);
  for (let row = 0; row < outDim; row++) {
    const lane = row % tileRows;
    for (let block = 0; block < blocks; block++) {
      const tile = (Math.floor(row / tileRows) * blocks + block) * tileBytes;
      const code = (input: number): number => {
        const byte = tiles[tile + (input >= 8 ? 64 : 0) + 4 * lane + (input % 4)] as number;
        return input % 8 >= 4 ? byte >> 4 : byte & 15;
      };
      const to = (row * inDim + block * nvfp4Block) / 2;
      for (let i = 0; i < 8; i++) codes[to + i] = code(2 * i) | (code(2 * i + 1) << 4);
      scales[row * blocks + block] = tiles[tile + 128 + lane] as number;
    }
  }
  return { codes, scales };
}
