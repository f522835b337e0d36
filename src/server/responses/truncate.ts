/** `truncation: auto`: the oldest messages go until prompt and answer fit into the context. */
import type { ChatMessage } from '../../chat/index.ts';
import type { ChatRequest, Completion } from '../../completion/index.ts';

/** Room for the answer where the request names none: this share of the context. */
const answerShare = 8;

/** System messages and the last message of the user stay; a tool's result goes with its call. */
export function fitted(request: ChatRequest, completion: Completion): ChatRequest {
  const { contextTokens } = completion.engine.info;
  const share = Math.floor(contextTokens / answerShare);
  const room = contextTokens - Math.min(request.maxTokens ?? share, share);
  const fits = (messages: readonly ChatMessage[]): boolean =>
    completion.renderPrompt({ ...request, messages }).ids.length <= room;
  const { messages } = request;
  if (fits(messages)) return request;
  const starts = droppedUntil(messages);
  let low = 0;
  let high = starts.length - 1;
  // The first start that fits; the last one is taken in any case, and the completion says when it is too long.
  while (low < high) {
    const middle = (low + high) >> 1;
    if (fits(without(messages, starts[middle] ?? 0))) high = middle;
    else low = middle + 1;
  }
  return { ...request, messages: without(messages, starts[low] ?? 0) };
}

/** Positions at which what is kept may begin. */
function droppedUntil(messages: readonly ChatMessage[]): number[] {
  return messages.flatMap(({ role }, i) => (i > 0 && (role === 'user' || role === 'assistant') ? [i] : []));
}

function without(messages: readonly ChatMessage[], start: number): readonly ChatMessage[] {
  const lastUser = messages.findLastIndex(({ role }) => role === 'user');
  return messages.filter(({ role }, i) => i >= start || i === lastUser || role === 'system');
}
