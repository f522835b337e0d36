/** copse-tiny in the layouts of quantized checkpoints: its projections are stored anew, everything else stays as it is. */
import { cpSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  describeWeight,
  expectedMtpWeights,
  expectedWeights,
  memoryCheckpoint,
  openCheckpoint,
  readJson,
} from '../../src/checkpoint/index.ts';
import { present } from '../../src/util/index.ts';
import type { LayoutMaker } from './layouts.ts';
import { safetensorsBytes, type TestTensor } from './safetensors.ts';

const tiny = fileURLToPath(new URL('../../models/copse-tiny', import.meta.url));

/** Writes copse-tiny in a layout to `folder`, and returns the checkpoint of the values that are meant, in memory. */
export function storeTiny({ quantization, make }: LayoutMaker, folder: string) {
  const ck = openCheckpoint(tiny);
  const json = readJson(join(tiny, 'config.json')) as object;
  const stored: Record<string, TestTensor> = {};
  const meant: Record<string, TestTensor> = {};
  for (const weight of [...expectedWeights(ck.config), ...expectedMtpWeights(ck.config)]) {
    const found = describeWeight(ck, weight);
    const name = found.uses[0] as string;
    const { dtype, shape } = present(ck.tensors.get(name), name);
    const plain: TestTensor = { dtype, shape, bytes: ck.read(name) };
    const stem = name.replace(/\.weight$/, '');
    if (!/_proj$/.test(stem)) {
      stored[name] = plain;
      meant[name] = plain;
      continue;
    }
    const made = make(
      found.rows({ from: 0, count: shape[0] as number }),
      shape as unknown as [number, number],
    );
    for (const [ending, tensor] of Object.entries(made.tensors)) stored[stem + ending] = tensor;
    meant[name] = { dtype: 'F32', shape, bytes: new Uint8Array(made.values.buffer) };
  }
  cpSync(tiny, folder, { recursive: true, filter: (path) => !path.includes('.safetensors') });
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...json, quantization_config: quantization }));
  writeFileSync(join(folder, 'model.safetensors'), safetensorsBytes(stored));
  return memoryCheckpoint(json, meant);
}
