/** LoadGen's single-stream estimate: a percentile that holds with 99 % confidence for as many samples as there are. */

const percentiles = [99.9, 99, 97, 95, 90, 80, 75, 50] as const;

/** log Gamma (Lanczos, g = 7), good to 1e-13. */
function logGamma(x: number): number {
  const c = [
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
  ];
  const t = x + 6.5;
  const sum = c.reduce((total, value, i) => (i === 0 ? value : total + value / (x - 1 + i)), 0);
  return 0.5 * Math.log(2 * Math.PI) + (x - 0.5) * Math.log(t) - t + Math.log(sum);
}

/** Regularised incomplete beta I_x(a, b), by its continued fraction (modified Lentz). */
export function incompleteBeta(x: number, a: number, b: number): number {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - incompleteBeta(1 - x, b, a);
  const front =
    Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a;
  const tiny = 1e-300;
  let [c, d] = [1, 1 - ((a + b) * x) / (a + 1)];
  d = 1 / (Math.abs(d) < tiny ? tiny : d);
  let fraction = d;
  for (let m = 1; m < 10_000; m++) {
    const terms = [
      (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
      (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
    ];
    let change = 1;
    for (const term of terms) {
      d = 1 + term * d;
      d = 1 / (Math.abs(d) < tiny ? tiny : d);
      c = 1 + term / c;
      if (Math.abs(c) < tiny) c = tiny;
      change = c * d;
      fraction *= change;
    }
    if (Math.abs(change - 1) < 1e-15) break;
  }
  return front * fraction;
}

/** Smallest h >= 1 with I_p(h, t + 1) < 0.01. */
export function minPassing(t: number, percentile: number): number {
  const p = percentile / 100;
  let high = 1;
  while (incompleteBeta(p, high, t + 1) >= 0.01) high *= 2;
  let low = Math.floor(high / 2) + 1;
  if (high === 1) return 1;
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (incompleteBeta(p, middle, t + 1) < 0.01) high = middle;
    else low = middle + 1;
  }
  return high;
}

/** Largest t >= 1 with minPassing(t) + t <= n, or 0. */
export function overLatencyCount(n: number, percentile: number): number {
  if (minPassing(1, percentile) + 1 > n) return 0;
  let low = 1;
  let high = n;
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if (minPassing(middle, percentile) + middle <= n) low = middle;
    else high = middle - 1;
  }
  return low;
}

/** Estimates by percentile, null where there are too few samples. `sorted` ascends. */
export function earlyStopping(sorted: readonly number[]): Record<string, number | null> {
  return Object.fromEntries(
    percentiles.map((percentile) => {
      const t = overLatencyCount(sorted.length, percentile);
      return [percentile.toFixed(1), t === 0 ? null : (sorted[sorted.length - t] ?? null)];
    }),
  );
}
