// The state of the host at a glance: how busy it is, how long VMs wait, what was found, and the table of VMs.

import { Chart, statesOf } from '../chart';
import { h, setClass, setText } from '../dom';
import { type Maybe, pcpus, percent, plural } from '../format';
import { get } from '../service';
import type { Store, View } from '../store';
import { Table } from '../table';
import type { Recent, Sample } from '../types';

/** Points of the chart: 15 minutes at one sample a second. */
const POINTS = 900;

class Tile {
  readonly root: HTMLElement;
  private readonly big = h('b', {});
  private readonly unit = h('span', { class: 'unit' });
  private readonly note = h('small', {});
  private readonly fill = h('i', {});

  constructor(title: string, about: string, colour: string) {
    this.root = h('div', { class: `tile ${colour}`, title: about }, h('h3', {}, title), h('p', { class: 'value' }, this.big, ' ', this.unit),
      h('span', { class: 'gauge', 'aria-hidden': 'true' }, this.fill), this.note);
  }

  set(value: string, unit: string, note: string, part: Maybe, bad: boolean): void {
    setText(this.big, value);
    setText(this.unit, unit);
    setText(this.note, note);
    setClass(this.root, 'alert', bad);
    const width = `${Math.min(100 * (part ?? 0), 100).toFixed(1)}%`;
    if (this.fill.style.width !== width) this.fill.style.width = width;
  }
}

const bare = (text: string) => text.replace(/\s%$/, '');
const psi = (some: Maybe, full: Maybe) => (some == null ? 'not measured' : full == null ? 'PSI some' : `PSI some; full ${percent(full)}`);

class HostView implements View {
  readonly title = 'State';
  readonly root: HTMLElement;
  private readonly tiles = {
    busy: new Tile('Host busy', 'Mean over all pCPUs: not idle', 'run'),
    run: new Tile('VMs run', 'Sum over the vCPUs of all VMs, in pCPUs', 'run'),
    ready: new Tile('VMs ready', 'vCPUs that could run but have no pCPU, a sum in pCPUs', 'ready'),
    limited: new Tile('VMs limited', 'vCPUs stopped by a quota, a real-time budget or a cap, a sum in pCPUs', 'limited'),
    cpu: new Tile('CPU pressure', 'PSI cpu some: part of the time in which at least one task waited for a CPU', 'ready'),
    io: new Tile('I/O pressure', 'PSI io some and full: part of the time in which tasks waited for I/O', 'plain'),
    memory: new Tile('Memory pressure', 'PSI memory some and full: part of the time in which tasks waited for memory', 'plain'),
  };
  private readonly findings = h('ol', { class: 'worst' });
  private readonly noFindings = h('p', { class: 'empty' });
  private readonly table: Table;
  private readonly chart: Chart;
  private readonly states: ReturnType<typeof statesOf>;
  private readonly columns: (number | null)[][];
  private readonly times: number[] = [];
  private asked = false;
  private shown: unknown = null;

  constructor(private readonly store: Store, open: (id: string) => void) {
    this.states = statesOf(store.vms);
    this.columns = this.states.map(() => []);
    this.table = new Table(store, open);
    this.chart = new Chart({
      series: this.states.map((s) => ({ label: s.label, colour: s.colour, format: (v) => (v == null ? pcpus(v) : `${pcpus(v)} pCPUs`) })),
      height: 190, label: 'pCPUs that VMs use and wait for, over the last 15 minutes', axis: (v) => v.toFixed(v < 10 ? 1 : 0),
    });
    this.root = h('div', { class: 'view host' },
      h('div', { class: 'tiles' }, ...Object.values(this.tiles).map((tile) => tile.root)),
      h('div', { class: 'pair' },
        h('section', {}, h('h2', {}, 'Last 15 minutes, all VMs', h('small', {}, ' in pCPUs')), this.chart.root),
        h('section', {}, h('h2', {}, 'Worst findings', h('small', {}, ' of the last minute')), this.findings, this.noFindings)),
      this.table.root);
  }

