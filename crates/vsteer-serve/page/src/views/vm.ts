// One VM: its states over time, its wake-up latencies, what it waits for, its findings and changes, its settings and threads.

import { findingCard, vmLink } from '../cards';
import { Chart, statesOf } from '../chart';
import { changes, readChanges } from '../changes';
import { h, setText } from '../dom';
import { bytes, duration, type Maybe, NONE, pcpus, percent, plural } from '../format';
import { histogram } from '../histogram';
import { get } from '../service';
import type { Store, View } from '../store';
import { WhatIf } from '../whatif';
import type { Blamed, Recent, Role, Thread, Times, VmAnswer, VmConfig } from '../types';

const POINTS = 900;
/** How often the parts that are not in the events are read, ms. */
const READ_EVERY_MS = 10_000;

const lines = [
  { key: 'wake_p50_ns', label: 'Median', colour: '--run', format: duration, line: true },
  { key: 'wake_p99_ns', label: '99th percentile', colour: '--ready', format: duration, line: true },
  { key: 'wake_max_ns', label: 'Longest', colour: '--soft', format: duration, line: true, dash: [3, 4] },
];

export function roleName(role: Role): string {
  if (typeof role === 'string') return role;
  const [kind, number] = Object.entries(role)[0] ?? ['thread', ''];
  return kind === 'vcpu' ? `vCPU ${number}` : `${kind.replace('_', ' ')} ${number}`;
}

function manager(config: VmConfig): string {
  const name = typeof config.manager === 'string' ? config.manager : (Object.keys(config.manager)[0] ?? NONE);
  const names: Record<string, string> = {
    libvirt: 'libvirt', proxmox: 'Proxmox VE', kube_virt: 'KubeVirt', kata: 'Kata Containers', bare: 'none (a QEMU process)', xen: 'Xen', vsphere: 'vSphere',
  };
  return names[name] ?? name;
}

function facts(config: VmConfig): HTMLElement {
  const vcpus = config.threads.filter((t) => typeof t.role === 'object' && 'vcpu' in t.role);
  const pins = [...new Set(vcpus.map((t) => t.affinity))];
  const quota = (q: { quota_us: number; period_us: number } | null, of: string) =>
    q ? `${of}: ${(q.quota_us / q.period_us).toFixed(2)} pCPUs (${q.quota_us} µs in every ${q.period_us} µs)` : null;
  const limits = [quota(config.limits.whole_vm, 'VM'), quota(config.limits.per_vcpu, 'each vCPU'), quota(config.limits.emulator, 'emulator')].filter(Boolean);
  const weight = Object.entries(config.weight ?? {})[0];
  const rows: [string, string][] = [
    ['Managed by', manager(config)],
    ['Acceleration', config.accel === 'kvm' ? 'KVM' : config.accel === 'tcg' ? 'TCG (emulated)' : NONE],
    ['CPU weight', weight ? `${weight[1]}${weight[0] === 'shares' ? ' shares' : ''}` : NONE],
    ['CPU limits', limits.length > 0 ? limits.join('; ') : 'none'],
    ['vCPUs may run on', pins.length === 1 ? `pCPUs ${pins[0]}` : pins.length === 0 ? NONE : vcpus.map((t) => `${roleName(t.role)}: ${t.affinity}`).join('; ')],
    ['Memory', `${bytes(config.memory_bytes)}${config.memory_nodes ? `, bound to nodes ${config.memory_nodes}` : ''}`],
  ];
  return h('dl', { class: 'facts' }, ...rows.flatMap(([name, text]) => [h('dt', {}, name), h('dd', {}, text)]));
}

function culpritList(store: Store, blame: Blamed[], self: string): HTMLElement {
  const most = Math.max(...blame.map((b) => b.share), 1e-9);
  const about: Record<string, string> = {
    process: 'host process', kernel: 'kernel thread', placement: 'an allowed pCPU was idle', unattributed: 'not known which thread ran', vm: 'VM',
  };
  return h('ul', { class: 'bars' }, ...blame.slice(0, 12).map((b) => {
    const fill = h('i', { class: 's-ready' });
    fill.style.width = `${(100 * b.share) / most}%`;
    const name = b.kind !== 'vm' ? b.name : b.key === self ? 'its own other threads' : vmLink(store, b.key);
    return h('li', {}, h('span', { class: 'who' }, name, h('small', {}, ` ${b.key === self ? '' : (about[b.kind] ?? b.kind)}`)),
      h('span', { class: 'gauge' }, fill), h('span', { class: 'n' }, `${pcpus(b.share)} pCPUs`));
  }));
}

