// The table of VMs. Only the rows in sight exist as elements, so 1,000 VMs cost as much as twenty.

import { h, setClass, setText } from './dom';
import { duration, NONE, percent, type Maybe, words } from './format';
import type { Store } from './store';
import type { Limits, Vm } from './types';

const ROW_PX = 34;
/** Rows beyond the edges, so that scrolling shows no gap. */
const SPARE = 4;

interface Column {
  key: string;
  label: string;
  about: string;
  /** What rows are sorted by. */
  value: (vm: Vm, perVcpu: boolean) => number | string | null;
  text: (vm: Vm, perVcpu: boolean) => string;
  /** 0: fine, 1: above the warning threshold, 2: above the critical one. */
  level?: (vm: Vm, limits: Limits) => number;
  class?: string;
}

const each = (value: Maybe, vm: Vm, perVcpu: boolean) =>
  value === null || value === undefined ? null : perVcpu ? value / Math.max(vm.vcpus, 1) : value;

function share(key: 'run' | 'ready' | 'limited' | 'costop' | 'lag', label: string, about: string, level?: Column['level']): Column {
  return {
    key, label, about, level,
    value: (vm, perVcpu) => each(vm[key], vm, perVcpu),
    text: (vm, perVcpu) => percent(each(vm[key], vm, perVcpu)),
    class: `n c-${key}`,
  };
}

const above = (value: number | null, limit: number, critical = Infinity) =>
  value === null ? 0 : value > critical ? 2 : value > limit ? 1 : 0;

const COLUMNS: Column[] = [
  { key: 'name', label: 'VM', about: 'Name of the VM', value: (vm) => vm.name.toLowerCase(), text: (vm) => vm.name, class: 'c-name' },
  { key: 'vcpus', label: 'vCPUs', about: 'Number of vCPUs', value: (vm) => vm.vcpus, text: (vm) => String(vm.vcpus || NONE), class: 'n c-vcpus' },
  { key: 'states', label: 'States', about: 'Running, ready, limited and co-stopped, of all vCPU time', value: (vm) => (vm.run ?? 0) + (vm.ready ?? 0), text: () => '', class: 'c-states' },
  share('run', 'Run', 'On a pCPU'),
  share('ready', 'Ready', 'Could run, but has no pCPU', (vm, l) => above(each(vm.ready, vm, true), l.ready, l.ready_critical)),
  share('limited', 'Limited', 'Stopped by a quota, a real-time budget or a cap', (vm, l) => above(each(vm.limited, vm, true), l.limited)),
  share('costop', 'Co-stop', 'Stopped so that sibling vCPUs catch up', (vm, l) => above(each(vm.costop, vm, true), l.costop)),
  share('lag', 'Lag', 'Ready while a sibling vCPU ran; a part of ready'),
  {
    key: 'wake', label: 'Wake p99', about: 'From wake-up to running, 99th percentile of the last sample',
    value: (vm) => vm.wake_p99_ns ?? null, text: (vm) => duration(vm.wake_p99_ns), class: 'n c-wake',
    level: (vm, l) => above(vm.wake_p99_ns ?? null, l.wake_p99_ns),
  },
  { key: 'finding', label: 'Worst finding', about: 'The finding of the last minute that costs this VM most', value: (vm) => vm.finding, text: (vm) => (vm.finding ? words(vm.finding) : ''), class: 'c-finding' },
];

interface Row {
  root: HTMLElement;
  cells: HTMLElement[];
  parts: HTMLElement[];
  id: string;
  index: number;
}

/** `web ready>5`: the name or the finding contains `web`, and ready is above 5 %. */
export function matcher(filter: string, perVcpu: boolean): (vm: Vm) => boolean {
  const tests = filter.toLowerCase().split(/\s+/).filter(Boolean).map((word) => {
    const compared = /^(vcpus|run|ready|limited|costop|lag|wake)([<>])(\d+(?:\.\d+)?)$/.exec(word);
    if (!compared) return (vm: Vm) => vm.name.toLowerCase().includes(word) || words(vm.finding ?? '').includes(word);
    const column = COLUMNS.find((c) => c.key === compared[1])!;
    const unit = column.key === 'vcpus' ? 1 : column.key === 'wake' ? 1e6 : 0.01;
    const limit = Number(compared[3]) * unit;
    return (vm: Vm) => {
      const value = column.value(vm, perVcpu);
      return typeof value === 'number' && (compared[2] === '>' ? value > limit : value < limit);
    };
  });
  return (vm) => tests.every((test) => test(vm));
}

export class Table {
  readonly root: HTMLElement;
  private readonly scroller: HTMLElement;
  private readonly space: HTMLElement;
  private readonly heads: HTMLElement[];
  private readonly count: HTMLElement;
  private readonly filterBox: HTMLInputElement;
  private readonly empty: HTMLElement;
  private rows: Row[] = [];
  private shown: Vm[] = [];
  private sort = 'ready';
  private descending = true;
  private perVcpu = true;
  private selected: string | null = null;

