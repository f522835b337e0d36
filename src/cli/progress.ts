/** Progress on stderr: a bar on a terminal, a line now and then elsewhere, nothing when output is for machines. */
import { Presets, SingleBar } from 'cli-progress';

export interface Progress {
  update(done: number, total: number, detail: string): void;
  stop(): void;
}

const linesEveryMs = 5000;

export function openProgress(label: string, options: { readonly quiet: boolean }): Progress {
  if (options.quiet) return { update: () => {}, stop: () => {} };
  return process.stderr.isTTY ? barProgress(label) : lineProgress(label);
}

function barProgress(label: string): Progress {
  const bar = new SingleBar(
    {
      format: `${label} {bar} {value}/{total} · {eta_formatted} left · {detail}`,
      hideCursor: true,
      etaBuffer: 50,
      stream: process.stderr,
    },
    Presets.shades_grey,
  );
  let started = false;
  return {
    update(done, total, detail) {
      if (!started) bar.start(total, 0, { detail: '' });
      started = true;
      bar.setTotal(total);
      bar.update(done, { detail });
    },
    stop: () => {
      if (started) bar.stop();
      started = false;
    },
  };
}

function lineProgress(label: string): Progress {
  let last = 0;
  return {
    update(done, total, detail) {
      if (Date.now() - last < linesEveryMs && done < total) return;
      last = Date.now();
      process.stderr.write(`${label} ${done}/${total} ${detail}\n`);
    },
    stop: () => {},
  };
}
