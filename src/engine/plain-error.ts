/** Errors as data, for the way across the thread border and back. */
import { UserError } from '../util/index.ts';
import type { PlainError } from './worker-protocol.ts';

export function toPlainError(error: unknown): PlainError {
  const { message, stack } = error instanceof Error ? error : new Error(String(error));
  const user = error instanceof UserError ? { code: error.code, hint: error.hint, param: error.param } : null;
  return { message, stack: stack ?? message, user };
}

export function fromPlainError(plain: PlainError): Error {
  if (plain.user !== null) {
    const { code, hint, param } = plain.user;
    return new UserError(code, plain.message, param === null ? { hint } : { hint, param });
  }
  const error = new Error(plain.message);
  error.stack = plain.stack;
  return error;
}