  constructor(private readonly store: Store, private readonly open: (id: string) => void) {
    this.filterBox = h('input', {
      type: 'search', id: 'filter', placeholder: 'Filter: name, finding, ready>5', autocomplete: 'off', spellcheck: 'false',
      'aria-label': 'Filter VMs by name, finding, or a value such as ready>5', input: () => this.update(),
    });
    this.count = h('span', { class: 'count', role: 'status' });
    this.heads = COLUMNS.map((column) => h('div', { role: 'columnheader', class: column.class ?? '' },
      h('button', { type: 'button', title: column.about, click: () => this.sortBy(column.key) }, column.label)));
    this.space = h('div', { class: 'space', role: 'rowgroup' });
    this.empty = h('p', { class: 'empty' });
    this.scroller = h('div', {
      class: 'scroller', tabindex: 0, role: 'grid', 'aria-label': 'VMs', scroll: () => this.draw(true),
    }, h('div', { class: 'row head', role: 'row' }, ...this.heads), this.space);
    const unit = h('select', {
      'aria-label': 'How shares of a VM are added up',
      change: (event: Event) => {
        this.perVcpu = (event.target as HTMLSelectElement).value === 'each';
        this.update();
      },
    }, h('option', { value: 'each' }, 'Mean per vCPU'), h('option', { value: 'sum' }, 'Sum over vCPUs'));
    this.root = h('section', { class: 'vms' },
      h('div', { class: 'bar' }, h('h2', {}, 'VMs'), this.count, this.filterBox, unit), this.scroller, this.empty);
  }

  update(): void {
    const matches = matcher(this.filterBox.value, this.perVcpu);
    const column = COLUMNS.find((c) => c.key === this.sort)!;
    const keyed = this.store.vms.filter(matches).map((vm) => ({ vm, key: column.value(vm, this.perVcpu) }));
    const sign = this.descending ? -1 : 1;
    keyed.sort((a, b) => {
      // Values that were not measured stand last in both directions.
      if (a.key === null || b.key === null) return a.key === b.key ? byName(a.vm, b.vm) : a.key === null ? 1 : -1;
      if (a.key !== b.key) return a.key < b.key ? -sign : sign;
      return byName(a.vm, b.vm);
    });
    this.shown = keyed.map(({ vm }) => vm);
    const all = this.store.vms.length;
    setText(this.count, this.shown.length === all ? String(all) : `${this.shown.length} of ${all}`);
    const isFirst = this.store.sample?.host.window_ns === undefined;
    setText(this.empty, all === 0 ? (isFirst ? 'The first values come with the second sample.' : 'This host runs no VM that vsteer can see. VMs appear here when they start.') :
      this.shown.length === 0 ? 'No VM matches the filter. Press Esc to clear it.' : '');
    this.empty.hidden = this.shown.length > 0;
    this.scroller.hidden = this.shown.length === 0;
    setClass(this.scroller, 'no-costop', this.store.vms.every((vm) => vm.costop === null));
    this.space.style.height = `${this.shown.length * ROW_PX}px`;
    this.scroller.setAttribute('aria-rowcount', String(this.shown.length + 1));
    this.heads.forEach((head, i) => {
      const sorted = COLUMNS[i]!.key === this.sort ? (this.descending ? 'descending' : 'ascending') : 'none';
      if (head.getAttribute('aria-sort') !== sorted) head.setAttribute('aria-sort', sorted);
    });
    this.draw();
  }

  key(event: KeyboardEvent): boolean {
    if (event.target === this.filterBox) {
      if (event.key === 'Escape') {
        if (this.filterBox.value) this.filterBox.value = '';
        else this.scroller.focus();
        this.update();
        return true;
      }
      if (event.key === 'Enter' || event.key === 'ArrowDown') {
        this.scroller.focus();
        this.move(0);
        return true;
      }
      return false;
    }
    switch (event.key) {
      case '/': this.filterBox.focus(); this.filterBox.select(); return true;
      case 'ArrowDown': case 'j': this.move(1); return true;
      case 'ArrowUp': case 'k': this.move(-1); return true;
      case 'PageDown': this.move(10); return true;
      case 'PageUp': this.move(-10); return true;
      case 'Home': this.move(-Infinity); return true;
      case 'End': this.move(Infinity); return true;
      case 'ArrowLeft': this.sortBeside(-1); return true;
      case 'ArrowRight': this.sortBeside(1); return true;
      case 'r': this.descending = !this.descending; this.update(); return true;
      case 'Enter':
        if (this.selected === null || event.target instanceof HTMLButtonElement || event.target instanceof HTMLAnchorElement) return false;
        this.open(this.selected);
        return true;
      case 'Escape':
        if (!this.filterBox.value) return false;
        this.filterBox.value = '';
        this.update();
        return true;
      default: return false;
    }
  }

