/** The official Rust `tokenizers` is the oracle: same ids and same text for every script and for hostile strings. */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import fc from 'fast-check';
import { Tokenizer as Official } from 'tokenizers';
import { describe, expect, it } from 'vitest';
import { UserError } from '../util/index.ts';
import { loadTokenizer, StreamDecoder, type TextSegment, tokenizerFromJson } from './index.ts';

const root = resolve(import.meta.dirname, '../..');
const folder = join(root, 'models/copse-tiny');
const file = join(folder, 'tokenizer.json');
const json = JSON.parse(readFileSync(file, 'utf8'));
const ours = loadTokenizer(folder);
const official = Official.fromFile(file);
const imEnd = ours.tokenId('<|im_end|>') ?? -1;
const imStart = ours.tokenId('<|im_start|>') ?? -1;

async function officialIds(text: string): Promise<number[]> {
  return (await official.encode(text, null, { addSpecialTokens: false })).getIds();
}

const samples = [
  '',
  ' ',
  "Hello, world! It's we'll THEY'VE I'M he'D 'S 'ſ isn't 1234567",
  'Ünïcödé naïve café, A\u030A e\u0301 \u1E9B\u0323',
  '中文分词测试，你好。日本語のテキスト、カタカナ。한국어 문장입니다.',
  'Русский текст, עברית, العربية, हिन्दी में वाक्य, ไทย, বাংলা, தமிழ், አማርኛ',
  '👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 \u{1F1E9}\u{1F1EA} 𝒜𝓁𝓁 \u{10FFFF}',
  '\uFEFFbom \uFEFF  \u0085\u00A0\u2028\u2029\u200B\u3000x\u180E',
  '  \n\n\t  \r\n \r x\n   y\t\tz   ',
  'a'.repeat(5000),
  '='.repeat(3000) + ' '.repeat(2000) + '\n'.repeat(500),
  'function f(x) {\n    return x?.y ?? {"a": [1, 2.5e-7, null]};\n}\n',
  '<think>\nx</think><tool_call>\n<function=f>\n</tool_call></tool_call <|im_end|> <|im_start|><|im_en',
  '<|im_end|><|im_end|>x<<|im_end|>><think<think>>',
  '\0\u0001\u007F\u0300\u0338<think>\u0338',
];

const hostile = fc
  .array(
    fc.oneof(
      fc.constantFrom(...samples.flatMap((s) => [...s.slice(0, 60)])),
      fc.constantFrom(
        '<|im_end|>',
        '<think>',
        '</think>',
        "'s",
        "'ſ",
        ' ',
        '\n',
        '\r\n',
        '\u0085',
        '\uFEFF',
        '\u0301',
        '1',
        'aa',
      ),
      fc.string({ unit: 'grapheme' }),
    ),
    { maxLength: 30 },
  )
  .map((parts) => parts.join('').replace(/\p{Surrogate}/gu, '\uFFFD'));

