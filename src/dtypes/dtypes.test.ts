import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  absMax,
  bf16Decode,
  bf16Encode,
  dequantizeNvfp4,
  e2m1Encode,
  e2m1Values,
  e4m3Decode,
  e4m3Encode,
  f16Decode,
  f16Encode,
  packTiles,
  quantizeActivationsNvfp4,
  quantizeNvfp4,
  tensorScale,
  unpackTiles,
} from './index.ts';

const golden = JSON.parse(readFileSync(new URL('../../test/golden/nvfp4.json', import.meta.url), 'utf8'));
const [outDim, inDim] = golden.shape as [number, number];
const weight = Float32Array.from(golden.weight as number[]);
const codes = Uint8Array.from(golden.packed_bytes as number[]);
const scales = Uint8Array.from(golden.weight_scale_e4m3_bytes as number[]);

const codesOf = (bytes: Uint8Array): number[] => [...bytes].flatMap((byte) => [byte & 15, byte >> 4]);

describe('NVFP4', () => {
  it('quantizes as ModelOpt does', () => {
    const quantized = quantizeNvfp4(weight, outDim, inDim);
    expect(quantized.scale2).toBeCloseTo(golden.weight_scale_2, 12);
    expect([...quantized.scales]).toEqual([...scales]);
    expect([...quantized.codes]).toEqual([...codes]);
  });

  it('dequantizes to the golden values', () => {
    const values = dequantizeNvfp4({ codes, scales, scale2: golden.weight_scale_2 });
    values.forEach((value, i) => {
      expect(value).toBeCloseTo(golden.dequantized[i], 6);
    });
  });

  it('multiplies W4A4 and W4A16 as the golden products say', () => {
    const x = Float32Array.from(golden.activations as number[]);
    const rows = x.length / inDim;
    const act = quantizeActivationsNvfp4(x, golden.input_scale);
    expect([...act.scales]).toEqual(golden.act_scale_e4m3_bytes);
    expect([...act.codes]).toEqual(golden.act_codes);
    const w = dequantizeNvfp4({ codes, scales, scale2: golden.weight_scale_2 });
    const rounded = [...act.codes].map(
      (code, i) => (e2m1Values[code] ?? 0) * (e4m3Decode[act.scales[i >> 4] ?? 0] ?? 0) * golden.input_scale,
    );
    const dot = (a: ArrayLike<number>, r: number, o: number): number => {
      let sum = 0;
      for (let i = 0; i < inDim; i++) sum += (a[r * inDim + i] ?? 0) * (w[o * inDim + i] ?? 0);
      return sum;
    };
    for (let r = 0; r < rows; r++) {
      for (let o = 0; o < outDim; o++) {
        expect(dot(rounded, r, o)).toBeCloseTo(golden.w4a4_product[r * outDim + o], 4);
        expect(dot(x, r, o)).toBeCloseTo(golden.w4a16_product[r * outDim + o], 4);
      }
    }
  });

  it('packs into tiles and back without losing a bit, with rows that do not fill a tile', () => {
    for (const rows of [1, 6, 16, 17, 40]) {
      const c = Uint8Array.from({ length: (rows * 48) / 2 }, (_, i) => (i * 37 + 11) & 255);
      const s = Uint8Array.from({ length: rows * 3 }, (_, i) => (i * 29) & 127);
      const tiles = packTiles(c, s, rows, 48);
      expect(unpackTiles(tiles, rows, 48)).toEqual({ codes: c, scales: s });
      const row = rows - 1;
      const tile = tiles.subarray((Math.floor(row / 16) * 3 + 2) * 144);
      const code = (input: number) => codesOf(c)[row * 48 + 32 + input] ?? 0;
      expect(tile[(row % 16) * 4 + 1]).toBe(code(1) | (code(5) << 4));
      expect(tile[64 + (row % 16) * 4 + 3]).toBe(code(11) | (code(15) << 4));
      expect(tile[128 + (row % 16)]).toBe(s[row * 3 + 2]);
    }
  });

  it('keeps the first code of a pair in the low nibble', () => {
    const block = Float32Array.of(0.5, -6, 3, 0, ...new Array(12).fill(0));
    const quantized = quantizeNvfp4(block, 1, 16);
    expect([...quantized.codes.subarray(0, 2)]).toEqual([0xf1, 0x05]);
    expect(codesOf(quantized.codes).slice(0, 4)).toEqual([1, 15, 5, 0]);
  });

  it('rounds E2M1 ties to the even code', () => {
    const ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 7, -0.1, -0];
    expect(ties.map(e2m1Encode)).toEqual([0, 2, 2, 4, 4, 6, 6, 7, 8, 0]);
    expect([1e30, -Infinity].map(e2m1Encode)).toEqual([7, 15]);
  });

  it('gives the nearest code of any value, the even one of two', () => {
    fc.assert(
      fc.property(fc.double({ min: -8, max: 8, noNaN: true }), (value) => {
        const size = Math.min(Math.abs(value), 6);
        const errors = [...e2m1Values.subarray(0, 8)].map((magnitude) => Math.abs(magnitude - size));
        const best = errors.flatMap((error, code) => (error === Math.min(...errors) ? [code] : []));
        expect(e2m1Encode(value) & 7).toBe(best.find((code) => code % 2 === 0) ?? best[0]);
      }),
    );
  });

  it('loses less in every block when scales are chosen by error, at the same tensor scale', () => {
    const noise = (i: number) =>
      Math.sin(i * 12.9898) * 43758.5453 - Math.floor(Math.sin(i * 12.9898) * 43758.5453);
    const bell = Float32Array.from(
      { length: 4096 },
      (_, i) => noise(4 * i) + noise(4 * i + 1) - noise(4 * i + 2) - noise(4 * i + 3),
    );
    const scale2 = tensorScale(absMax(bell), 'least-error');
    const errors = (choice: 'modelopt' | 'least-error') => {
      const values = dequantizeNvfp4(quantizeNvfp4(bell, 1, 4096, { choice, scale2 }));
      const squares = bell.map((w, i) => (w - (values[i] ?? 0)) ** 2);
      return Array.from({ length: 256 }, (_, b) =>
        squares.subarray(b * 16, b * 16 + 16).reduce((x, y) => x + y),
      );
    };
    const plain = errors('modelopt');
    const chosen = errors('least-error');
    expect(chosen.filter((error, block) => error > (plain[block] ?? 0) * (1 + 1e-6))).toEqual([]);
    const total = (list: number[]) => list.reduce((x, y) => x + y);
    expect(total(chosen)).toBeLessThan(0.85 * total(plain));
  });

  it('quantizes zeros and the smallest numbers to zeros', () => {
    for (const tiny of [0, 1e-44, -1e-44])
      for (const choice of ['modelopt', 'least-error'] as const) {
        const quantized = quantizeNvfp4(new Float32Array(32).fill(tiny), 2, 16, { choice });
        expect(dequantizeNvfp4(quantized).every((value) => value === 0)).toBe(true);
      }
  });

  it('refuses sizes that do not fit', () => {
    expect(() => quantizeNvfp4(new Float32Array(24), 1, 24)).toThrow('multiple of 16');
    expect(() => quantizeNvfp4(new Float32Array(16), 2, 16)).toThrow('16 values');
    expect(() => packTiles(new Uint8Array(8), new Uint8Array(2), 1, 16)).toThrow('scales of [1, 16]');
    expect(() => unpackTiles(new Uint8Array(143), 1, 16)).toThrow('143 bytes');
  });
});

