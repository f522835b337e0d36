/** A call that stands in thinking or in a code fence: talk of a call, unless the output ends with it. */
import { skipBlank } from './call-tags.ts';
import { fenceCloseAt } from './line-tracker.ts';

/** The longest quotation that is held back until it is clear whether it is one. */
export const longestQuotation = 65_536;

export const thinkCloses = ['</think>', '</thinking>'] as const;
const callClose = '</tool_call>';

/**
 * Where it shows that `text`, which begins with a call, only quotes it: its think block or fence ends, or goes on behind
 * the call. -1 while it may be a call. Lines before `from` are known to end nothing. `fence`: its marks, null in thinking.
 */
export function quotationEnd(
  text: string,
  from: number,
  { fence, ended }: { readonly fence: string | null; readonly ended: boolean },
): number {
  const mark = fence === null ? thinkCloseAt(text, from) : fenceCloseAt(text, from, fence, ended);
  if (mark >= 0) return mark;
  for (let at = text.indexOf(callClose); at >= 0; at = text.indexOf(callClose, at + 1)) {
    const after = skipBlank(text, at + callClose.length);
    const next = text.charAt(after);
    const maybeMark = next === '' || next === '<' || fence?.startsWith(next);
    if (!maybeMark) return after;
  }
  return -1;
}

function thinkCloseAt(text: string, from: number): number {
  const found = thinkCloses.map((tag) => text.indexOf(tag, from)).filter((at) => at >= 0);
  return found.length === 0 ? -1 : Math.min(...found);
}