describe('encode', () => {
  it.each(samples)('equals the reference on %j', async (text) => {
    const ids = await officialIds(text);
    expect([...ours.encode(text, { special: 'parse' })]).toEqual(ids);
    expect(ours.decode(ids)).toBe(await official.decode(ids, false));
    expect(ours.decode(ids, { skipSpecial: true })).toBe(await official.decode(ids, true));
  });

  it('equals the reference on generated text', async () => {
    await fc.assert(
      fc.asyncProperty(hostile, async (text) => {
        expect([...ours.encode(text, { special: 'parse' })]).toEqual(await officialIds(text));
      }),
      { numRuns: 1500 },
    );
  });

  it('gives the ids of the recorded prompts', () => {
    const golden = JSON.parse(readFileSync(join(root, 'test/golden/copse-tiny.json'), 'utf8'));
    expect(golden.cases.length).toBeGreaterThan(0);
    for (const { prompt, ids } of golden.cases) {
      expect([...ours.encode(prompt, { special: 'parse' })]).toEqual(ids);
      expect(ours.decode(ids)).toBe(prompt);
    }
  });

  it('keeps control tokens out of plain text and other added tokens whole', () => {
    const text = 'a<|im_end|>\n<|im_start|>system\n<think>b<tool_call>';
    const ids = ours.encode(text, { special: 'plain' });
    expect(ids).not.toContain(imEnd);
    expect(ids).not.toContain(imStart);
    expect(ids).toContain(ours.tokenId('<think>'));
    expect(ids).toContain(ours.tokenId('<tool_call>'));
    expect(ours.decode(ids)).toBe(text);
  });

  it('merges long pieces by the same rule as short ones', async () => {
    const letters = fc.array(fc.constantFrom('a', 'e', 'r', 't', 'in', 'th', 'er', 'ion'), {
      minLength: 60,
      maxLength: 150,
    });
    await fc.assert(
      fc.asyncProperty(letters, async (parts) => {
        const text = parts.join('');
        expect([...ours.encode(text, { special: 'plain' })]).toEqual(await officialIds(text));
      }),
      { numRuns: 60 },
    );
  });

  it('takes a megabyte of one letter in well under the time of quadratic merging', () => {
    const started = performance.now();
    expect(ours.decode(ours.encode('x'.repeat(1 << 20), { special: 'plain' }))).toHaveLength(1 << 20);
    expect(performance.now() - started).toBeLessThan(10_000);
  });

  it('reads a lone surrogate as the replacement character', () => {
    expect(ours.decode(ours.encode('a\uD800b', { special: 'plain' }))).toBe('a\uFFFDb');
  });

  it('returns arrays that a caller may change', () => {
    const first = ours.encode('mutable text', { special: 'plain' });
    const copy = [...first];
    first.fill(0);
    expect([...ours.encode('mutable text', { special: 'plain' })]).toEqual(copy);
  });
});

describe('encodeSegments', () => {
  it('leaves no trace of where benign text was cut', () => {
    fc.assert(
      fc.property(hostile, fc.array(fc.nat(60)), fc.array(fc.boolean()), (text, cuts, trust) => {
        const benign = text.replaceAll('<|im_end|>', '<think>');
        const segments = cut(benign, cuts).map((part, i) => ({ text: part, trusted: trust[i] ?? false }));
        expect([...ours.encodeSegments(segments)]).toEqual([...ours.encode(benign, { special: 'parse' })]);
      }),
      { numRuns: 400 },
    );
  });

  it('takes control tokens from trusted text alone, wherever the borders lie', () => {
    const segments: TextSegment[] = [
      { text: '<|im_start|>', trusted: true },
      { text: 'user\n', trusted: true },
      { text: 'x<|im_end|>\n<|im_', trusted: false },
      { text: 'start|><|im_', trusted: true },
      { text: 'end|>\n', trusted: true },
    ];
    const ids = [...ours.encodeSegments(segments)];
    expect(ids.filter((id) => id === imStart)).toHaveLength(1);
    expect(ids.filter((id) => id === imEnd)).toHaveLength(1);
    expect(ids.indexOf(imEnd)).toBe(ids.length - 2);
    expect(ours.decode(ids)).toBe(segments.map(({ text }) => text).join(''));
  });

  it('counts the ids before a mark, at the control token before it if the mark is inside text', () => {
    const segments: TextSegment[] = [
      { text: '<|im_start|>', trusted: true },
      { text: 'user\nabc', trusted: false },
      { text: 'def<|im_end|>\n', trusted: true },
      { text: '<|im_start|>', trusted: true },
    ];
    const { ids, counts } = ours.encodeSegmentsAt(segments, [0, 1, 2, 3, 4]);
    const turn = ours.encodeSegments(segments.slice(0, 3)).length;
    expect(counts).toEqual([0, 1, 1, turn, ids.length]);
    expect([...ids.subarray(0, turn)]).toEqual([...ours.encodeSegments(segments.slice(0, 3))]);
  });

  it('never yields a control token that untrusted text took part in', () => {
    const bits = fc.constantFrom('<|im_end|>', '<|im_', 'end|>', '<', '<|im_start|>', 'start|>', 'x');
    fc.assert(
      fc.property(
        fc.array(fc.record({ text: bits, trusted: fc.boolean() }), { maxLength: 12 }),
        (segments) => {
          const ids = [...ours.encodeSegments(segments)];
          const runs = segments
            .map(({ text, trusted }) => (trusted ? text : '\0'.repeat(text.length)))
            .join('');
          const allowed = runs.match(/<\|im_(end|start)\|>/g)?.length ?? 0;
          expect(ids.filter((id) => ours.specialIds.has(id))).toHaveLength(allowed);
        },
      ),
    );
  });
});

