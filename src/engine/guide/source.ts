/** Opens the guides of constrained answers. What they need of the vocabulary is made once, ahead if it is asked for. */
import { compileConstraint, vocabularyOf } from '../../grammar/index.ts';
import type { Tokenizer } from '../../tokenizer/index.ts';
import { assert } from '../../util/index.ts';
import type { AnswerConstraint } from '../types.ts';
import { Guide, type GuideContext } from './guide.ts';
import { ThinkingTags } from './thinking.ts';

export class GuideSource {
  readonly #loadTokenizer: () => Tokenizer;
  #tokenizer: Tokenizer | null = null;
  /** Of the stop ids asked for last: those of a model are always the same. */
  #context: (GuideContext & { readonly stops: string }) | null = null;

  constructor(loadTokenizer: () => Tokenizer) {
    this.#loadTokenizer = loadTokenizer;
  }

  /** The guide at the beginning of an answer. Throws UserError where a form can not be compiled. */
  open({ forms, behindThinking }: AnswerConstraint, stopIds: readonly number[]): Guide {
    assert(forms.length > 0, 'a constraint has at least one form');
    const grammars = forms.map(compileConstraint);
    const context = this.#contextOf(stopIds);
    const before = behindThinking === null ? null : { tail: Buffer.alloc(0), lead: behindThinking.lead };
    const matchers = grammars.map((grammar) => grammar.matcher(context.vocabulary));
    return new Guide(context, before, matchers);
  }

  /** Makes what answers that end with these ids need; seconds for a large vocabulary. */
  prepare(stopIds: readonly number[]): void {
    this.#contextOf(stopIds);
  }

  #contextOf(stopIds: readonly number[]): GuideContext {
    const stops = stopIds.join();
    if (this.#context?.stops !== stops) {
      this.#tokenizer ??= this.#loadTokenizer();
      const vocabulary = vocabularyOf(this.#tokenizer, stopIds);
      this.#context = { vocabulary, thinking: new ThinkingTags(vocabulary), stops };
    }
    return this.#context;
  }
}
