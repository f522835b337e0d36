/** OpenAI's chat completions and raw completions. */
import type { Api, Endpoint } from '../api.ts';
import { chatBody, chatWriter, textBody, textWriter } from './chat.ts';
import { errorBody } from './errors.ts';
import { readChatRequest, readTextRequest } from './request.ts';

const chat: Endpoint = {
  path: '/v1/chat/completions',
  idPrefix: 'chatcmpl-',
  read: (body, context) => {
    const { request, includeUsage, legacy, named, ...read } = readChatRequest(body, context);
    const shape = { ...context, legacy, named };
    return {
      ...read,
      generate: (choice, signal) => context.completion.chat(ofChoice(request, choice), signal),
      whole: (head, answers) => chatBody(head, answers, shape),
      writer: (head) => chatWriter(head, { ...shape, includeUsage, choices: read.choices }),
    };
  },
};

const text: Endpoint = {
  path: '/v1/completions',
  idPrefix: 'cmpl-',
  read: (body, context) => {
    const { request, includeUsage, ...read } = readTextRequest(body);
    return {
      ...read,
      generate: (choice, signal) => context.completion.text(ofChoice(request, choice), signal),
      whole: (head, answers) => textBody(head, answers, context),
      writer: (head) => textWriter(head, { ...context, includeUsage, choices: read.choices }),
    };
  },
};

/** Every choice draws numbers of its own. */
export function ofChoice<T extends { readonly sampling: { readonly seed: number } }>(
  request: T,
  choice: number,
): T {
  const { sampling } = request;
  return { ...request, sampling: { ...sampling, seed: (sampling.seed + choice) % 2 ** 32 } };
}

/** Whatever no other API owns is told in OpenAI's shape. */
export const openai: Api = { name: 'openai', owns: () => true, endpoints: [chat, text], errorBody };