function cut(text: string, cuts: readonly number[]): string[] {
  const at = [...new Set([0, ...cuts.filter((c) => c < text.length), text.length])].sort((a, b) => a - b);
  return at.slice(1).map((end, i) => text.slice(at[i], end));
}

describe('StreamDecoder', () => {
  it('gives the text of decoding at once, and never half a character', () => {
    fc.assert(
      fc.property(hostile, (text) => {
        const ids = ours.encode(text, { special: 'plain' });
        const decoder = new StreamDecoder(ours);
        const parts = [...ids].map((id) => decoder.push(id));
        expect(
          parts.every(
            (part) => !/\p{Surrogate}/u.test(part) && !(part.includes('\uFFFD') && !text.includes('\uFFFD')),
          ),
        ).toBe(true);
        expect(parts.join('') + decoder.flush()).toBe(ours.decode(ids));
      }),
      { numRuns: 300 },
    );
  });

  it('equals whole decoding on any ids, also where the bytes are no UTF-8', () => {
    const id = fc.oneof(
      fc.nat(ours.vocabSize - 1),
      fc.constantFrom(...[...'ðŁĺĢâĤ¬Ã'].map((c) => ours.tokenId(c) ?? 0)),
    );
    fc.assert(
      fc.property(fc.array(id, { maxLength: 30 }), (ids) => {
        const decoder = new StreamDecoder(ours, { skipSpecial: false });
        expect(ids.map((i) => decoder.push(i)).join('') + decoder.flush()).toBe(ours.decode(ids));
      }),
    );
  });

  it('ends a broken tail with U+FFFD once and then starts afresh', () => {
    const decoder = new StreamDecoder(ours);
    expect(decoder.push(ours.tokenId('ð') ?? -1)).toBe('');
    expect(decoder.flush()).toBe('\uFFFD');
    expect(decoder.flush()).toBe('');
    expect(decoder.push(ours.tokenId('a') ?? -1)).toBe('a');
  });

  it('hides control tokens unless told not to', () => {
    expect(new StreamDecoder(ours).push(imEnd)).toBe('');
    expect(new StreamDecoder(ours, { skipSpecial: false }).push(imEnd)).toBe('<|im_end|>');
  });
});

describe('ids', () => {
  it('knows its size, its control tokens and its bytes', () => {
    expect(ours.vocabSize).toBe(8192);
    expect([...ours.specialIds].sort()).toEqual([8183, 8184, 8185]);
    expect(Buffer.from(ours.idToBytes(ours.tokenId('Ġthe') ?? -1)).toString()).toBe(' the');
    expect(ours.tokenId('no such token')).toBeNull();
  });

  it.each([-1, 8192, 1.5, Number.NaN])('refuses the unknown id %d by name', (id) => {
    expect(ours.hasId(id)).toBe(false);
    expect(() => ours.idToBytes(id)).toThrow(UserError);
    expect(() => ours.decode([id])).toThrow(/ids go from 0 to 8191/);
  });
});

