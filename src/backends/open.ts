/** Chooses the back-end: the native one where it is built and loads, else the reference. */
import { UserError } from '../util/index.ts';
import type { Backend } from './backend.ts';
import { openNative, tryNative } from './native/index.ts';
import { openReference } from './reference/index.ts';

export interface BackendChoice {
  readonly name: 'auto' | 'native' | 'reference';
  /** 0 = one per core. */
  readonly threads: number;
}

export function openBackend({ name, threads }: BackendChoice): Backend {
  if (name === 'reference') return openReference();
  const native = tryNative();
  if (native.reason === null) return openNative(threads);
  if (name === 'native')
    throw new UserError('bad_option', `the native back-end can not be used: ${native.reason}`, {
      hint: 'Run `npm run native` with a C++20 compiler installed.',
    });
  return openReference();
}

/** What this machine can use, and why. */
export function describeBackends(): Record<string, string> {
  const native = tryNative();
  return {
    chosen: native.reason === null ? 'native' : 'reference',
    native: native.reason ?? native.detail,
    reference: 'always there: plain TypeScript, the definition of every op, slow',
  };
}
