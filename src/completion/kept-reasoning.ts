/**
 * What the model thought before a tool call, by the id of the call. Many clients send the call back without it; the
 * prompt would then differ from what is cached, and the model would not know why it called.
 */
import type { ChatMessage } from '../chat/index.ts';

/** Characters of all texts together, and of one. */
const maxTotal = 8 * 2 ** 20;
const maxEntries = 4096;

export class KeptReasoning {
  /** In the order of last use. */
  readonly #texts = new Map<string, string>();
  #total = 0;

  keep(tenant: string, callIds: readonly string[], reasoning: string): void {
    if (reasoning.trim() === '' || reasoning.length > maxTotal / 8) return;
    for (const id of callIds) {
      this.#drop(keyOf(tenant, id));
      this.#texts.set(keyOf(tenant, id), reasoning);
      this.#total += reasoning.length;
    }
    for (const key of this.#texts.keys()) {
      if (this.#total <= maxTotal && this.#texts.size <= maxEntries) break;
      this.#drop(key);
    }
  }

  /** Messages in which past calls have the thinking that their client left out. */
  restore(tenant: string, messages: readonly ChatMessage[]): readonly ChatMessage[] {
    if (this.#texts.size === 0) return messages;
    return messages.map((message) => {
      const { role, reasoning_content: reasoning, content, tool_calls: calls } = message;
      const saysThinking = typeof content === 'string' && content.includes('</think>');
      if (role !== 'assistant' || !Array.isArray(calls) || saysThinking) return message;
      if (typeof reasoning === 'string' && reasoning.trim() !== '') return message;
      for (const call of calls) {
        const id: unknown = call?.id;
        const text = typeof id === 'string' ? this.#use(keyOf(tenant, id)) : undefined;
        if (text !== undefined) return { ...message, reasoning_content: text };
      }
      return message;
    });
  }

  #use(key: string): string | undefined {
    const text = this.#texts.get(key);
    if (text === undefined) return undefined;
    this.#texts.delete(key);
    this.#texts.set(key, text);
    return text;
  }

  #drop(key: string): void {
    this.#total -= this.#texts.get(key)?.length ?? 0;
    this.#texts.delete(key);
  }
}

const keyOf = (tenant: string, id: string): string => `${tenant}\0${id}`;
