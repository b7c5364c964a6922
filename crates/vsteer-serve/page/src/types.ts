// The answers of the service, as far as the page reads them. Fields are added within a version, so every view ignores what it
// does not know, and tolerates what is absent.

import type { Maybe } from './format';

export interface HostSums {
  name: string;
  pcpus: number;
  window_ns?: number;
  busy?: Maybe;
  steal?: Maybe;
  run?: Maybe;
  ready?: Maybe;
  limited?: Maybe;
  costop?: Maybe;
  psi_cpu_some?: Maybe;
  psi_io_some?: Maybe;
  psi_io_full?: Maybe;
  psi_memory_some?: Maybe;
  psi_memory_full?: Maybe;
}

export interface Limits {
  ready: number;
  ready_critical: number;
  costop: number;
  limited: number;
  wake_p99_ns: number;
}

/** One event of /api/v1/live. */
export interface Sample {
  unix_ns: number;
  host: HostSums;
  collector: string;
  exact: boolean;
  samples: number;
  failed: number;
  minute_unix_ns: number | null;
  limits: Limits;
  pcpus?: [cpu: number, busy: number][];
  fields: string[];
  vms: unknown[][];
}

/** A VM's row of an event. Shares are sums over its vCPUs. */
export interface Vm {
  id: string;
  name: string;
  vcpus: number;
  run: Maybe;
  ready: Maybe;
  limited: Maybe;
  costop: Maybe;
  lag: Maybe;
  wake_p99_ns: Maybe;
  finding: string | null;
}

export interface Evidence {
  quantity: string;
  value: number;
  unit: string;
  against: number | null;
}

export interface Finding {
  rule: string;
  vm: string | null;
  title: string;
  explanation: string;
  evidence: Evidence[];
  loss_pcpus: number;
  disproved_by: string;
  next: string;
  vms?: string[];
  culprit?: string;
  symptoms?: Finding[];
}

export interface Quantiles {
  count: number;
  p50_ns: number;
  p95_ns: number;
  p99_ns: number;
  max_ns: number;
}

export interface Shares {
  run?: Maybe;
  ready?: Maybe;
  limited?: Maybe;
  costop?: Maybe;
  wait?: Maybe;
  blocked?: Maybe;
  lag?: Maybe;
}

export type Role = string | Record<string, number>;

export interface Thread {
  role: Role;
  tid: number;
  shares: Shares;
  wake_latency: Quantiles | null;
  last_cpu: number | null;
  migrations_per_s: Maybe;
}

export interface VmModel {
  id: string;
  name: string;
  threads: Thread[];
  vcpus: Shares;
  wake_latency: Quantiles | null;
  memory_by_node: [node: number, bytes: number][] | null;
}

export interface ThreadConfig {
  tid: number;
  role: Role;
  affinity: string;
}

export interface Quota {
  quota_us: number;
  period_us: number;
}

export interface VmConfig {
  id: string;
  name: string;
  manager: string | Record<string, unknown>;
  accel: string | null;
  threads: ThreadConfig[];
  weight: Record<string, number> | null;
  limits: { per_vcpu: Quota | null; emulator: Quota | null; whole_vm: Quota | null };
  memory_bytes: number | null;
  memory_nodes: string | null;
}

export interface HostConfig {
  hostname: string;
  kernel: string;
  topology: {
    allowed: string;
    online: string;
    nodes: { id: number; cpus: string; memory_bytes: number | null }[];
    cores: { id: number | null; cpus: string; kind: string | null; capacity: number | null }[];
    caches: { level: number; kind: string; size_bytes: number | null; cpus: string }[];
    packages: { id: number | null; cpus: string }[];
  };
  vms: VmConfig[];
}

export interface Blamed {
  victim: string;
  victim_name: string;
  kind: string;
  key: string;
  name: string;
  share: number;
}

export interface VmAnswer {
  id: string;
  name: string;
  config: VmConfig | null;
  now: VmModel | null;
  minute: VmModel | null;
  minute_ns: number | null;
  blame: Blamed[] | null;
  findings: Finding[];
  missing: Record<string, string>;
}

export interface Times {
  seconds: number;
  buckets: [from_ns: number, to_ns: number, count: number][];
}

export interface Recent {
  name: string;
  time_unix_ms: number[];
  columns: Record<string, (number | null)[]>;
  wake_latency: Times[];
}

/** An event of /api/v1/timeline. */
export interface Change {
  unix_ms: number;
  kind: string;
  vm: string | null;
  name: string | null;
  text: string;
}

/** A row of /api/v1/history: a minute or an hour of a VM, or of the host, which has neither a name nor wake-ups. */
export interface HistoryRow {
  unix_ms: number;
  vm?: string;
  name?: string;
  covered_us: number;
  run_us: Maybe;
  ready_us: Maybe;
  wait_us?: Maybe;
  limited_us: Maybe;
  costop_us: Maybe;
  wake_p99_us?: Maybe;
  costs?: { culprit: string; us: number }[];
}

export interface HistoryAnswer {
  rows: HistoryRow[];
  step: 'minute' | 'hour';
  notes: string[];
}

/** The most likely value, and the interval that holds it in 90 of 100 cases. */
export interface Interval {
  low: number;
  likely: number;
  high: number;
}

export interface VmForecast {
  vm: string;
  name: string;
  run_before: number;
  run_after: Interval;
  ready_before: number;
  ready_after: Interval;
  wake_p99_ns_before?: Maybe;
  wake_p99_ns_after?: Interval | null;
  withheld?: boolean;
}

export interface PlanAnswer {
  plan: {
    id: string;
    title: string;
    forecast: { method: string; vms: VmForecast[] };
    irreversible: string[];
    contested?: string[];
  } | null;
  steps: { vm: string; vm_name: string; text: string; reason: string }[];
  note: string | null;
  command: string | null;
}
