/** The seam to accuracy phases, and their part of `accuracy/accuracy_results.json`. */
import type { Endpoint } from '../run/client.ts';
import type { AccuracyDataset, BenchConfig } from '../run/config.ts';
import type { EventLog } from '../run/events.ts';
import type { TokenCounter } from '../run/token-count.ts';
import type { MaybeSeries } from './series.ts';

export interface Breakdown {
  readonly overall_accuracy: number;
  readonly normalized_single_turn_score: number;
  readonly category_scores: Readonly<Record<string, number>>;
  readonly subset_scores: Readonly<Record<string, number>>;
  readonly unscored_subsets: Readonly<Record<string, unknown>>;
  readonly total_samples: number;
  readonly issued_samples: number;
}

export interface AccuracyEntry {
  readonly dataset_name: string;
  readonly extractor: string | null;
  readonly ground_truth_column: string | null;
  readonly score: number | null;
  readonly unit_samples: number;
  readonly num_repeats: number;
  readonly total_samples: number;
  readonly duration_s: number;
  readonly complete: boolean;
  readonly dataset_type: 'accuracy' | 'performance';
  readonly breakdown?: Breakdown;
  readonly response_counts?: {
    readonly issued: number;
    readonly scored: number;
    readonly empty: number;
    readonly missing: number;
  };
  readonly output_sequence_lengths?: MaybeSeries;
}

/** One sample's outcome, for comparisons between runs. */
export interface SampleVerdict {
  readonly id: string;
  readonly passed: boolean;
  readonly error: string | null;
  readonly answer: string;
}

export interface AccuracyResult {
  readonly entry: AccuracyEntry;
  readonly verdicts: readonly SampleVerdict[];
  /** Sample index by request uuid. */
  readonly sampleIndex: Readonly<Record<string, number>>;
}

export interface SampleProgress {
  readonly done: number;
  readonly total: number;
  readonly passed: number;
  /** By the pace of this run's own requests; null before the first answer. */
  readonly secondsLeft: number | null;
}

export interface AccuracyParts {
  readonly config: BenchConfig;
  readonly dataset: AccuracyDataset;
  readonly endpoint: Endpoint;
  readonly events: EventLog;
  readonly counter: TokenCounter | null;
  /** Answers already received are kept here, so that an interrupted phase can go on. */
  readonly journalPath: string;
  readonly signal: AbortSignal;
  readonly warn: (message: string) => void;
  readonly onSample?: (progress: SampleProgress) => void;
}

/** Asks and scores what was prepared. */
export type PreparedPhase = (parts: AccuracyParts) => Promise<AccuracyResult>;

/** `prepare` reads and checks everything before the first request. */
export interface AccuracyPhase {
  readonly evalMethod: string;
  prepare(dataset: AccuracyDataset, dataFolder: string): PreparedPhase;
}
