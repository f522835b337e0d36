/** Values of hostile files in messages: short, and safe for any nesting. */
const longest = 80;

export function show(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(shorten(value));
  if (Array.isArray(value)) {
    const items = value
      .slice(0, 8)
      .map((item) => (typeof item === 'object' && item !== null ? '…' : show(item)));
    return `[${[...items, ...(value.length > 8 ? ['…'] : [])].join(', ')}]`;
  }
  return typeof value === 'object' && value !== null ? 'an object' : String(value);
}

export function shorten(text: string): string {
  return text.length > longest ? `${text.slice(0, longest)}…` : text;
}