function threadTable(threads: Thread[], config: VmConfig | null): HTMLElement {
  const affinity = new Map(config?.threads.map((t) => [t.tid, t.affinity]));
  const head = ['Thread', 'Run', 'Ready', 'Limited', 'Asleep', 'Wake p99', 'Moves/s', 'Last pCPU', 'May run on'];
  return h('div', { class: 'wide' }, h('table', {},
    h('thead', {}, h('tr', {}, ...head.map((name, i) => h('th', { scope: 'col', class: i > 0 ? 'n' : '' }, name)))),
    h('tbody', {}, ...threads.slice(0, 300).map((t) => h('tr', {},
      h('th', { scope: 'row' }, roleName(t.role), h('small', {}, ` ${t.tid}`)),
      ...[percent(t.shares.run), percent(t.shares.ready ?? t.shares.wait), percent(t.shares.limited), percent(t.shares.blocked), duration(t.wake_latency?.p99_ns),
        t.migrations_per_s == null ? NONE : t.migrations_per_s.toFixed(1), t.last_cpu === null ? NONE : String(t.last_cpu), affinity.get(t.tid) ?? NONE]
        .map((text) => h('td', { class: 'n' }, text)))))));
}

const box = () => h('div', {}, h('p', { class: 'empty' }, 'Reading…'));
const section = (name: string, about: string, ...content: globalThis.Node[]) => h('section', {}, h('h2', {}, name, h('small', {}, ` ${about}`)), ...content);
const empty = (text: string) => h('p', { class: 'empty' }, text);

class VmView implements View {
  readonly title: string;
  readonly root: HTMLElement;
  private readonly shown: ReturnType<typeof statesOf>;
  private readonly states: Chart;
  private readonly wakes: Chart;
  private readonly heading: HTMLElement;
  private readonly summary = h('p', { class: 'lead' });
  private readonly gone = h('p', { class: 'notice' });
  private readonly parts = { histogram: box(), culprits: box(), findings: box(), changes: box(), facts: box(), threads: box() };
  private readonly whatIf: WhatIf;
  private readonly noWakes = empty('');
  private readonly choice = h('div', { class: 'choice', role: 'group', 'aria-label': 'Time of the histogram' });
  private readonly keys: string[];
  private columns: (number | null)[][];
  private times: number[] = [];
  private latencies: Times[] = [];
  private chosen = 0;
  private readAt = 0;
  private closed = false;

  constructor(private readonly store: Store, private readonly wanted: string) {
    this.title = store.vm(wanted)?.name ?? wanted;
    this.whatIf = new WhatIf(store);
    this.heading = h('h1', { tabindex: -1 }, this.title);
    this.gone.hidden = true;
    this.noWakes.hidden = true;
    this.shown = statesOf(store.vms);
    this.keys = [...this.shown.map((s) => s.key), 'lag', ...lines.map((l) => l.key)];
    this.columns = this.keys.map(() => []);
    this.states = new Chart({
      series: [
        ...this.shown.map((s) => ({ label: s.label, colour: s.colour, format: (v: Maybe) => percent(v) })),
        { label: 'Lag', colour: '--text', format: (v) => percent(v), line: true, dash: [4, 3] },
      ],
      height: 260, label: 'States of the vCPUs over the last 15 minutes, a sum over vCPUs', axis: (v) => `${Math.round(100 * v)} %`,
    });
    this.wakes = new Chart({
      series: lines, height: 200, label: 'Wake-up latency of each sample over the last 15 minutes', axis: (v) => duration(v).replace(/\.0+(?=\s)/, ''), logarithmic: true,
    });
    this.root = this.layout();
  }

  update(): void {
    if (!this.store.sample) return;
    if (Date.now() - this.readAt > READ_EVERY_MS) this.readAll();
    const vm = this.store.vm(this.wanted);
    if (!vm) return;
    const each = (v: Maybe) => percent(v == null ? null : v / Math.max(vm.vcpus, 1));
    const parts = [`${each(vm.run)} running`, `${each(vm.ready)} ready`, ...(vm.limited == null ? [] : [`${each(vm.limited)} limited`]), ...(vm.costop == null ? [] : [`${each(vm.costop)} co-stopped`])];
    setText(this.summary, `${plural(vm.vcpus, 'vCPU')}${vm.vcpus > 1 ? ', on average' : ':'} ${parts.join(', ')}. Wake-up p99: ${duration(vm.wake_p99_ns)}.`);
    const now = this.store.timeS;
    if (this.times.length === 0 || now <= this.times.at(-1)!) return;
    this.times.push(now);
    this.keys.forEach((key, i) => this.columns[i]!.push(((vm as unknown as Record<string, unknown>)[key] as number | undefined) ?? null));
    if (this.times.length > POINTS) [this.times, ...this.columns].forEach((column) => column.shift());
    this.draw();
  }

  recolour(): void {
    this.states.recolour();
    this.wakes.recolour();
  }

  close(): void {
    this.closed = true;
    this.states.close();
    this.wakes.close();
  }

