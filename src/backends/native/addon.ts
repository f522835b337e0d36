/** Loads the addon: a prebuilt one for this platform, else the one that was built here. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

/** An opaque device, one per back-end instance. */
export type DeviceHandle = { readonly brand: 'device' };

type Numbers = readonly number[];

/** Functions of the addon; all take the device first. Ids are numbers, batches are flat (see `flatten`). */
export interface Addon {
  open(threads: number): DeviceHandle;
  close(device: DeviceHandle): void;
  detail(device: DeviceHandle): string;
  alloc(device: DeviceHandle, count: number): number;
  release(device: DeviceHandle, id: number): void;
  read(device: DeviceHandle, id: number, from: number, dst: Float32Array | Int32Array): void;
  write(device: DeviceHandle, id: number, from: number, src: Float32Array | Int32Array): void;
  openFile(device: DeviceHandle, path: string): number;
  closeFile(device: DeviceHandle, id: number): void;
  fileWeight(
    device: DeviceHandle,
    file: number,
    ...spec: [format: number, outDim: number, inDim: number, scale: number, offset: number, bytes: number]
  ): number;
  memoryWeight(
    device: DeviceHandle,
    format: number,
    outDim: number,
    inDim: number,
    scale: number,
    bytes: Uint8Array,
  ): number;
  createKv(device: DeviceHandle, ...spec: Numbers): number;
  createState(device: DeviceHandle, ...spec: Numbers): number;
  pageBytes(device: DeviceHandle, pool: number): number;
  snapshotBytes(device: DeviceHandle, pool: number): number;
  discardPages(device: DeviceHandle, pool: number, pages: Int32Array): void;
  discardSnapshots(device: DeviceHandle, pool: number, snapshots: Int32Array): void;
  embed(device: DeviceHandle, out: number, weight: number, ids: Int32Array): void;
  rmsNorm(device: DeviceHandle, ...args: Numbers): void;
  linear(device: DeviceHandle, out: number, weight: number, x: number, rows: number): void;
  add(device: DeviceHandle, x: number, y: number, count: number): void;
  siluMul(device: DeviceHandle, out: number, gate: number, up: number, count: number): void;
  sigmoidMul(device: DeviceHandle, out: number, x: number, gate: number, count: number): void;
  gatherRows(device: DeviceHandle, out: number, src: number, rows: Int32Array, dim: number): void;
  concatRows(device: DeviceHandle, ...args: Numbers): void;
  route(device: DeviceHandle, ...args: Numbers): void;
  groupedLinear(device: DeviceHandle, ...args: (number | Int32Array)[]): void;
  mixExperts(device: DeviceHandle, ...args: Numbers): void;
  addGated(device: DeviceHandle, ...args: Numbers): void;
  prepareQkv(device: DeviceHandle, ...args: (number | Float32Array | Int32Array)[]): void;
  storeKv(device: DeviceHandle, ...args: (number | Int32Array)[]): void;
  attention(device: DeviceHandle, ...args: (number | Int32Array)[]): void;
  conv(device: DeviceHandle, ...args: (number | Int32Array)[]): void;
  deltaRule(device: DeviceHandle, ...args: (number | Int32Array)[]): void;
  gatedRmsNorm(device: DeviceHandle, ...args: Numbers): void;
  argmax(device: DeviceHandle, ...args: Numbers): void;
  topK(device: DeviceHandle, ...args: Numbers): void;
  commitKv(device: DeviceHandle, ...args: (number | Int32Array)[]): void;
  commitState(device: DeviceHandle, pool: number, slot: number, ctxLen: number, nodes: Int32Array): void;
  copyPage(device: DeviceHandle, pool: number, dst: number, src: number): void;
  resetState(device: DeviceHandle, pool: number, slot: number): void;
  saveState(device: DeviceHandle, pool: number, slot: number, tokens: number, snapshot: number): void;
  restoreState(device: DeviceHandle, pool: number, slot: number, tokens: number, snapshot: number): void;
  keepHidden(device: DeviceHandle, pool: number, slot: number, src: number, row: number): void;
  loadHidden(device: DeviceHandle, out: number, row: number, pool: number, slot: number): void;
}

/** The addon, or why there is none. */
export function loadAddon(): Addon | string {
  const root = new URL('../../../', import.meta.url);
  const places = [`prebuilds/${process.platform}-${process.arch}/copse.node`, 'native/build/copse.node'].map(
    (path) => fileURLToPath(new URL(path, root)),
  );
  const path = places.find((place) => existsSync(place));
  if (path === undefined) return 'the addon is not built';
  try {
    return createRequire(import.meta.url)(path) as Addon;
  } catch (error) {
    return `${path} does not load: ${(error as Error).message}`;
  }
}
