export { pageBytesOf } from './kv-store.ts';
export { openReference } from './reference.ts';
export { snapshotBytesOf } from './state-store.ts';