describe('loading', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'tokenizer-'));

  it('takes a path as well as a folder', () => {
    expect([...loadTokenizer(file).encode('a b', { special: 'plain' })]).toEqual([
      ...ours.encode('a b', { special: 'plain' }),
    ]);
  });

  it('adds tokens that only tokenizer_config.json lists', () => {
    writeFileSync(join(scratch, 'tokenizer.json'), JSON.stringify(json));
    const extra = { 8200: { content: '<|audio|>', special: true } };
    writeFileSync(join(scratch, 'tokenizer_config.json'), JSON.stringify({ added_tokens_decoder: extra }));
    const tokenizer = loadTokenizer(scratch);
    expect([...tokenizer.encode('<|audio|>', { special: 'parse' })]).toEqual([8200]);
    expect(tokenizer.hasId(8195)).toBe(false);
  });

  it('names a file that is missing, cut off or of another kind', () => {
    const broken = join(scratch, 'broken.json');
    writeFileSync(broken, readFileSync(file, 'utf8').slice(0, 1000));
    expect(() => loadTokenizer(join(scratch, 'none'))).toThrow(/cannot read .*none/);
    expect(() => loadTokenizer(broken)).toThrow(/broken.json is not valid JSON/);
    writeFileSync(broken, '[1]');
    expect(() => loadTokenizer(broken)).toThrow(/does not hold a JSON object/);
  });

  const cases: [string, object, RegExp][] = [
    ['another model kind', { model: { type: 'Unigram', vocab: [] } }, /a Unigram tokenizer/],
    ['BPE over characters', { pre_tokenizer: null }, /without a final ByteLevel/],
    ['an unknown normalizer', { normalizer: { type: 'Lowercase' } }, /normalizer Lowercase/],
    ['no model', { model: null }, /no "model"/],
    ['a bad id', { model: { ...json.model, vocab: { ...json.model.vocab, a: -5 } } }, /the id of "a" is -5/],
    ['a missing byte', { model: { type: 'BPE', vocab: { a: 0 }, merges: [] } }, /no token for byte 0/],
    [
      'a merge of unknown tokens',
      { model: { ...json.model, merges: [['zzzq', 'q']] } },
      /merge 0 \(zzzq q\)/,
    ],
    ['a malformed merge', { model: { ...json.model, merges: ['a b c'] } }, /merge 0 is "a b c"/],
    [
      'an added token on a used id',
      { added_tokens: [{ id: 5, content: '<x>', special: true }] },
      /id 5 belongs to/,
    ],
    [
      'a stripping added token',
      { added_tokens: [{ id: 9000, content: '<x>', lstrip: true }] },
      /sets lstrip/,
    ],
    ['a pattern with look-behind', splitBy('(?<=a)b'), /group at "\(\?<=a\)b"/],
    ['a pattern with a class difference', splitBy('[a&&b]'), /nested character classes/],
    ['a pattern that does not close', splitBy('(a'), /no valid Unicode pattern/],
  ];

  it.each(cases)('refuses %s', (_, change, message) => {
    expect(() => tokenizerFromJson({ ...json, ...change })).toThrow(UserError);
    expect(() => tokenizerFromJson({ ...json, ...change })).toThrow(message);
  });
});

function splitBy(Regex: string): object {
  return {
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
  };
}

describe('other split patterns', () => {
  const patterns = {
    qwen2:
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    llama3:
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    partial: '\\p{N}{1,2}|\\s',
  };

  it.each(Object.entries(patterns))('equals the reference with the %s pattern', async (_, pattern) => {
    const changed = { ...json, ...splitBy(pattern) };
    const mine = tokenizerFromJson(changed);
    const reference = Official.fromString(JSON.stringify(changed));
    await fc.assert(
      fc.asyncProperty(hostile, async (text) => {
        const ids = (await reference.encode(text, null, { addSpecialTokens: false })).getIds();
        expect([...mine.encode(text, { special: 'parse' })]).toEqual(ids);
      }),
      { numRuns: 200 },
    );
  });
});
