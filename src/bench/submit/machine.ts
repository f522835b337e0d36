/** This machine as a submission describes it. What the system does not tell is said to be so, never invented. */
import { existsSync, readFileSync } from 'node:fs';
import { arch, cpus, platform, release, totalmem } from 'node:os';

const unknown = 'not recorded';

const read = (path: string): string | null => (existsSync(path) ? readFileSync(path, 'utf8') : null);

interface Processor {
  readonly model: string;
  readonly sockets: number;
  readonly coresPerSocket: number;
  readonly frequency: string;
  readonly caches: string;
}

function processor(): Processor {
  const info = read('/proc/cpuinfo') ?? '';
  const all = (key: string): string[] =>
    [...info.matchAll(new RegExp(`^${key}\\s*: (.*)$`, 'gm'))].map(([, value]) => (value ?? '').trim());
  const sockets = Math.max(1, new Set(all('physical id')).size);
  const [first] = cpus();
  const mhz = Math.max(0, ...cpus().map(({ speed }) => speed));
  return {
    model: first?.model.trim() || unknown,
    sockets,
    coresPerSocket: Number(all('cpu cores')[0]) || Math.ceil(cpus().length / sockets),
    frequency: mhz === 0 ? unknown : `${(mhz / 1000).toFixed(2)} GHz`,
    caches: caches(),
  };
}

function caches(): string {
  const found = [0, 1, 2, 3].flatMap((i) => {
    const folder = `/sys/devices/system/cpu/cpu0/cache/index${i}`;
    const [level, size, type] = ['level', 'size', 'type'].map((name) => read(`${folder}/${name}`)?.trim());
    return level === undefined || size === undefined ? [] : [`L${level} ${type} ${size}`];
  });
  return found.length === 0 ? unknown : found.join(', ');
}

function operatingSystem(): string {
  const name = /^PRETTY_NAME="?([^"\n]*)"?$/m.exec(read('/etc/os-release') ?? '')?.[1];
  return `${name ?? platform()}, kernel ${release()}, ${arch()}`;
}

export interface SystemNames {
  readonly division: string;
  readonly submitter: string;
  readonly system: string;
}

/** All fields that the submission checker asks for. Values in `known` win. */
export function systemDescription(
  { division, submitter, system }: SystemNames,
  known: Readonly<Record<string, string>> = {},
): Record<string, string> {
  const { model, sockets, coresPerSocket, frequency, caches } = processor();
  const none = 'N/A';
  return {
    division,
    submitter,
    status: 'available',
    system_name: system,
    number_of_nodes: '1',
    host_processor_model_name: model,
    host_processors_per_node: String(sockets),
    host_processor_core_count: String(coresPerSocket),
    host_memory_capacity: `${Math.round(totalmem() / 2 ** 30)} GiB`,
    host_storage_capacity: unknown,
    host_storage_type: unknown,
    accelerators_per_node: '0',
    accelerator_model_name: none,
    accelerator_memory_capacity: none,
    framework: 'copse',
    operating_system: operatingSystem(),
    system_type: 'edge',
    other_software_stack: `Node.js ${process.version}`,
    host_processor_frequency: frequency,
    host_processor_caches: caches,
    host_memory_configuration: unknown,
    host_processor_interconnect: none,
    host_networking: 'loopback',
    host_networking_topology: none,
    accelerator_frequency: none,
    accelerator_host_interconnect: none,
    accelerator_interconnect: none,
    accelerator_interconnect_topology: none,
    accelerator_memory_configuration: none,
    'accelerator_on-chip_memories': none,
    cooling: unknown,
    hw_notes: none,
    sw_notes: none,
    host_network_card_count: '0',
    system_type_detail: 'edge',
    ...known,
  };
}
