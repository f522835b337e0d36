/** The back-ends that this machine can run: `native` is absent where the addon could not be built. */
import { type Backend, openBackend, openReference } from '../../src/backends/index.ts';
import { UserError } from '../../src/util/index.ts';

export interface AvailableBackend {
  readonly name: Backend['name'];
  readonly open: () => Backend;
}

export function availableBackends(): AvailableBackend[] {
  const openNative = (): Backend => openBackend({ name: 'native', threads: 2 });
  const reference: AvailableBackend = { name: 'reference', open: openReference };
  try {
    openNative().close();
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    console.log(`only the reference back-end is tested: ${error.message}`);
    return [reference];
  }
  return [reference, { name: 'native', open: openNative }];
}
