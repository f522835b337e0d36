/** The BFCL v4 accuracy phase: samples, requests, scoring, and the phase that a run plugs in. Knows no HTTP. */
export {
  type Call,
  type CallCheck,
  checkCall,
  checkCalls,
  type ExpectedCall,
  type Language,
  wireName,
} from './check-call.ts';
export { standardize } from './checks.ts';
export { fromJava } from './convert-java.ts';
export { fromJavascript } from './convert-javascript.ts';
export { extractCalls, hasNativeCalls } from './extract.ts';
export { readJson, tryJson, writeJson } from './json.ts';
export { bfclPhase } from './phase.ts';
export { requestBody, toolsOf } from './request.ts';
export { type BfclSample, type Category, hashOfIds, type SelectionParams, selectSamples } from './samples.ts';
export {
  type Aggregate,
  type AnswerText,
  aggregate,
  scoredText,
  scoreSample,
  type Verdict,
} from './score.ts';
export { type Dict, equal, isDict, isList, typeOf, type Value } from './value.ts';
