export type * from './backend.ts';
