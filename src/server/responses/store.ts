/**
 * Responses that clients may name again, bounded in count and bytes: those that were used last stay. What one key
 * stored, another does not find. Items are shared between the responses of a conversation and counted once.
 */
import { type JsonObject, stringifyCompact } from '../../chat/index.ts';
import { UserError } from '../../util/index.ts';

export interface StoredResponse {
  readonly id: string;
  /** As the client got it. */
  readonly body: JsonObject;
  /** The conversation up to this response's input, every item with an id. */
  readonly input: readonly JsonObject[];
  readonly output: readonly JsonObject[];
}

export interface StoreLimits {
  readonly responses: number;
  /** Of the JSON of all items and bodies. */
  readonly bytes: number;
}

const defaultLimits: StoreLimits = { responses: 1024, bytes: 64 * 2 ** 20 };

interface CountedItem {
  readonly bytes: number;
  users: number;
}

interface Entry extends StoredResponse {
  readonly caller: string;
  readonly bytes: number;
}

export class ResponseStore {
  readonly #limits: StoreLimits;
  /** In the order of last use. */
  readonly #entries = new Map<string, Entry>();
  readonly #items = new Map<JsonObject, CountedItem>();
  /** By caller and id. */
  readonly #byItemId = new Map<string, JsonObject>();
  #bytes = 0;

  constructor(limits: StoreLimits = defaultLimits) {
    this.#limits = limits;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** false: larger than the whole store. */
  add(caller: string, response: StoredResponse): boolean {
    const bytes = sizeOf(response.body);
    const entry = { ...response, caller, bytes };
    this.#entries.set(response.id, entry);
    this.#bytes += bytes;
    for (const item of itemsOf(entry)) this.#count(item, caller);
    for (const [id, old] of this.#entries) {
      if (this.#bytes <= this.#limits.bytes && this.#entries.size <= this.#limits.responses) break;
      this.#drop(id, old);
    }
    return this.#entries.has(response.id);
  }

  /** Throws UserError for one that is not there. */
  get(caller: string, id: string): StoredResponse {
    const entry = this.find(caller, id);
    if (entry === null)
      throw new UserError('not_found', `the response '${id.slice(0, 200)}' is not stored here`, {
        hint: 'Only the last responses are kept, and none with store: false.',
      });
    return entry;
  }

  find(caller: string, id: string): StoredResponse | null {
    const entry = this.#entries.get(id);
    if (entry === undefined || entry.caller !== caller) return null;
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    return entry;
  }

  item(caller: string, id: string): JsonObject | null {
    return this.#byItemId.get(itemKey(caller, id)) ?? null;
  }

  /** Throws UserError for one that is not there. */
  delete(caller: string, id: string): void {
    this.get(caller, id);
    const entry = this.#entries.get(id);
    if (entry !== undefined) this.#drop(id, entry);
  }

  #count(item: JsonObject, caller: string): void {
    const known = this.#items.get(item);
    if (known !== undefined) {
      known.users++;
      return;
    }
    const bytes = sizeOf(item);
    this.#items.set(item, { bytes, users: 1 });
    this.#bytes += bytes;
    this.#byItemId.set(itemKey(caller, item.id), item);
  }

  #drop(id: string, entry: Entry): void {
    this.#entries.delete(id);
    this.#bytes -= entry.bytes;
    for (const item of itemsOf(entry)) {
      const counted = this.#items.get(item);
      if (counted === undefined || --counted.users > 0) continue;
      this.#items.delete(item);
      this.#bytes -= counted.bytes;
      const key = itemKey(entry.caller, item.id);
      if (this.#byItemId.get(key) === item) this.#byItemId.delete(key);
    }
  }
}

const itemsOf = ({ input, output }: StoredResponse): readonly JsonObject[] => [...input, ...output];

const itemKey = (caller: string, id: JsonObject[string] | undefined): string => JSON.stringify([caller, id]);

const sizeOf = (value: JsonObject): number => Buffer.byteLength(stringifyCompact(value));
