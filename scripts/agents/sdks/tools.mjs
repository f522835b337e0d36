/** The tools of the SDK programs, and what they are told. */
import { execSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';

export const { COPSE_URL: url, COPSE_MODEL: model, COPSE_API: api, COPSE_PROMPT: prompt } = process.env;

const text = { type: 'string' };
const tool = (name, description, keys, run) => ({
  name,
  description,
  keys,
  run,
  parameters: {
    type: 'object',
    properties: Object.fromEntries(keys.map((key) => [key, text])),
    required: keys,
    additionalProperties: false,
  },
});

export const tools = [
  tool('read', 'reads a file', ['path'], ({ path }) => readFileSync(path, 'utf8')),
  tool('edit', 'replaces a text in a file', ['path', 'old', 'new'], (args) => {
    writeFileSync(args.path, readFileSync(args.path, 'utf8').replace(args.old, args.new));
    return 'edited';
  }),
  tool('run', 'runs a shell command', ['command'], ({ command }) => execSync(command, { encoding: 'utf8' })),
];

export const runTool = (name, args) => tools.find((one) => one.name === name).run(args);
