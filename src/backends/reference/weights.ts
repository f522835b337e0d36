/**
 * Weight matrices of the reference back-end, decoded once when they are made: plain formats to fp32, NVFP4 to small integers
 * and block scales, which is what the integer product of `linear` needs.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import {
  bf16ToF32,
  e2m1Values,
  e4m3Decode,
  nvfp4Block,
  tiledBytes,
  unpackTiles,
} from '../../dtypes/index.ts';
import { assert, UserError } from '../../util/index.ts';
import {
  isScaledFp8,
  type ScaledFp8,
  scaledFp8Layout,
  type Weight,
  type WeightFile,
  type WeightSpec,
} from '../backend.ts';

export type DecodedWeight = WeightSpec &
  (
    | { readonly kind: 'plain' /** [outDim, inDim] before `scale` */; readonly values: Float32Array }
    | {
        readonly kind: 'nvfp4';
        /** 2 x E2M1 [outDim, inDim], so that products are integers. */
        readonly doubled: Int8Array;
        /** [outDim, inDim / 16] */
        readonly blockScales: Float32Array;
      }
  );

export function weightBytes({ format, outDim, inDim }: WeightSpec): number {
  if (format === 'nvfp4-tile') return tiledBytes(outDim, inDim);
  if (isScaledFp8(format)) return scaledFp8Layout(format, [outDim, inDim]).bytes;
  const perValue = { bf16: 2, f32: 4, fp8: 1 }[format];
  return outDim * inDim * perValue;
}

function decode(spec: WeightSpec, bytes: Uint8Array): DecodedWeight {
  if (spec.format === 'nvfp4-tile') return decodeTiles(spec, bytes);
  if (isScaledFp8(spec.format)) return decodeScaled(spec, spec.format, bytes);
  const values = new Float32Array(spec.outDim * spec.inDim);
  // A copy is aligned for wider views.
  const own = bytes.slice();
  if (spec.format === 'f32') values.set(new Float32Array(own.buffer, 0, values.length));
  else if (spec.format === 'bf16') bf16ToF32(new Uint16Array(own.buffer, 0, values.length), values);
  else for (let i = 0; i < values.length; i++) values[i] = e4m3Decode[own[i] as number] as number;
  return { ...spec, kind: 'plain', values };
}

function decodeScaled(spec: WeightSpec, format: ScaledFp8, bytes: Uint8Array): DecodedWeight {
  const { outDim, inDim } = spec;
  const { offset, group, perRow } = scaledFp8Layout(format, [outDim, inDim]);
  const scales = new Float32Array(bytes.slice(offset).buffer);
  const values = Float32Array.from({ length: outDim * inDim }, (_, i) => {
    const scale = scales[Math.floor(i / inDim) * perRow + Math.floor((i % inDim) / group)] as number;
    return (e4m3Decode[bytes[i] as number] as number) * scale;
  });
  return { ...spec, kind: 'plain', values };
}

function decodeTiles(spec: WeightSpec, bytes: Uint8Array): DecodedWeight {
  const { codes, scales } = unpackTiles(bytes, spec.outDim, spec.inDim);
  const doubled = new Int8Array(codes.length * 2);
  for (let i = 0; i < codes.length; i++) {
    const pair = codes[i] as number;
    doubled[2 * i] = 2 * (e2m1Values[pair & 15] as number);
    doubled[2 * i + 1] = 2 * (e2m1Values[pair >> 4] as number);
  }
  const blockScales = Float32Array.from(scales, (code) => e4m3Decode[code] as number);
  return { ...spec, kind: 'nvfp4', doubled, blockScales };
}

export class Weights {
  readonly #decoded = new Map<number, DecodedWeight>();
  #nextId = 1;

  add(spec: WeightSpec, bytes: Uint8Array): Weight {
    const { format, outDim, inDim, scale } = spec;
    assert(outDim > 0 && inDim > 0, `weight of [${outDim}, ${inDim}]`);
    assert(
      format !== 'nvfp4-tile' || inDim % nvfp4Block === 0,
      `inDim ${inDim} is a multiple of ${nvfp4Block}`,
    );
    assert(
      bytes.length === weightBytes(spec),
      `${format} [${outDim}, ${inDim}] has ${weightBytes(spec)} bytes, got ${bytes.length}`,
    );
    const id = this.#nextId++;
    const weight = Object.freeze({ id, format, outDim, inDim, scale });
    this.#decoded.set(id, decode(weight, bytes));
    return weight;
  }

  get(weight: Weight): DecodedWeight {
    const decoded = this.#decoded.get(weight.id);
    assert(decoded !== undefined, `weight ${weight.id} is live`);
    return decoded;
  }

  open(path: string): WeightFile {
    let fd = openSync(path, 'r');
    const size = fstatSync(fd).size;
    return {
      path,
      weight: (spec, byteOffset, bytes) => {
        assert(fd >= 0, `${path} is open`);
        if (byteOffset < 0 || byteOffset + bytes > size)
          throw new UserError(
            'bad_engine_folder',
            `${path} has ${size} bytes, a weight lies at ${byteOffset} .. ${byteOffset + bytes}`,
          );
        const content = new Uint8Array(bytes);
        for (let done = 0; done < bytes; ) {
          const got = readSync(fd, content, done, bytes - done, byteOffset + done);
          assert(got > 0, `${path} is as long as it was when opened`);
          done += got;
        }
        return this.add(spec, content);
      },
      close: () => {
        if (fd >= 0) closeSync(fd);
        fd = -1;
      },
    };
  }

  close(): void {
    this.#decoded.clear();
  }
}
