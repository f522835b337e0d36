/** The MLPerf Edge Agentic benchmark for any OpenAI endpoint. Speaks HTTP and knows nothing of the runtime. */
export type {
  AccuracyEntry,
  AccuracyParts,
  AccuracyPhase,
  AccuracyResult,
  SampleVerdict,
} from './accuracy.ts';
export { type Check, type CheckResult, checkReport } from './check.ts';
export { compareReports } from './compare.ts';
export { type BenchConfig, loadBenchConfig, parseBenchConfig } from './config.ts';
export type { CostInputs, CostLine } from './cost.ts';
export { type Published, publishSubmission, type Submission } from './publish.ts';
export type { BenchReport, TurnReport } from './report.ts';
export { htmlReport } from './report-html.ts';
export { type BenchMode, type BenchOutcome, type BenchProgress, type BenchRun, runBench } from './run.ts';
