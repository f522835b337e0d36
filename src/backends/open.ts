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

/** A set of kernels that somebody asked for and that is not there must not end in the slow reference unnoticed. */
function findNative(): { readonly reason: string | null } {
  const native = tryNative();
  if (native.reason?.startsWith('COPSE_ISA is '))
    throw new UserError('bad_option', native.reason, {
      hint: 'Unset COPSE_ISA to use the best kernels of this CPU, or set it to avx512, avx2, neon or portable.',
    });
  return native;
}

function detailOfNative(): string {
  const backend = openNative(0);
  backend.close();
  return backend.detail;
}

export function openBackend({ name, threads }: BackendChoice): Backend {
  if (name === 'reference') return openReference();
  const native = findNative();
  if (native.reason === null) return openNative(threads);
  if (name === 'native')
    throw new UserError('bad_option', `the native back-end can not be used: ${native.reason}`, {
      hint: 'Run `npm run native` with a C++20 compiler installed.',
    });
  return openReference();
}

/** What this machine can use, and why. */
export function describeBackends(): Record<string, string> {
  const native = findNative();
  return {
    chosen: native.reason === null ? 'native' : 'reference',
    native: native.reason ?? detailOfNative(),
    reference: 'always there: plain TypeScript, the definition of every op, slow',
  };
}
