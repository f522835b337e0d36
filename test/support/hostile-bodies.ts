/** Requests that are made to keep a server from answering others. Texts, as a client of no good will writes them. */

export interface HostileBody {
  readonly name: string;
  readonly path: string;
  /** Made when it is sent: some are large. */
  readonly text: () => string;
  /** What the refusal says; null where the request is a fair one, if a large one. */
  readonly refusal: RegExp | null;
}

const chat = '/v1/chat/completions';

/** `"NAME": VALUE` members beside a fair request; `max_tokens` keeps those that are answered short. */
function chatWith(members: string, content = '"hello"'): string {
  return `{"model":"MODEL","max_tokens":4,"messages":[{"role":"user","content":${content}}]${members === '' ? '' : `,${members}`}}`;
}

const list = (count: number, item: (i: number) => string): string =>
  Array.from({ length: count }, (_, i) => item(i)).join(',');

const tool = (name: string, parameters: string): string =>
  `{"type":"function","function":{"name":"${name}","parameters":${parameters}}}`;

const schema = (value: string): string =>
  chatWith(`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":${value}}}`);

export const hostileBodies: readonly HostileBody[] = [
  {
    name: '2 M unknown keys (25 MB)',
    path: chat,
    text: () => chatWith(list(2_000_000, (i) => `"k${i}":1`)),
    refusal: /larger than the limit|more than 4096 keys/,
  },
  {
    name: 'a list of 60 MB',
    path: chat,
    text: () => chatWith(`"x":[${'1,'.repeat(30_000_000)}1]`),
    refusal: /larger than the limit|more than \d+ values/,
  },
  {
    name: 'a list of 8 MB',
    path: chat,
    text: () => chatWith(`"x":[${'1,'.repeat(4_000_000)}1]`),
    refusal: /x has more than \d+ values/,
  },
  {
    name: '100,000 unknown keys',
    path: chat,
    text: () => chatWith(list(100_000, (i) => `"k${i}":1`)),
    refusal: /more than 4096 keys/,
  },
  {
    name: 'logit_bias with a million ids',
    path: chat,
    text: () => chatWith(`"logit_bias":{${list(1_000_000, (i) => `"${i}":1`)}}`),
    refusal: /larger than the limit|logit_bias has an object with more than 4096 keys/,
  },
  {
    name: 'logit_bias with 2,000 ids',
    path: chat,
    text: () => chatWith(`"logit_bias":{${list(2_000, (i) => `"${i}":1`)}}`),
    refusal: /logit_bias has 2000 entries, the limit is 1024/,
  },
  {
    name: '100,000 lists in one another',
    path: chat,
    text: () => chatWith(`"x":${'['.repeat(100_000)}${']'.repeat(100_000)}`),
    refusal: /nested more than 256 levels/,
  },
  {
    name: 'a number of 2 MB',
    path: chat,
    text: () => chatWith(`"seed":${'9'.repeat(2_000_000)}`),
    refusal: /seed has a number of 2000000 characters, the limit is 4300/,
  },
  {
    name: 'a model of 4 MB',
    path: chat,
    text: () => chatWith('').replace('MODEL', 'x'.repeat(4_000_000)),
    refusal: /the model 'x{190,200}.*does not exist/,
  },
  {
    name: '2,000 tools',
    path: chat,
    text: () => chatWith(`"tools":[${list(2_000, (i) => tool(`t${i}`, '{}'))}]`),
    refusal: /tools has 2000 entries, the limit is 1024/,
  },
  {
    name: '20,000 messages',
    path: chat,
    text: () => `{"model":"MODEL","messages":[${list(20_000, () => '{"role":"user","content":""}')}]}`,
    refusal: /messages has 20000 entries, the limit is 16384/,
  },
  {
    name: '10,000 stop texts',
    path: chat,
    text: () => chatWith(`"stop":[${list(10_000, (i) => `"s${i}"`)}]`),
    refusal: /stop has 10000 entries, the limit is 16/,
  },
  {
    name: 'a stop text of 1 MB',
    path: chat,
    text: () => chatWith(`"stop":"${'x'.repeat(1_000_000)}"`),
    refusal: /stop has a text of 1000000 characters, the limit is 1024/,
  },
  {
    name: 'a text that never ends',
    path: chat,
    text: () => `{"model":"${'x'.repeat(4_000_000)}`,
    refusal: /the end of the string/,
  },
  {
    name: '4 M line breaks and no JSON',
    path: chat,
    text: () => `${'\n'.repeat(4_000_000)}?`,
    refusal: /not valid JSON/,
  },
  {
    name: 'a role of 1 MB',
    path: chat,
    text: () =>
      `{"model":"MODEL","messages":[{"role":${JSON.stringify(`'"`.repeat(500_000))},"content":"x"}]}`,
    refusal: /role/,
  },
  {
    name: 'an enum of 50,000 texts',
    path: chat,
    text: () => schema(`{"enum":[${list(50_000, (i) => `"value ${i} of many"`)}]}`),
    refusal: /./,
  },
  {
    name: 'a pattern of 2 MB',
    path: chat,
    text: () => schema(`{"type":"string","pattern":"${'(a|b)*c'.repeat(300_000)}"}`),
    refusal: /./,
  },
  {
    name: 'a pattern that explodes',
    path: chat,
    text: () => schema('{"type":"string","pattern":"^(a|b)*a(a|b){30}$"}'),
    refusal: /./,
  },
  {
    name: 'a repetition of a million',
    path: chat,
    text: () => schema('{"type":"array","items":{"type":"string"},"minItems":1000000}'),
    refusal: /./,
  },
];

/** Fair or not, these take long to render or to tokenize: 4 MB each, of one kind of text. */
export const hugePrompts: readonly HostileBody[] = [
  ['4 MB of blanks', () => `x${' '.repeat(4_000_000)}x`],
  ['4 MB of one letter', () => 'a'.repeat(4_000_000)],
  ['4 MB of words', () => 'the quick brown fox '.repeat(200_000)],
  ['4 MB of emoji', () => '👩‍👩‍👧‍👦'.repeat(160_000)],
  ['4 MB of line breaks', () => `x${'\n'.repeat(2_000_000)}x`],
].map(([name, content]) => ({
  name: name as string,
  path: chat,
  text: () => chatWith('', JSON.stringify((content as () => string)())),
  refusal: /maximum context length/,
}));
