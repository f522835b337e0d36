/**
 * The byte alphabet of byte-level BPE: vocabulary files spell each byte as one printable character.
 * Bytes 33-126, 161-172 and 174-255 stand for themselves; the other 68 map, in rising order, to U+0100 and on.
 */

function isPrintable(byte: number): boolean {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

function buildAlphabet(): string[] {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : next++));
}

/** byte -> its character */
export const byteAlphabet: readonly string[] = buildAlphabet();

const byteOfChar = new Map(byteAlphabet.map((char, byte) => [char, byte]));

/** The bytes a vocabulary entry stands for, or null when it has a character outside the alphabet. */
export function bytesOfToken(token: string): Uint8Array | null {
  const bytes = new Uint8Array(token.length);
  for (let i = 0; i < token.length; i++) {
    const byte = byteOfChar.get(token.charAt(i));
    if (byte === undefined) return null;
    bytes[i] = byte;
  }
  return bytes;
}
