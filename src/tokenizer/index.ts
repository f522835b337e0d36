/** Text <-> token ids: byte-level BPE, a decoder for streams, and control tokens that only a template can write. */
export { StreamDecoder, type StreamDecoderOptions } from './stream-decoder.ts';
export {
  type DecodeOptions,
  type EncodeOptions,
  loadTokenizer,
  type TextSegment,
  Tokenizer,
  tokenizerFromJson,
} from './tokenizer.ts';
