/** Which programs a shell command runs, by the rules of the benchmark's inline scorer (section 2 of its description). */
import { isJsonObject, JsonNumber, parseLossless } from '../../chat/index.ts';
import { pythonSplit } from '../run/python.ts';

const names: Record<string, string> = {
  python: 'python python2 python3 py',
  pip: 'pip pip3',
  sphinx: 'sphinx-build sphinx-quickstart',
  cat: 'cat less more',
  grep: 'grep egrep fgrep rg ag',
  awk: 'awk gawk',
  find: 'find locate',
  source: 'source .',
  curl: 'curl wget',
  apt: 'apt-get apt',
};

const plain =
  'pytest pylint cython make conda head tail wc diff sed tr sort uniq cut ls xargs cp mv rm mkdir touch tee which alias unset export git true false timeout date yum';

const aliases = new Map<string, string>([
  ...plain.split(' ').map((name) => [name, name] as const),
  ...Object.entries(names).flatMap(([canonical, all]) =>
    all.split(' ').map((name) => [name, canonical] as const),
  ),
]);

/** 'single', "double" with backslash escapes that do not span lines, `backtick`; leftmost first. */
const quoted = /'[^']*'|"(?:\\[^\n]|[^"\\])*"|`[^`]*`/g;
const stages = /\|\||\||&&|;|\n/;
const skipped = /^(?:[A-Za-z_][A-Za-z0-9_]*=.*|env|time|nice|sudo|exec|command)$/s;

/** Canonical names in order of appearance. */
export function executablesOf(command: string): string[] {
  return command
    .replace(quoted, ' ')
    .split(stages)
    .flatMap((stage) => {
      const words = pythonSplit(stage);
      const first = words.find((word) => !skipped.test(word));
      if (first === undefined) return [];
      const program = first
        .slice(first.lastIndexOf('/') + 1)
        .toLowerCase()
        .replace(/\.\p{Nd}+(?:\.\p{Nd}+)?$/u, '');
      const canonical = aliases.get(program);
      return canonical === undefined ? [] : [canonical];
    });
}

/** Executables of a message's tool calls: only functions named exactly `bash`, `command` before `cmd`, text values only. */
export function executablesOfCalls(calls: unknown): string[] {
  if (!Array.isArray(calls)) return [];
  return calls.flatMap((call) => {
    const fn = (call as { function?: { name?: unknown; arguments?: unknown } } | null)?.function;
    if (typeof fn !== 'object' || fn === null || fn.name !== 'bash') return [];
    const args = typeof fn.arguments === 'string' ? parseOrNull(fn.arguments) : fn.arguments;
    if (!isJsonObject(args)) return [];
    const { command, cmd } = args as { command?: unknown; cmd?: unknown };
    const text = isTruthy(command) ? command : cmd;
    return typeof text === 'string' ? executablesOf(text) : [];
  });
}

/** Python's truth of a JSON value. */
function isTruthy(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0;
  if (isJsonObject(value)) return Object.keys(value).length > 0;
  return Boolean(value instanceof JsonNumber ? value.valueOf() : value);
}

/** Strings, so that what they hold stays, and the words that Python's json module takes for numbers. */
const pythonWords = /"(?:\\.|[^"\\])*"|-?\bInfinity\b|\bNaN\b/g;

function parseOrNull(text: string): unknown {
  try {
    return parseLossless(text.replace(pythonWords, (part) => (part.startsWith('"') ? part : '0')));
  } catch {
    return null;
  }
}

/** Multiset intersection over union; 0 when both are empty. */
export function intersectionOverUnion(expected: readonly string[], found: readonly string[]): number {
  const count = (list: readonly string[], name: string): number =>
    list.filter((item) => item === name).length;
  let [common, all] = [0, 0];
  for (const name of new Set([...expected, ...found])) {
    const [a, b] = [count(expected, name), count(found, name)];
    common += Math.min(a, b);
    all += Math.max(a, b);
  }
  return common / Math.max(1, all);
}