  focus(): void {
    this.scroller.focus({ preventScroll: true });
  }

  private sortBy(key: string): void {
    if (this.sort === key) this.descending = !this.descending;
    else [this.sort, this.descending] = [key, key !== 'name' && key !== 'finding'];
    this.update();
  }

  private sortBeside(step: number): void {
    const visible = COLUMNS.filter((_, i) => this.heads[i]!.offsetWidth > 0);
    const at = visible.findIndex((c) => c.key === this.sort);
    const next = visible[Math.min(Math.max(at + step, 0), visible.length - 1)];
    if (next && next.key !== this.sort) this.sortBy(next.key);
  }

  private move(by: number): void {
    if (this.shown.length === 0) return;
    const at = this.shown.findIndex((vm) => vm.id === this.selected);
    const next = at < 0 ? (by === Infinity ? this.shown.length - 1 : 0) : Math.min(Math.max(at + by, 0), this.shown.length - 1);
    this.selected = this.shown[next]!.id;
    const head = ROW_PX;
    const top = next * ROW_PX;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW_PX > scrollTop + clientHeight - head) this.scroller.scrollTop = top + ROW_PX + head - clientHeight;
    this.draw();
  }

  private row(): Row {
    const parts = ['run', 'ready', 'limited', 'costop'].map((state) => h('i', { class: `s-${state}` }));
    const cells = COLUMNS.map((column) => h('div', { role: 'gridcell', class: column.class ?? '' },
      ...(column.key === 'states' ? [h('span', { class: 'stack' }, ...parts)] : [])));
    const root = h('div', { class: 'row', role: 'row' }, ...cells);
    const row: Row = { root, cells, parts, id: '', index: -1 };
    root.addEventListener('click', () => {
      this.selected = row.id;
      this.open(row.id);
    });
    this.space.append(root);
    return row;
  }

  /** If only the place has changed, rows that show their VM already are left alone. */
  private draw(scrolled = false): void {
    const first = Math.max(Math.floor(this.scroller.scrollTop / ROW_PX) - SPARE, 0);
    const fit = Math.ceil((this.scroller.clientHeight || 600) / ROW_PX) + 2 * SPARE;
    const count = Math.min(fit, Math.max(this.shown.length - first, 0));
    while (this.rows.length < count) this.rows.push(this.row());
    const limits = this.store.sample?.limits;
    // A place in the list keeps its element while it is in sight, so that scrolling fills only the rows that come.
    const used = new Set<Row>();
    for (let index = first; index < first + count; index += 1) {
      const row = this.rows[index % this.rows.length]!;
      used.add(row);
      this.fill(row, this.shown[index]!, index, limits, scrolled);
    }
    for (const row of this.rows) {
      const hidden = !used.has(row);
      if (row.root.hidden !== hidden) row.root.hidden = hidden;
    }
    const active = this.rows.find((row) => !row.root.hidden && row.id === this.selected);
    if (active) this.scroller.setAttribute('aria-activedescendant', active.root.id);
    else this.scroller.removeAttribute('aria-activedescendant');
  }

  private fill(row: Row, vm: Vm, index: number, limits: Limits | undefined, scrolled: boolean): void {
    if (scrolled && row.id === vm.id && row.index === index) return;
    if (row.index !== index) {
      row.index = index;
      row.root.style.transform = `translateY(${index * ROW_PX}px)`;
      row.root.setAttribute('aria-rowindex', String(index + 2));
    }
    if (row.id !== vm.id) {
      row.id = vm.id;
      row.root.id = `vm-${vm.id}`;
    }
    setClass(row.root, 'selected', vm.id === this.selected);
    COLUMNS.forEach((column, i) => {
      const cell = row.cells[i]!;
      if (column.key === 'states') return;
      setText(cell, column.text(vm, this.perVcpu));
      if (column.class === 'c-name') cell.title = vm.name;
      const level = (limits && column.level?.(vm, limits)) ?? 0;
      setClass(cell, 'warn', level === 1);
      setClass(cell, 'bad', level === 2);
    });
    const all = Math.max(vm.vcpus, (vm.run ?? 0) + (vm.ready ?? 0) + (vm.limited ?? 0) + (vm.costop ?? 0), 0.01);
    [vm.run, vm.ready, vm.limited, vm.costop].forEach((value, i) => {
      const width = `${((100 * (value ?? 0)) / all).toFixed(1)}%`;
      if (row.parts[i]!.style.width !== width) row.parts[i]!.style.width = width;
    });
  }
}

const byName = (a: Vm, b: Vm) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
