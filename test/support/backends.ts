/** The back-ends that this machine can run. */
import { type Backend, openReference } from '../../src/backends/index.ts';

export const availableBackends: Record<string, () => Backend> = { reference: openReference };
