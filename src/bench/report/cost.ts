/**
 * Energy and money of a run: what was measured or stated, and every assumption beside the figure it leads to. Nothing is
 * guessed: a figure whose inputs are missing is not there.
 */
import { UserError } from '../../util/index.ts';
import { hasFigures } from '../score/series.ts';
import type { ResultSummary } from '../score/summary.ts';

export interface CostInputs {
  /** Power of the whole machine under this load, W; used where nothing is measured. */
  readonly watts?: number;
  readonly pricePerKwh?: number;
  /** What the machine cost, and over how many years it is written off. */
  readonly machinePrice?: number;
  readonly years?: number;
  /** What a cloud endpoint takes for a million tokens. */
  readonly cloudInputPerMillion?: number;
  readonly cloudCachedInputPerMillion?: number;
  readonly cloudOutputPerMillion?: number;
  /** Shown before amounts. Default '$'. */
  readonly currency?: string;
}

export interface EnergyReading {
  /** Measured joules of the performance phase; null where the machine does not tell. */
  readonly joules: number | null;
  readonly source: string | null;
  readonly cost: CostInputs;
}

/** One line of the section: a figure and where it comes from. */
export interface CostLine {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly basis: string;
}

export function checkCostInputs(inputs: CostInputs): void {
  for (const [name, value] of Object.entries(inputs)) {
    if (name === 'currency' || value === undefined) continue;
    if (typeof value !== 'number' || !Number.isFinite(value) || value < 0)
      throw new UserError('bad_option', `${name} is ${value}, expected a number from 0 on`, { param: name });
  }
  if (inputs.years === 0) throw new UserError('bad_option', 'years is 0, expected more', { param: 'years' });
}

interface Tokens {
  readonly input: number | null;
  readonly output: number | null;
  readonly cachedShare: number | null;
}

const secondsPerYear = 365 * 24 * 3600;

export function costLines(
  { joules: measured, source, cost }: EnergyReading,
  summary: ResultSummary,
  cachedShare: number | null,
): CostLine[] {
  const seconds = (summary.duration_ns ?? 0) / 1e9;
  if (seconds === 0) return [];
  const stated = cost.watts === undefined ? null : cost.watts * seconds;
  const joules = measured ?? stated;
  const totalOf = (series: ResultSummary['latency']): number | null =>
    hasFigures(series) ? series.total : null;
  const tokens: Tokens = {
    input: totalOf(summary.input_sequence_lengths),
    output: totalOf(summary.output_sequence_lengths),
    cachedShare,
  };
  const basis =
    measured === null ? `stated power of ${cost.watts} W over ${seconds.toFixed(1)} s` : `${source}`;
  return [
    ...(joules === null ? [] : energyLines(joules, basis, { seconds, tokens })),
    ...moneyLines(joules, cost, { seconds, tokens }),
    ...cloudLines(cost, tokens, seconds),
  ];
}

interface Span {
  readonly seconds: number;
  readonly tokens: Tokens;
}

function energyLines(joules: number, basis: string, { seconds, tokens }: Span): CostLine[] {
  const perOutput = tokens.output === null || tokens.output === 0 ? null : joules / tokens.output;
  const all = (tokens.input ?? 0) + (tokens.output ?? 0);
  return [
    { name: 'Energy of the performance phase', value: joules / 3600, unit: 'Wh', basis },
    { name: 'Mean power', value: joules / seconds, unit: 'W', basis },
    ...(perOutput === null
      ? []
      : [
          {
            name: 'Energy per output token',
            value: perOutput,
            unit: 'J',
            basis: 'all energy on output tokens',
          },
          {
            name: 'Tokens per joule',
            value: all / joules,
            unit: 'tokens/J',
            basis: 'input and output tokens, cached ones too',
          },
        ]),
  ];
}

function moneyLines(joules: number | null, cost: CostInputs, { seconds, tokens }: Span): CostLine[] {
  const unit = cost.currency ?? '$';
  const { pricePerKwh, machinePrice, years } = cost;
  const power =
    joules === null || pricePerKwh === undefined ? null : ((joules / 3.6e6) * pricePerKwh) / seconds;
  const machine =
    machinePrice === undefined || years === undefined ? null : machinePrice / (years * secondsPerYear);
  if (power === null && machine === null) return [];
  const perSecond = (power ?? 0) + (machine ?? 0);
  const basis = [
    ...(power === null ? [] : [`power at ${unit}${pricePerKwh} per kWh`]),
    ...(machine === null ? [] : [`machine at ${unit}${machinePrice} over ${years} years`]),
    'under this load all the time',
  ].join(', ');
  const output = tokens.output ?? 0;
  return [
    { name: 'Cost per year', value: perSecond * secondsPerYear, unit, basis },
    ...(output === 0
      ? []
      : [
          {
            name: 'Cost per million output tokens',
            value: (perSecond * seconds * 1e6) / output,
            unit,
            basis,
          },
        ]),
  ];
}

function cloudLines(cost: CostInputs, tokens: Tokens, seconds: number): CostLine[] {
  const { cloudInputPerMillion: input, cloudOutputPerMillion: output, currency = '$' } = cost;
  if (input === undefined || output === undefined || tokens.input === null || tokens.output === null)
    return [];
  const cachedPrice = cost.cloudCachedInputPerMillion ?? input;
  const share = tokens.cachedShare ?? 0;
  const inputPrice = share * cachedPrice + (1 - share) * input;
  const run = (tokens.input * inputPrice + tokens.output * output) / 1e6;
  const basis = `the same tokens at ${currency}${input} in, ${currency}${cachedPrice} cached in (${(100 * share).toFixed(1)} %), ${currency}${output} out per million`;
  return [
    { name: 'This run in the cloud', value: run, unit: currency, basis },
    {
      name: 'A year in the cloud at this rate',
      value: (run / seconds) * secondsPerYear,
      unit: currency,
      basis: `${basis}; the load of this run all the time`,
    },
  ];
}
