/** Vitest reporter: ends a run with the plain line `N passed, N failed[, N skipped]`. */
import type { Reporter, TestCase, TestModule } from 'vitest/node';

export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    const count = { passed: 0, failed: unhandled.length, skipped: 0 };
    for (const module of modules) {
      let failedTests = 0;
      for (const test of module.children.allTests() as Iterable<TestCase>) {
        const state = test.result().state;
        if (state === 'passed') count.passed++;
        else if (state === 'failed') failedTests++;
        else count.skipped++;
      }
      // A module that could not be loaded has no tests to fail: it counts as one failure.
      count.failed += failedTests > 0 ? failedTests : module.state() === 'failed' ? 1 : 0;
    }
    const skipped = count.skipped > 0 ? `, ${count.skipped} skipped` : '';
    console.log(`\n${count.passed} passed, ${count.failed} failed${skipped}`);
    if (count.skipped > 0 && process.env.COPSE_FORBID_SKIPS === '1') {
      console.error('COPSE_FORBID_SKIPS is set and tests were skipped');
      process.exitCode = 1;
    }
  }
}
