/**
 * Errors that a person caused and can mend. The CLI prints them and exits with 2, the server turns them into
 * an OpenAI error body with the status below. Everything else that is thrown is a bug.
 */

/** Stable codes and the HTTP status each one maps to. */
export const errorStatus = {
  invalid_request: 400,
  context_length_exceeded: 400,
  invalid_api_key: 401,
  model_not_found: 404,
  previous_response_not_found: 400,
  no_scripted_answer: 400,
  not_found: 404,
  request_too_large: 413,
  too_many_requests: 429,
  overloaded: 503,
  bad_checkpoint: 400,
  bad_engine_folder: 400,
  bad_config: 400,
  bad_dataset: 400,
  bad_option: 400,
  io: 500,
} as const;

export type ErrorCode = keyof typeof errorStatus;

/** Characters of a value that a message or a line of the log repeats. */
export const quotedLimit = 200;

const quotedValue = new RegExp(
  `(['"])((?:(?!\\1).){${quotedLimit}})(?:(?!\\1).)+\\1|(\\S{${quotedLimit}})\\S+`,
  'gs',
);
const longestMessage = 2000;

/** The beginning of a value: what it is can be seen, and no more is repeated. */
export function shortened(text: string): string {
  return text.length <= quotedLimit ? text : `${text.slice(0, quotedLimit)}…`;
}

/** A message in which no value is quoted at length, wherever it came from. */
function shortMessage(message: string): string {
  if (message.length <= quotedLimit) return message;
  const cut =
    message.length <= longestMessage
      ? message
      : `${message.slice(0, longestMessage - quotedLimit)}… ${message.slice(-quotedLimit)}`;
  return cut.replace(quotedValue, (_all, quote?: string, inside?: string, run?: string) =>
    run === undefined ? `${quote}${inside}…${quote}` : `${run}…`,
  );
}

export class UserError extends Error {
  readonly code: ErrorCode;
  /** What to do about it; empty when the message says it all. */
  readonly hint: string;
  /** The request field, file key or tensor that is wrong, if one is. */
  readonly param: string | null;

  constructor(
    code: ErrorCode,
    message: string,
    extra: { hint?: string; param?: string; cause?: unknown } = {},
  ) {
    super(shortMessage(message), extra.cause === undefined ? undefined : { cause: extra.cause });
    this.name = 'UserError';
    this.code = code;
    this.hint = extra.hint ?? '';
    this.param = extra.param === undefined ? null : shortened(extra.param);
  }

  get status(): number {
    return errorStatus[this.code];
  }
}
