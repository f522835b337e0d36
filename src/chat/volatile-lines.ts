/**
 * Lines of system messages that known clients change with every request, made stable, so that the prompt behind them
 * stays cached. A rule touches one line, and takes from the model nothing that it could use.
 *
 * * Claude Code puts `x-anthropic-billing-header: cc_version=...; cch=...;` in front of its system prompt, with a hash of
 *   the request (anthropics/claude-code issue 68900).
 * * pi, Home Assistant agents and many others tell the time to the second (earendil-works/pi issue 2013).
 * * Gateways add an id of the request.
 */
import type { ChatMessage } from './types.ts';

interface Rule {
  readonly name: string;
  /** Which lines it is about. */
  readonly line: RegExp;
  /** null = the line goes. */
  readonly stable: (line: string) => string | null;
}

// T stands in front of the clock of an ISO time.
const clock = /(?<![A-SU-Za-z\d:.])(\d{1,2}):\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?/g;
const uuid = /[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}/gi;
const mark = String.raw`^[\s*#<>"'\`(-]{0,8}`;

const rules: readonly Rule[] = [
  { name: 'billing header', line: /^\s{0,8}x-anthropic-billing-header:/i, stable: () => null },
  {
    name: 'clock',
    line: new RegExp(
      `${mark}(?:the )?(?:(?:current|present|local|system)[ _-](?:(?:local|system|utc) )?(?:date|time|datetime|timestamp)|(?:current|today'?s) date(?: and |/| & )time|current_?(?:date|time|datetime)|now(?: is|:)|it is (?:now|currently)|date(?: and |/| & )time:)`,
      'i',
    ),
    stable: (line) => line.replace(clock, toTheHour),
  },
  {
    name: 'request id',
    line: new RegExp(`${mark}(?:x-)?(?:request|trace|correlation|invocation|message|turn)[ _-]?id\\b`, 'i'),
    stable: (line) => line.replace(uuid, '00000000-0000-0000-0000-000000000000'),
  },
];

/** `18:38:14.120` becomes `18:00:00.000`: it keeps its form, and is said anew once an hour. */
function toTheHour(time: string, hour: string): string {
  return hour + time.slice(hour.length).replace(/\d/g, '0');
}

export interface StableMessages {
  readonly messages: readonly ChatMessage[];
  /** Lines that were changed. */
  readonly changed: number;
}

export function withStableLines(messages: readonly ChatMessage[]): StableMessages {
  let changed = 0;
  const stable = (text: string): string => {
    const lines = text.split('\n');
    const kept = lines.flatMap((line) => {
      const rule = line.length > maxLine ? undefined : rules.find((one) => one.line.test(line));
      if (rule === undefined) return [line];
      const now = rule.stable(line);
      if (now !== line) changed++;
      return now === null ? [] : [now];
    });
    return kept.length === lines.length && changed === 0 ? text : kept.join('\n');
  };
  const result = messages.map((message) => {
    if (message.role !== 'system') return message;
    const { content } = message;
    if (typeof content === 'string') return { ...message, content: stable(content) };
    if (!Array.isArray(content)) return message;
    return {
      ...message,
      content: content.map((part) =>
        typeof part.text === 'string' ? { ...part, text: stable(part.text) } : part,
      ),
    };
  });
  return { messages: changed === 0 ? messages : result, changed };
}

/** Characters; a longer line is none that a client wrote to say the time. */
const maxLine = 400;
