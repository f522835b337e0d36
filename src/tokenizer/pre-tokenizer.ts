/**
 * Translates the split pattern of tokenizer.json (Oniguruma, Unicode) into a JavaScript one of the same meaning.
 * What differs and is rewritten: `\s` and `\S` (White_Space: JavaScript adds U+FEFF and lacks U+0085), `\d`,
 * and `(?i:...)` over literals, where U+017F folds to s and U+212A to k.
 * Any construct whose meaning might differ is refused: a wrong split silently spoils every prompt.
 */
import { UserError } from '../util/index.ts';

const space = '\\t-\\r\\x20\\x85\\xA0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000';

/** The split of GPT-2, which a ByteLevel pre-tokenizer with `use_regex` implies. */
export const gpt2Pattern =
  "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

export function translatePattern(pattern: string): RegExp {
  const source = new Translator(pattern).run();
  try {
    return new RegExp(source, 'gu');
  } catch (cause) {
    throw refuse(pattern, 'it is no valid Unicode pattern', cause);
  }
}

function refuse(pattern: string, why: string, cause?: unknown): UserError {
  return new UserError(
    'bad_checkpoint',
    `tokenizer.json: the pre-tokenizer pattern cannot be used: ${why}: ${pattern}`,
    { param: 'pre_tokenizer', cause },
  );
}

/** What the construct at hand becomes, and how long it is in the original. */
type Step = readonly [text: string, consumed: number];

class Translator {
  readonly #pattern: string;
  #at = 0;
  #inClass = false;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  run(): string {
    let out = '';
    while (this.#at < this.#pattern.length) {
      const [text, consumed] = this.#step(this.#pattern.charAt(this.#at));
      out += text;
      this.#at += consumed;
    }
    return out;
  }

  #step(char: string): Step {
    if (char === '\\') return this.#escape(this.#pattern.charAt(this.#at + 1));
    if (this.#inClass) return this.#classChar(char);
    if (char === '(') return this.#group(this.#pattern.slice(this.#at));
    if ('.^$'.includes(char)) throw refuse(this.#pattern, `"${char}" is not supported`);
    if (char === '[') this.#inClass = true;
    // The caret that negates a class belongs to its opening.
    return this.#pattern.startsWith('[^', this.#at) ? ['[^', 2] : [char, 1];
  }

  #classChar(char: string): Step {
    if (char === '[' || this.#pattern.startsWith('&&', this.#at)) {
      throw refuse(this.#pattern, 'nested character classes are not supported');
    }
    if (char === ']') this.#inClass = false;
    return [char, 1];
  }

  #escape(char: string): Step {
    if (char === 's') return [this.#inClass ? space : `[${space}]`, 2];
    if (char === 'S' && !this.#inClass) return [`[^${space}]`, 2];
    if (char === 'd') return ['\\p{Nd}', 2];
    if (/[pPrntvf^$\\.*+?()[\]{}|/-]/.test(char)) return [`\\${char}`, 2];
    if (/[^A-Za-z0-9]/.test(char)) return [char, 2];
    throw refuse(this.#pattern, `"\\${char}" is not supported`);
  }

  #group(rest: string): Step {
    const folded = /^\(\?i:([A-Za-z'|]*)\)/.exec(rest);
    if (folded) return [`(?:${foldCase(folded[1] ?? '')})`, folded[0].length];
    const head = /^\((?!\?)|^\(\?[:!=]/.exec(rest);
    if (!head) throw refuse(this.#pattern, `the group at "${rest.slice(0, 8)}" is not supported`);
    return [head[0], head[0].length];
  }
}

function foldCase(literals: string): string {
  return literals.replace(/[A-Za-z]/g, (letter) => {
    const lower = letter.toLowerCase();
    const extra = lower === 's' ? '\\u017F' : lower === 'k' ? '\\u212A' : '';
    return `[${lower}${lower.toUpperCase()}${extra}]`;
  });
}
