export type * from './backend.ts';
export { isScaledFp8, scaledFp8Format, scaledFp8Groups, scaledFp8Layout } from './backend.ts';
export { type BackendChoice, describeBackends, openBackend } from './open.ts';
export { openReference, pageBytesOf, snapshotBytesOf } from './reference/index.ts';
