export type * from './backend.ts';
export { type BackendChoice, describeBackends, openBackend } from './open.ts';
export { openReference, pageBytesOf, snapshotBytesOf } from './reference/index.ts';
