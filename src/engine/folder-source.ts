/** A model's weights from an engine folder: matrices stay in the file, which the back-end maps. */
import type { Backend, Weight, WeightFile } from '../backends/index.ts';
import type { EngineFolder, LocatedWeight } from '../build/index.ts';
import { readAt } from '../checkpoint/index.ts';
import type { WeightSource } from '../models/index.ts';
import { UserError } from '../util/index.ts';

export function folderSource(backend: Backend, folder: EngineFolder): WeightSource {
  const file: WeightFile = backend.openWeights(folder.weightsFile);
  const locate = (name: string): LocatedWeight => {
    const weight = folder.weights.get(name);
    if (weight === undefined)
      throw new UserError('bad_engine_folder', `${folder.path} has no weight '${name}'`);
    return weight;
  };
  const loaded = new Map<string, Weight>();
  return {
    config: folder.config,
    has: (name) => folder.weights.has(name),
    matrix(name) {
      const known = loaded.get(name);
      if (known !== undefined) return known;
      const { format, shape, scale, offset, bytes } = locate(name);
      const [outDim, inDim] = shape as [number, number];
      const weight = file.weight({ format, outDim, inDim, scale }, offset, bytes);
      loaded.set(name, weight);
      return weight;
    },
    vector(name) {
      const { format, offset, bytes } = locate(name);
      if (format !== 'f32') throw new UserError('bad_engine_folder', `'${name}' is ${format}, expected f32`);
      return new Float32Array(readAt(folder.weightsFile, offset, bytes).buffer);
    },
    kvScales: (stem) => folder.manifest.kvScales[stem] ?? { k: 1, v: 1 },
    close: () => file.close(),
  };
}
