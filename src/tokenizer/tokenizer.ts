/**
 * Text <-> ids, byte-level BPE, equal to the reference: added tokens are split out first, the rest is NFC-normalized,
 * cut into pieces by the checkpoint's pattern and merged. Piece results are cached.
 *
 * Control tokens (special: true) are matched only where the caller says the text is the template's own; other added
 * tokens (`<think>`, `<tool_call>`) are vocabulary and match everywhere.
 * All added tokens match on the raw text, so no normalization can create one.
 */
import { UserError } from '../util/index.ts';
import { type Accept, AddedTokenFinder } from './added-tokens.ts';
import { Bpe } from './bpe.ts';
import { byteAlphabet, bytesOfToken } from './byte-alphabet.ts';
import { translatePattern } from './pre-tokenizer.ts';
import { TextCache } from './text-cache.ts';
import { type BpeSpec, bad, parseTokenizerJson, readTokenizerFile } from './tokenizer-file.ts';

export interface EncodeOptions {
  /** 'parse': text that spells a control token becomes it (the reference). 'plain': it stays text. */
  readonly special: 'parse' | 'plain';
}

/** A stretch of a rendered prompt. Only trusted text, the template's own, may yield control tokens. */
export interface TextSegment {
  readonly text: string;
  readonly trusted: boolean;
}

export interface DecodeOptions {
  /** Leave control tokens out. Default false. */
  readonly skipSpecial?: boolean;
}

/** A place in the text that no piece crosses: UTF-16 units and ids before it. */
interface Edge {
  readonly units: number;
  readonly ids: number;
}

const longestCachedPiece = 128;
const pieceCacheUnits = 1 << 21;
const spanCacheUnits = 1 << 22;

const acceptAll: Accept = () => true;
const acceptPlain: Accept = (token) => !token.special;

/** A checkpoint folder, or the path of a tokenizer.json. */
export function loadTokenizer(path: string): Tokenizer {
  return new Tokenizer(readTokenizerFile(path));
}

/** From the parsed content of a tokenizer.json. */
export function tokenizerFromJson(root: Readonly<Record<string, unknown>>): Tokenizer {
  return new Tokenizer(parseTokenizerJson(root));
}

export class Tokenizer {
  /** One more than the highest id in use: logits rows from here on are padding and never to be sampled. */
  readonly vocabSize: number;
  /** The ids of control tokens. */
  readonly specialIds: ReadonlySet<number>;
  /** Their texts. */
  readonly controlTokens: readonly string[];
  readonly #spec: BpeSpec;
  readonly #bpe: Bpe;
  readonly #patterns: readonly RegExp[];
  readonly #finder: AddedTokenFinder;
  readonly #bytes: (Uint8Array | undefined)[];
  readonly #added: ReadonlyMap<string, number>;
  readonly #pieces = new TextCache(pieceCacheUnits);
  readonly #spans = new TextCache(spanCacheUnits);

  constructor(spec: BpeSpec) {
    this.#spec = spec;
    this.#bpe = new Bpe(spec);
    this.#patterns = spec.patterns.map(translatePattern);
    this.#finder = new AddedTokenFinder(spec.added);
    this.#bytes = tokenBytes(spec);
    this.#added = new Map(spec.added.map(({ content, id }) => [content, id]));
    this.vocabSize = this.#bytes.length;
    const special = spec.added.filter((token) => token.special);
    this.specialIds = new Set(special.map(({ id }) => id));
    this.controlTokens = special.map(({ content }) => content);
  }

  encode(text: string, options: EncodeOptions): Int32Array {
    return this.#encodeChecked(wellFormed(text), options.special === 'parse' ? acceptAll : acceptPlain);
  }

  /**
   * The ids of a rendered prompt: those of the joined text, except that control tokens count only inside trusted
   * stretches. Borders of segments leave no trace; what lies between two control tokens is encoded once and kept.
   */
  encodeSegments(segments: readonly TextSegment[]): Int32Array {
    return this.encodeSegmentsAt(segments, []).ids;
  }

