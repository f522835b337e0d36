/** Formats of JSON Schema that are held to. All others are annotations. */
import type { Dfa } from './dfa.ts';
import { patternDfa } from './pattern-dfa.ts';

const date =
  '(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))' +
  '|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)';
const time = '(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)';
const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const word = '[a-z0-9]+(?:-[a-z0-9]+)*';
const atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
const octet = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const hex = '[0-9A-Fa-f]{1,4}';
const escaped = '%[0-9A-Fa-f]{2}';
const pathChar = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|${escaped})`;
const firstPathChar = `(?:[A-Za-z0-9._~!$&'()*+,;=@-]|${escaped})`;
const queryChar = `(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|${escaped})`;
const tail = `(?:\\?${queryChar}*)?(?:#${queryChar}*)?`;
const host = `(?:${label}\\.)*${label}`;
const authority = `${host}(?::\\d{1,5})?`;
const uri = `(?:[A-Za-z][A-Za-z0-9+.-]*:(?://${authority}(?:/${pathChar}*)*|//(?:/${pathChar}+)+|${pathChar}+(?:/${pathChar}*)*)${tail})`;
const days = '(?:\\d+Y(?:\\d+M)?(?:\\d+D)?|\\d+M(?:\\d+D)?|\\d+D)';
const hours = 'T(?:\\d+H(?:\\d+M)?(?:\\d+S)?|\\d+M(?:\\d+S)?|\\d+S)';
const pointer = '(?:/(?:[^~/]|~0|~1)*)*';

function ipv6(): string {
  const forms = [`(?:${hex}:){7}${hex}`];
  // One run of zeros is left out: `before` groups, two colons, at most `behind` groups.
  for (let before = 0; before <= 7; before++) {
    const head = before === 0 ? ':' : `${hex}(?::${hex}){${before - 1}}:`;
    const behind = 7 - before;
    const rest = behind === 0 ? ':' : `:(?:${hex}(?::${hex}){0,${behind - 1}})?`;
    forms.push(head + rest);
  }
  return `(?:${forms.join('|')})`;
}

const patterns: ReadonlyMap<string, () => string> = new Map([
  ['date', () => date],
  ['time', () => time],
  ['date-time', () => `${date}T${time}`],
  ['duration', () => `P(?:${days}(?:${hours})?|${hours}|\\d+W)`],
  ['email', () => `${atom}(?:\\.${atom})*@(?:${label}\\.)+${label}`],
  ['hostname', () => host],
  ['ipv4', () => `(?:${octet}\\.){3}${octet}`],
  ['ipv6', ipv6],
  ['uuid', () => '[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}'],
  ['uri', () => uri],
  ['uri-reference', () => `(?:${uri}|/?${firstPathChar}+(?:/${pathChar}*)*${tail})`],
  ['url', () => `https?://(?:${word}\\.)+[a-z]{2,20}(?::\\d{2,4})?(?:/[A-Za-z0-9._~&=%+/-]*)?`],
  ['json-pointer', () => pointer],
  ['relative-json-pointer', () => `(?:0|[1-9]\\d*)(?:#|${pointer})`],
  ['byte', () => '(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?'],
]);

/** No host name is longer. */
export const longestHost = 253;

/** The texts of a format; null for a format that is an annotation. */
export function formatDfa(format: string): Dfa | null {
  const pattern = patterns.get(format);
  return pattern === undefined ? null : patternDfa(pattern(), 'whole');
}
