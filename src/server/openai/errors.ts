/** Errors in OpenAI's shape. */
import { UserError } from '../../util/index.ts';

export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string | null;
  };
}

const types: Record<number, string> = {
  401: 'authentication_error',
  404: 'not_found_error',
  429: 'rate_limit_error',
};

export function errorBody(error: unknown): { status: number; body: ErrorBody } {
  if (error instanceof UserError) {
    const { message, hint, param, code, status } = error;
    const text = hint === '' ? message : `${message}. ${hint}`;
    return {
      status,
      body: {
        error: {
          message: text,
          type: types[status] ?? (status >= 500 ? 'server_error' : 'invalid_request_error'),
          param,
          code,
        },
      },
    };
  }
  // Fastify's own, such as a URL that cannot be decoded.
  const { statusCode, code, message } = error as { statusCode?: number; code?: string; message?: string };
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return {
      status: statusCode,
      body: {
        error: {
          message: message ?? 'bad request',
          type: 'invalid_request_error',
          param: null,
          code: code ?? null,
        },
      },
    };
  }
  return {
    status: 500,
    body: {
      error: {
        message: 'the server failed on this request',
        type: 'server_error',
        param: null,
        code: 'internal_error',
      },
    },
  };
}