  /**
   * The same, and how many ids the first `marks[i]` segments make. Where a mark does not fall beside a control token
   * or an end of the text, the number is that of the control token before it: always a place where both texts agree.
   */
  encodeSegmentsAt(
    segments: readonly TextSegment[],
    marks: readonly number[],
  ): { readonly ids: Int32Array; readonly counts: number[] } {
    const ends = [0];
    for (const { text } of segments) ends.push((ends.at(-1) as number) + text.length);
    const joined = segments.map(({ text }) => text).join('');
    const edges: Edge[] = [];
    const ids = this.#encodeChecked(wellFormed(joined), acceptTrusted(segments), edges);
    return { ids, counts: marks.map((mark) => edgeBelow(edges, ends[mark] ?? joined.length).ids) };
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    const parts: Uint8Array[] = [];
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i] as number;
      if (!(options.skipSpecial && this.specialIds.has(id))) parts.push(this.idToBytes(id));
    }
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(Buffer.concat(parts));
  }

  /** The bytes of a token; not to be written to. */
  idToBytes(id: number): Uint8Array {
    const bytes = this.#bytes[id];
    if (bytes === undefined) {
      throw new UserError(
        'invalid_request',
        `there is no token ${id}: ids go from 0 to ${this.vocabSize - 1}`,
      );
    }
    return bytes;
  }

  hasId(id: number): boolean {
    return this.#bytes[id] !== undefined;
  }

  /** The id of an added token by its text, or of a vocabulary entry by its spelling in the byte alphabet. */
  tokenId(text: string): number | null {
    return this.#added.get(text) ?? this.#spec.vocab.get(text) ?? null;
  }

  /** `edges` receives the places where control tokens begin and end. */
  #encodeChecked(text: string, accept: Accept, edges: Edge[] = []): Int32Array {
    const out: Int32Array[] = [];
    let from = 0;
    let count = 0;
    const add = (ids: Int32Array, to: number): void => {
      out.push(ids);
      count += ids.length;
      from = to;
      edges.push({ units: to, ids: count });
    };
    for (const { start, end, token } of this.#finder.find(text, accept)) {
      if (!token.special) continue;
      if (start > from) add(this.#encodeSpan(text.slice(from, start)), start);
      add(Int32Array.of(token.id), end);
    }
    if (from < text.length) add(this.#encodeSpan(text.slice(from)), text.length);
    return concat(out);
  }

  /** Text between two control tokens; no control token in it counts. */
  #encodeSpan(text: string): Int32Array {
    const known = this.#spans.get(text);
    if (known !== undefined) return known;
    const out: Int32Array[] = [];
    let from = 0;
    for (const { start, end, token } of this.#finder.find(text, acceptPlain)) {
      if (start > from) this.#encodePlain(text.slice(from, start), out);
      out.push(Int32Array.of(token.id));
      from = end;
    }
    if (from < text.length) this.#encodePlain(text.slice(from), out);
    const ids = concat(out);
    this.#spans.set(text, ids);
    return ids;
  }

  #encodePlain(text: string, out: Int32Array[]): void {
    this.#split(this.#spec.nfc ? text.normalize('NFC') : text, 0, out);
  }

  /** Applies the split patterns one after the other; what a pattern leaves between matches is a piece too. */
  #split(text: string, level: number, out: Int32Array[]): void {
    const pattern = this.#patterns[level];
    if (pattern === undefined) {
      out.push(this.#encodePiece(text));
      return;
    }
    let from = 0;
    pattern.lastIndex = 0;
    for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
      const piece = match[0];
      const next = pattern.lastIndex;
      if (piece === '') {
        pattern.lastIndex++;
        continue;
      }
      if (match.index > from) this.#split(text.slice(from, match.index), level + 1, out);
      this.#split(piece, level + 1, out);
      from = next;
      pattern.lastIndex = next;
    }
    if (from < text.length) this.#split(text.slice(from), level + 1, out);
  }

  #encodePiece(piece: string): Int32Array {
    const known = this.#pieces.get(piece);
    if (known !== undefined) return known;
    const ids = this.#wholePiece(piece) ?? this.#bpe.encode(piece);
    if (piece.length <= longestCachedPiece) this.#pieces.set(piece, ids);
    return ids;
  }

  #wholePiece(piece: string): Int32Array | null {
    if (!this.#spec.ignoreMerges) return null;
    const spelled = Array.from(Buffer.from(piece), (byte) => byteAlphabet[byte]).join('');
    const id = this.#spec.vocab.get(spelled);
    return id === undefined || this.specialIds.has(id) ? null : Int32Array.of(id);
  }
}

/** Lone surrogates, which no UTF-8 can hold, as U+FFFD; the length stays. */
function wellFormed(text: string): string {
  return text.replace(/\p{Surrogate}/gu, '\uFFFD');
}

function edgeBelow(edges: readonly Edge[], units: number): Edge {
  return edges.findLast((edge) => edge.units <= units) ?? { units: 0, ids: 0 };
}

function concat(parts: readonly Int32Array[]): Int32Array {
  const out = new Int32Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Control tokens only where every character is trusted. Matches come from left to right. */
function acceptTrusted(segments: readonly TextSegment[]): Accept {
  const ends: number[] = [];
  const starts: number[] = [];
  let at = 0;
  for (const { text, trusted } of segments) {
    const joins = ends.at(-1) === at;
    if (trusted && joins) ends[ends.length - 1] = at + text.length;
    else if (trusted) {
      starts.push(at);
      ends.push(at + text.length);
    }
    at += text.length;
  }
  let range = 0;
  return (token, start, end) => {
    if (!token.special) return true;
    while (range < ends.length && (ends[range] as number) <= start) range++;
    return range < ends.length && (starts[range] as number) <= start && end <= (ends[range] as number);
  };
}

function tokenBytes(spec: BpeSpec): (Uint8Array | undefined)[] {
  const bytes: (Uint8Array | undefined)[] = [];
  for (const [token, id] of spec.vocab) bytes[id] = bytesOfToken(token) ?? Buffer.from(token);
  for (const { id, content } of spec.added) {
    const known = spec.vocab.get(content);
    if (bytes[id] !== undefined && known !== id) {
      throw bad(
        `tokenizer: id ${id} belongs to ${JSON.stringify(content)} and to a vocabulary entry`,
        'added_tokens',
      );
    }
    bytes[id] = Buffer.from(content);
  }
  return bytes;
}