  private layout(): HTMLElement {
    const { parts } = this;
    return h('div', { class: 'view vm' },
      h('p', { class: 'crumb' }, h('a', { href: '#/' }, '← All VMs'), h('small', {}, ' Esc')), this.heading, this.summary, this.gone,
      section('States', 'sum over vCPUs, 100 % is one pCPU; lag is a part of ready', this.states.root),
      h('div', { class: 'pair' },
        section('Wake-up latency', 'from wake-up to running, of each sample', this.wakes.root, this.noWakes),
        section('Distribution of wake-up latencies', '', this.choice, parts.histogram)),
      h('div', { class: 'pair' },
        section('What it waits for', 'in the last minute: the threads that ran while this VM was ready', parts.culprits),
        section('Settings', '', parts.facts)),
      section('What if', 'a setting were another: a forecast from the last minute; nothing is changed', this.whatIf.root),
      section('Findings', 'of the last minute', parts.findings),
      section('Changes', 'of the last hour', parts.changes),
      section('Threads', 'in the last minute', parts.threads));
  }

  private draw(): void {
    const n = this.shown.length + 1;
    this.states.set(this.times, this.columns.slice(0, n));
    // A logarithmic axis has no 0.
    this.wakes.set(this.times, this.columns.slice(n).map((column) => column.map((v) => (v !== null && v > 0 ? v : null))));
  }

  private drawHistogram(): void {
    this.choice.replaceChildren(...this.latencies.map((t, i) => h('button', {
      type: 'button', 'aria-pressed': String(i === this.chosen), click: () => {
        this.chosen = i;
        this.drawHistogram();
      },
    }, `last ${duration(1e9 * t.seconds).replace(/\.\d+/, '')}`)));
    this.choice.hidden = this.wakes.root.hidden;
    if (this.choice.hidden) return;
    const times = this.latencies[Math.min(this.chosen, this.latencies.length - 1)];
    this.parts.histogram.replaceChildren(times ? histogram(times, this.store.sample?.limits.wake_p99_ns ?? 5e6)
      : empty('The service has no distribution yet. The first one comes some seconds after its start.'));
  }

  private readAll(): void {
    this.readAt = Date.now();
    void this.readVm();
    void this.readRecent();
    void readChanges(this.store.vm(this.wanted)?.id ?? this.wanted, Date.now() - 3_600_000, Date.now()).then((answer) => {
      if (!this.closed) this.parts.changes.replaceChildren(changes(answer, 'No change in the last hour.'));
    });
  }

  private async readRecent(): Promise<void> {
    const answer = await get<Recent>(`api/v1/recent?vm=${encodeURIComponent(this.wanted)}`);
    if (!answer.ok || this.closed) return;
    this.times = answer.data.time_unix_ms.map((ms) => ms / 1e3);
    this.columns = this.keys.map((key) => answer.data.columns[key] ?? this.times.map(() => null));
    this.latencies = answer.data.wake_latency;
    this.draw();
    this.drawHistogram();
  }

  private async readVm(): Promise<void> {
    const answer = await get<VmAnswer>(`api/v1/vm?vm=${encodeURIComponent(this.wanted)}`);
    if (this.closed) return;
    this.gone.hidden = answer.ok;
    if (answer.ok) this.showVm(answer.data);
    else setText(this.gone, `The service does not know a VM called “${this.wanted}” now. The VM may have stopped.`);
  }

  private showVm(vm: VmAnswer): void {
    const { parts, store } = this;
    setText(this.heading, vm.name);
    const unmeasured = vm.missing['wake_latency'];
    this.wakes.root.hidden = unmeasured !== undefined;
    this.noWakes.hidden = unmeasured === undefined;
    if (unmeasured !== undefined) {
      setText(this.noWakes, `Not measured: ${unmeasured}.`);
      parts.histogram.replaceChildren(empty(`Not measured: ${unmeasured}.`));
    }
    const why = vm.missing['blame'];
    parts.culprits.replaceChildren(vm.blame?.length ? culpritList(store, vm.blame, vm.id)
      : empty(why ? `Not measured: ${why}.` : vm.blame ? 'This VM did not wait in the last minute.' : 'The first values come 15 seconds after the start of the service.'));
    parts.findings.replaceChildren(...(vm.findings.length > 0 ? vm.findings.map((f) => findingCard(store, f)) : [empty('No finding of the last minute concerns this VM.')]));
    if (vm.config) this.whatIf.show(vm.config);
    parts.facts.replaceChildren(vm.config ? facts(vm.config) : empty('The settings of this VM are not known.'));
    const model = vm.minute ?? vm.now;
    if (vm.config && model?.memory_by_node?.length) {
      parts.facts.append(h('p', { class: 'note' }, `Memory in use: ${model.memory_by_node.map(([node, n]) => `${bytes(n)} on node ${node}`).join(', ')}.`));
    }
    parts.threads.replaceChildren(model ? threadTable(model.threads, vm.config) : empty('No thread was measured yet.'));
  }
}

export function vmView(store: Store, wanted: string): View {
  return new VmView(store, wanted);
}
