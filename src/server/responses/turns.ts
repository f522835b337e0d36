/** What an assistant said, thought and called, item by item, brought back to the messages it was made from. */
import type { ChatMessage, JsonValue } from '../../chat/index.ts';

interface Draft {
  reasoning: string;
  content: string | null;
  readonly calls: { readonly id: string; readonly name: string; readonly args: JsonValue }[];
}

export class Turns {
  readonly #messages: ChatMessage[] = [];
  #draft: Draft | null = null;

  reason(text: string): void {
    const { content, calls } = this.#open();
    // Behind an answer without calls another one begins.
    if (content !== null && calls.length === 0) this.#close();
    this.#open().reasoning += text;
  }

  say(text: string): void {
    const { content, calls } = this.#open();
    if (content !== null && calls.length === 0) this.#close();
    const draft = this.#open();
    const parted = draft.content === null || /\s$/.test(draft.content) || /^\s/.test(text);
    draft.content = (draft.content ?? '') + (parted ? text : `\n${text}`);
  }

  call(id: string, name: string, args: JsonValue): void {
    this.#open().calls.push({ id, name, args });
  }

  /** A message that is not the assistant's. */
  add(message: ChatMessage): void {
    this.#close();
    this.#messages.push(message);
  }

  finish(): ChatMessage[] {
    this.#close();
    return this.#messages;
  }

  #open(): Draft {
    this.#draft ??= { reasoning: '', content: null, calls: [] };
    return this.#draft;
  }

  #close(): void {
    if (this.#draft === null) return;
    const { reasoning, content, calls } = this.#draft;
    this.#draft = null;
    this.#messages.push({
      role: 'assistant',
      content,
      ...(reasoning === '' ? {} : { reasoning_content: reasoning }),
      ...(calls.length === 0
        ? {}
        : {
            tool_calls: calls.map(({ id, name, args }) => ({
              id,
              type: 'function',
              function: { name, arguments: args },
            })),
          }),
    });
  }
}
