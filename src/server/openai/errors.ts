/** Errors in OpenAI's shape. */
import { shortened, UserError } from '../../util/index.ts';
import type { ErrorReply } from '../api.ts';

const types: Record<number, string> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
};

export function errorBody(error: unknown): ErrorReply {
  const { status, message, param, code } = describeError(error);
  const type = types[status] ?? (status >= 500 ? 'server_error' : 'invalid_request_error');
  return { status, message, body: { error: { message, type, param, code } } };
}

export interface DescribedError {
  readonly status: number;
  readonly message: string;
  readonly param: string | null;
  readonly code: string | null;
}

/** What may be told of an error: all of one that a person can mend, nothing of a bug. */
export function describeError(error: unknown): DescribedError {
  if (error instanceof UserError) {
    const { message, hint, param, code, status } = error;
    return { status, message: hint === '' ? message : `${message}. ${hint}`, param, code };
  }
  // Fastify's own, such as a URL that cannot be decoded.
  const { statusCode, code, message } = error as { statusCode?: number; code?: string; message?: string };
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500)
    return {
      status: statusCode,
      message: shortened(message ?? 'bad request'),
      param: null,
      code: code ?? null,
    };
  return { status: 500, message: 'the server failed on this request', param: null, code: 'internal_error' };
}