  update(): void {
    const { sample, timeS } = this.store;
    if (!sample) return;
    if (this.times.at(-1) !== timeS) {
      this.times.push(timeS);
      this.states.forEach(({ key }, i) => this.columns[i]!.push(sample.host[key] ?? null));
      if (this.times.length > POINTS) [this.times, ...this.columns].forEach((column) => column.shift());
      this.chart.set(this.times, this.columns);
    }
    if (!this.asked) {
      this.asked = true;
      void this.readPast();
    }
    this.showTiles(sample);
    this.showFindings();
    this.table.update();
  }

  key(event: KeyboardEvent): boolean {
    return this.table.key(event);
  }

  recolour(): void {
    this.chart.recolour();
  }

  close(): void {
    this.chart.close();
  }

  /** Puts what the service remembers before what has come since. */
  private async readPast(): Promise<void> {
    const answer = await get<Recent>('api/v1/recent');
    if (!answer.ok) return;
    const { time_unix_ms: past, columns } = answer.data;
    const known = past.filter((ms) => this.times.length === 0 || ms / 1e3 < this.times[0]!).length;
    this.times.unshift(...past.slice(0, known).map((ms) => ms / 1e3));
    this.states.forEach(({ key }, i) => this.columns[i]!.unshift(...(columns[key] ?? past.map(() => null)).slice(0, known)));
    this.chart.set(this.times, this.columns);
  }

  private showTiles({ host, exact, limits }: Sample): void {
    const { tiles, store } = this;
    const estimate = exact ? '' : 'estimate; ';
    const of = (value: Maybe) => (value == null ? null : value / Math.max(host.pcpus, 1));
    const stolen = (host.steal ?? 0) > 0.001 ? `; ${percent(host.steal)} stolen` : '';
    const waiting = store.vms.filter((vm) => (vm.ready ?? 0) / Math.max(vm.vcpus, 1) > limits.ready).length;
    tiles.busy.set(bare(percent(host.busy, 0)), '%', `of ${plural(host.pcpus, 'pCPU')}${stolen}`, host.busy, false);
    tiles.run.set(pcpus(host.run), 'pCPUs', plural(store.vms.length, 'VM'), of(host.run), false);
    tiles.ready.set(pcpus(host.ready), 'pCPUs', `${estimate}${waiting} above ${percent(limits.ready, 0)} per vCPU`, of(host.ready), waiting > 0);
    tiles.limited.set(pcpus(host.limited), 'pCPUs', host.limited == null ? 'not measured' : `${estimate}by quotas`, of(host.limited), false);
    tiles.cpu.set(bare(percent(host.psi_cpu_some)), '%', psi(host.psi_cpu_some, null), host.psi_cpu_some, false);
    tiles.io.set(bare(percent(host.psi_io_some)), '%', psi(host.psi_io_some, host.psi_io_full), host.psi_io_some, false);
    tiles.memory.set(bare(percent(host.psi_memory_some)), '%', psi(host.psi_memory_some, host.psi_memory_full), host.psi_memory_some, false);
  }

  private showFindings(): void {
    const { store } = this;
    if (this.shown === store.findings && store.findingsKnown) return;
    this.shown = store.findings;
    const worst = store.findings.filter((f) => f.loss_pcpus > 0 || f.vm !== null).slice(0, 3);
    this.findings.replaceChildren(...worst.map((f) => h('li', {},
      h('a', { href: '#/findings' }, f.title), f.loss_pcpus > 0 ? h('span', { class: 'loss' }, `${pcpus(f.loss_pcpus)} pCPUs`) : null)));
    setText(this.noFindings, !store.findingsKnown ? 'vsteer looks at the last minute. The first findings come after 15 seconds.' :
      worst.length === 0 ? 'Nothing was found in the last minute.' : '');
    this.noFindings.hidden = worst.length > 0;
  }
}

export function hostView(store: Store, open: (id: string) => void): View {
  return new HostView(store, open);
}
