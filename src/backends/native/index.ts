export { openNative, tryNative } from './native.ts';
