/**
 * Texts of recently finished sequences, apart by tenant: what one tenant was answered is never guessed for another, as the time
 * a right guess saves would tell of it. Bounded: a fixed number of tokens per tenant, a fixed number of tenants, the one that was
 * silent for longest goes first.
 */
import { SuffixIndex } from './suffix-index.ts';

const maxTenants = 16;

export class DraftHistory {
  readonly #capacity: number;
  /** Least recently used first. */
  readonly #tenants = new Map<string, SuffixIndex>();

  /** `tokens` are remembered per tenant, rounded up to a power of two. */
  constructor(tokens: number) {
    this.#capacity = 2 ** Math.ceil(Math.log2(Math.max(64, tokens)));
  }

  get tenants(): number {
    return this.#tenants.size;
  }

  add(tenant: string, text: Int32Array): void {
    const index = this.#tenants.get(tenant) ?? new SuffixIndex({ capacity: this.#capacity });
    index.append(text);
    index.separate();
    this.#tenants.delete(tenant);
    this.#tenants.set(tenant, index);
    const [oldest] = this.#tenants.keys();
    if (this.#tenants.size > maxTenants && oldest !== undefined) this.#tenants.delete(oldest);
  }

  of(tenant: string): SuffixIndex | null {
    return this.#tenants.get(tenant) ?? null;
  }
}
