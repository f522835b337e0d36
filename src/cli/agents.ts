/**
 * How each coding agent is told of a server: by environment, flags and files of our own. Nothing of the user's is
 * changed, and what a person sets up in the agent's own configuration stays in force where the agent allows it.
 */
import { join } from 'node:path';

export interface LaunchTarget {
  /** Without a path, such as `http://127.0.0.1:8080`. */
  readonly url: string;
  readonly model: string;
  readonly apiKey: string;
  /** Longest prompt plus answer, tokens. */
  readonly contextTokens: number;
  /** For the agent's files; made when there are any. */
  readonly folder: string;
}

export interface LaunchPlan {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Text by path. */
  readonly files: Readonly<Record<string, string>>;
}

export interface Agent {
  /** What a person types. */
  readonly name: string;
  readonly command: string;
  /** Package on the npm registry. */
  readonly npm: string;
  readonly plan: (target: LaunchTarget) => Partial<LaunchPlan>;
}

/** The longest answer that an agent may expect. */
const answerTokens = (contextTokens: number): number => Math.min(32_768, Math.floor(contextTokens / 4));

const codex: Agent = {
  name: 'codex',
  command: 'codex',
  npm: '@openai/codex',
  plan: ({ url, model, apiKey, contextTokens }) => {
    const settings = {
      model,
      model_provider: 'copse',
      model_context_window: contextTokens,
      'model_providers.copse.name': 'copse',
      'model_providers.copse.base_url': `${url}/v1`,
      'model_providers.copse.wire_api': 'responses',
      'model_providers.copse.env_key': 'COPSE_API_KEY',
    };
    return {
      env: { COPSE_API_KEY: apiKey },
      // The values are TOML; a JSON string is one too.
      args: Object.entries(settings).flatMap(([key, value]) => ['-c', `${key}=${JSON.stringify(value)}`]),
    };
  },
};

const opencode: Agent = {
  name: 'opencode',
  command: 'opencode',
  npm: 'opencode-ai',
  plan: ({ url, model, apiKey, contextTokens }) => {
    const limit = { context: contextTokens, output: answerTokens(contextTokens) };
    const provider = {
      npm: '@ai-sdk/openai-compatible',
      name: 'copse',
      options: { baseURL: `${url}/v1`, apiKey },
      models: { [model]: { name: model, limit, tool_call: true, reasoning: true } },
    };
    const names = { model: `copse/${model}`, small_model: `copse/${model}` };
    return { env: { OPENCODE_CONFIG_CONTENT: JSON.stringify({ provider: { copse: provider }, ...names }) } };
  },
};

const qwen: Agent = {
  name: 'qwen',
  command: 'qwen',
  npm: '@qwen-code/qwen-code',
  plan: ({ url, model, apiKey }) => ({
    env: { OPENAI_BASE_URL: `${url}/v1`, OPENAI_API_KEY: apiKey, OPENAI_MODEL: model },
    args: ['--auth-type', 'openai', '--model', model],
  }),
};

const pi: Agent = {
  name: 'pi',
  command: 'pi',
  npm: '@mariozechner/pi-coding-agent',
  plan: ({ url, model, apiKey, contextTokens, folder }) => {
    const entry = {
      id: model,
      name: model,
      reasoning: true,
      input: ['text'],
      contextWindow: contextTokens,
      maxTokens: answerTokens(contextTokens),
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
    };
    const provider = {
      baseUrl: `${url}/v1`,
      api: 'openai-completions',
      apiKey: 'COPSE_API_KEY',
      models: [entry],
    };
    return {
      env: { PI_CODING_AGENT_DIR: folder, COPSE_API_KEY: apiKey },
      args: ['--provider', 'copse', '--model', model],
      files: { [join(folder, 'models.json')]: JSON.stringify({ providers: { copse: provider } }, null, 2) },
    };
  },
};

const claude: Agent = {
  name: 'claude',
  command: 'claude',
  npm: '@anthropic-ai/claude-code',
  plan: ({ url, model, apiKey }) => ({
    env: {
      ANTHROPIC_BASE_URL: url,
      ANTHROPIC_AUTH_TOKEN: apiKey,
      ANTHROPIC_API_KEY: '',
      ANTHROPIC_MODEL: model,
      ANTHROPIC_SMALL_FAST_MODEL: model,
      ANTHROPIC_DEFAULT_OPUS_MODEL: model,
      ANTHROPIC_DEFAULT_SONNET_MODEL: model,
      ANTHROPIC_DEFAULT_HAIKU_MODEL: model,
      CLAUDE_CODE_SUBAGENT_MODEL: model,
      CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    },
    args: ['--model', model],
  }),
};

const continued: Agent = {
  name: 'continue',
  command: 'cn',
  npm: '@continuedev/cli',
  plan: ({ url, model, apiKey, contextTokens, folder }) => {
    const file = join(folder, 'config.yaml');
    const entry = {
      name: model,
      provider: 'openai',
      model,
      apiBase: `${url}/v1`,
      apiKey,
      roles: ['chat', 'edit', 'apply'],
      capabilities: ['tool_use'],
      defaultCompletionOptions: { contextLength: contextTokens, maxTokens: answerTokens(contextTokens) },
    };
    // JSON is YAML too.
    const config = { name: 'copse', version: '1.0.0', schema: 'v1', models: [entry] };
    return { args: ['--config', file], files: { [file]: JSON.stringify(config, null, 2) } };
  },
};

export const agents: readonly Agent[] = [codex, opencode, qwen, pi, claude, continued];

export function planOf(agent: Agent, target: LaunchTarget): LaunchPlan {
  return { args: [], env: {}, files: {}, ...agent.plan(target) };
}
