// What the page knows: the newest sample, and the answers that change every 15 seconds. Views read it, and hear of
// each change.

import { get } from './service';
import type { Finding, Sample, Vm } from './types';

type Told = () => void;

export class Store {
  sample: Sample | null = null;
  vms: Vm[] = [];
  findings: Finding[] = [];
  findingsKnown = false;
  paused = false;
  private byId = new Map<string, Vm>();
  /** Names of all VMs that were seen: findings of the last minute may name one that has stopped. */
  private names = new Map<string, string>();
  private listeners = new Set<Told>();
  private minute: number | null = null;

  take(sample: Sample): void {
    if (this.paused) return;
    this.sample = sample;
    const at = new Map(sample.fields.map((field, i) => [field, i]));
    const pick = (row: unknown[], field: string) => row[at.get(field) ?? -1] ?? null;
    this.vms = sample.vms.map((row) => ({
      id: String(pick(row, 'id')),
      name: String(pick(row, 'name')),
      vcpus: Number(pick(row, 'vcpus') ?? 0),
      run: pick(row, 'run') as number | null,
      ready: pick(row, 'ready') as number | null,
      limited: pick(row, 'limited') as number | null,
      costop: pick(row, 'costop') as number | null,
      lag: pick(row, 'lag') as number | null,
      wake_p99_ns: pick(row, 'wake_p99_ns') as number | null,
      finding: pick(row, 'finding') as string | null,
    }));
    this.byId = new Map(this.vms.map((vm) => [vm.id, vm]));
    for (const vm of this.vms) this.names.set(vm.id, vm.name);
    if (sample.minute_unix_ns !== null && sample.minute_unix_ns !== this.minute) {
      this.minute = sample.minute_unix_ns;
      void this.readFindings();
    }
    this.tell();
  }

  /** When the newest sample was taken, in seconds since 1970, as exact as the answers of /api/v1/recent. */
  get timeS(): number {
    return Math.floor((this.sample?.unix_ns ?? 0) / 1e6) / 1e3;
  }

  vm(id: string): Vm | undefined {
    return this.byId.get(id) ?? this.vms.find((vm) => vm.name === id);
  }

  name(id: string): string {
    return this.names.get(id) ?? (/^[0-9a-f]{8}-[0-9a-f-]{27}$/.test(id) ? `${id.slice(0, 8)}… (stopped)` : id);
  }

  onChange(told: Told): () => void {
    this.listeners.add(told);
    return () => this.listeners.delete(told);
  }

  tell(): void {
    for (const told of this.listeners) told();
  }

  private async readFindings(): Promise<void> {
    const answer = await get<{ findings: Finding[] }>('api/v1/findings');
    if (!answer.ok) return;
    this.findings = answer.data.findings ?? [];
    this.findingsKnown = true;
    this.tell();
  }
}

/** A view: what it shows, and what it does with a sample and with keys. */
export interface View {
  title: string;
  root: HTMLElement;
  update?(): void;
  /** True if the view used the key. */
  key?(event: KeyboardEvent): boolean;
  /** The colours have changed. */
  recolour?(): void;
  close?(): void;
}