describe('E4M3', () => {
  it('encodes the golden values', () => {
    for (const [value, code] of golden.e4m3_encode as [number, number][])
      expect(e4m3Encode(value)).toBe(code);
  });

  it('gives every finite code back, and the nearest code of anything else', () => {
    for (let code = 0; code < 256; code++) {
      const value = e4m3Decode[code] ?? 0;
      if (!Number.isNaN(value)) expect(e4m3Encode(value)).toBe(code);
    }
    fc.assert(
      fc.property(fc.double({ min: -448, max: 448, noNaN: true }), (value) => {
        const error = Math.abs((e4m3Decode[e4m3Encode(value)] ?? 0) - value);
        const best = Math.min(
          ...[...e4m3Decode].filter((v) => !Number.isNaN(v)).map((v) => Math.abs(v - value)),
        );
        expect(error).toBe(best);
      }),
    );
    expect([e4m3Encode(1e9), e4m3Encode(-Infinity), e4m3Encode(Number.NaN)]).toEqual([0x7e, 0xfe, 0x7f]);
  });
});

describe('16-bit floats', () => {
  it('give every finite code back', () => {
    for (let code = 0; code < 65536; code++) {
      if (Number.isFinite(bf16Decode(code)) && bf16Encode(bf16Decode(code)) !== code)
        expect.fail(`bf16 ${code}`);
      if (Number.isFinite(f16Decode(code)) && f16Encode(f16Decode(code)) !== code) expect.fail(`f16 ${code}`);
    }
  });

  it('round to nearest, ties to even', () => {
    expect(bf16Decode(bf16Encode(1 + 1 / 256))).toBe(1);
    expect(bf16Decode(bf16Encode(1 + 3 / 256))).toBe(1 + 4 / 256);
    expect(f16Decode(f16Encode(1 + 1 / 2048))).toBe(1);
    expect(f16Decode(f16Encode(65519))).toBe(65504);
    expect(f16Decode(f16Encode(65520))).toBe(Infinity);
    expect(f16Decode(f16Encode(2 ** -24))).toBe(2 ** -24);
    expect(Number.isNaN(bf16Decode(bf16Encode(Number.NaN)))).toBe(true);
  });
});
