/** The MLPerf Edge Agentic benchmark for any OpenAI endpoint. Speaks HTTP and knows nothing of the runtime. */

export { compareReports } from './report/compare.ts';
export type { CostInputs, CostLine } from './report/cost.ts';
export type { BenchReport, TurnReport } from './report/report.ts';
export { htmlReport } from './report/report-html.ts';
export { type BenchConfig, loadBenchConfig, parseBenchConfig } from './run/config.ts';
export { type BenchMode, type BenchOutcome, type BenchProgress, type BenchRun, runBench } from './run/run.ts';
export type {
  AccuracyEntry,
  AccuracyParts,
  AccuracyPhase,
  AccuracyResult,
  SampleVerdict,
} from './score/accuracy.ts';
export { type Check, type CheckResult, checkReport } from './submit/check.ts';
export { type Published, publishSubmission, type Submission } from './submit/publish.ts';
