/**
 * Joules of the processor packages while a phase runs, where the machine tells: RAPL under Linux's powercap, in microjoules,
 * counters that wrap. It is the energy of this machine: of the server only if that runs here, and of everything else that does.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface EnergyMeter {
  /** What was read, for the report. */
  readonly source: string;
  /** Joules since the meter was opened. */
  stop(): number;
}

interface Zone {
  readonly path: string;
  readonly wrapsAt: number;
  last: number;
  total: number;
}

const readNumber = (path: string): number => Number(readFileSync(path, 'utf8').trim());

/** A counter wraps after minutes under load: it is read far more often than that. */
const intervalMs = 10_000;

/** null where there is no counter, or none that this user may read. */
export function openEnergyMeter(root = '/sys/class/powercap'): EnergyMeter | null {
  const zones = openZones(root);
  if (zones.length === 0) return null;
  const read = (): void => {
    for (const zone of zones) {
      const value = readNumber(zone.path);
      zone.total += value >= zone.last ? value - zone.last : value + zone.wrapsAt - zone.last;
      zone.last = value;
    }
  };
  const timer = setInterval(read, intervalMs);
  timer.unref();
  return {
    source: `RAPL, ${zones.length} processor package${zones.length === 1 ? '' : 's'} of this machine`,
    stop(): number {
      clearInterval(timer);
      read();
      return zones.reduce((sum, { total }) => sum + total, 0) / 1e6;
    },
  };
}

/** Whole packages alone: their parts are contained in them. */
function openZones(root: string): Zone[] {
  if (!existsSync(root)) return [];
  return readdirSync(root)
    .filter((name) => /^intel-rapl:\d+$/.test(name))
    .flatMap((name) => {
      try {
        const path = join(root, name, 'energy_uj');
        const wrapsAt = readNumber(join(root, name, 'max_energy_range_uj'));
        return [{ path, wrapsAt, last: readNumber(path), total: 0 }];
      } catch {
        return [];
      }
    });
}
