// Back in time: the states of all VMs or of one over hours and days, each VM at a chosen moment, and what changed.
//
// The chart of all VMs comes from the rows of the host, because a day of 1,000 VMs has too many rows. The table asks for the
// chosen moment only.

import { changes, NO_HISTORY, readChanges } from '../changes';
import { vmLink } from '../cards';
import { Chart, statesOf } from '../chart';
import { h, setText } from '../dom';
import { duration, type Maybe, moment, NONE, pcpus, percent, plural } from '../format';
import { type Answer, get } from '../service';
import type { Store, View } from '../store';
import type { HistoryAnswer, HistoryRow } from '../types';

const HOUR_S = 3_600;
const RANGES: [string, number][] = [['Last hour', HOUR_S], ['6 hours', 6 * HOUR_S], ['24 hours', 24 * HOUR_S], ['7 days', 168 * HOUR_S]];
const ROWS = 100;
/** The slider moves faster than the service should be asked. */
const SETTLE_MS = 150;

type State = 'run' | 'ready' | 'limited' | 'costop';

/** A share of the observed time. */
export function share(row: HistoryRow, key: State): Maybe {
  const of = (us: Maybe) => (us == null || row.covered_us === 0 ? null : us / row.covered_us);
  if (key !== 'ready' || row.ready_us != null) return of(row[`${key}_us`]);
  // Where only the sum of ready and limited was measured, ready is the rest.
  return of(row.wait_us == null ? null : Math.max(row.wait_us - (row.limited_us ?? 0), 0));
}

/** What cost the VM most. */
function culprit(row: HistoryRow): string {
  const worst = row.costs?.[0];
  return worst ? `${worst.culprit} ${percent(worst.us / row.covered_us)}` : NONE;
}

const local = (unixS: number) => {
  const day = new Date(1e3 * (unixS - 60 * new Date(1e3 * unixS).getTimezoneOffset()));
  return day.toISOString().slice(0, 16);
};

function momentTable(store: Store, rows: HistoryRow[]): HTMLElement[] {
  const sorted = [...rows].sort((a, b) => (share(b, 'ready') ?? 0) - (share(a, 'ready') ?? 0));
  const co = sorted.some((row) => share(row, 'costop') != null);
  const head = ['VM', 'Run', 'Ready', 'Limited', ...(co ? ['Co-stop'] : []), 'Wake p99', 'Waits most for'];
  const line = (row: HistoryRow) => {
    const id = row.vm ?? '';
    const cells = [percent(share(row, 'run')), percent(share(row, 'ready')), percent(share(row, 'limited')), ...(co ? [percent(share(row, 'costop'))] : []), duration(row.wake_p99_us == null ? null : 1e3 * row.wake_p99_us)];
    return h('tr', {}, h('th', { scope: 'row' }, store.vm(id) ? vmLink(store, id) : row.name ?? id),
      ...cells.map((text) => h('td', { class: 'n' }, text)), h('td', {}, culprit(row)));
  };
  return [
    h('div', { class: 'wide' }, h('table', {},
      h('thead', {}, h('tr', {}, ...head.map((name, i) => h('th', { scope: 'col', class: i > 0 && i < head.length - 1 ? 'n' : '' }, name)))),
      h('tbody', {}, ...sorted.slice(0, ROWS).map(line)))),
    h('p', { class: 'note' }, `Sums over vCPUs, 100 % is one pCPU.${sorted.length > ROWS ? ` The ${ROWS} of ${plural(sorted.length, 'VM')} that waited most.` : ''}`),
  ];
}

class HistoryView implements View {
  readonly title = 'History';
  readonly root: HTMLElement;
  private from = 0;
  private to = 0;
  private stepS = 60;
  private times: number[] = [];
  private known = '';
  private closed = false;
  private settling: ReturnType<typeof setTimeout> | undefined;
  private readonly states: ReturnType<typeof statesOf>;
  private readonly chart: Chart;
  private readonly vm = h('select', { 'aria-label': 'VM', change: () => void this.read() }, h('option', { value: '' }, 'All VMs'));
  private readonly begin = h('input', { type: 'datetime-local', 'aria-label': 'From', change: () => this.choose() });
  private readonly end = h('input', { type: 'datetime-local', 'aria-label': 'To', change: () => this.choose() });
  private readonly slider = h('input', { type: 'range', min: 0, max: 0, value: 0, 'aria-label': 'Moment', input: () => this.showMoment() });
  private readonly at = h('output', {});
  private readonly table = h('div', {});
  private readonly changed = h('div', {});
  private readonly notice = h('p', { class: 'notice', role: 'status' }, 'Reading…');
  private readonly past: HTMLElement;

  constructor(private readonly store: Store) {
    this.states = statesOf(store.vms);
    this.chart = new Chart({
      series: this.states.map((s) => ({ label: s.label, colour: s.colour, format: (v) => (v == null ? pcpus(v) : `${pcpus(v)} pCPUs`) })),
      height: 240, label: 'States over the chosen time, in pCPUs', axis: (v) => v.toFixed(v < 10 ? 1 : 0),
      onPick: (unixS) => {
        this.slider.value = String(this.nearest(unixS));
        this.showMoment();
      },
    });
    this.past = h('div', { class: 'past' },
      h('section', {}, h('h2', {}, 'States', h('small', {}, ' in pCPUs; click to choose a moment')), this.chart.root, h('label', { class: 'moment' }, 'Moment ', this.slider, this.at)),
      h('section', {}, h('h2', {}, 'VMs at this moment'), this.table),
      h('section', {}, h('h2', {}, 'What changed'), this.changed));
    this.past.hidden = true;
    this.root = h('div', { class: 'view' }, h('h1', { tabindex: -1 }, 'Back in time'),
      h('div', { class: 'bar' }, ...RANGES.map(([name, seconds]) => h('button', { type: 'button', click: () => this.range(seconds) }, name)),
        h('span', { class: 'times' }, this.begin, ' to ', this.end), this.vm), this.notice, this.past);
  }

  update(): void {
    if (!this.store.sample) return;
    const names = this.store.vms.map((v) => v.name).sort();
    if (this.known !== names.join('\n')) {
      this.known = names.join('\n');
      const chosen = this.vm.value;
      this.vm.replaceChildren(h('option', { value: '' }, 'All VMs'), ...names.map((name) => h('option', { value: name }, name)));
      this.vm.value = chosen;
    }
    if (this.to === 0) this.range(HOUR_S);
  }

  recolour(): void {
    this.chart.recolour();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.settling);
    this.chart.close();
  }

  private range(seconds: number): void {
    this.to = Math.ceil(this.store.timeS || Date.now() / 1e3);
    this.from = this.to - seconds;
    this.begin.value = local(this.from);
    this.end.value = local(this.to);
    void this.read();
  }

  private choose(): void {
    const [from, to] = [new Date(this.begin.value).getTime() / 1e3, new Date(this.end.value).getTime() / 1e3];
    if (!(from < to)) return;
    [this.from, this.to] = [from, to];
    void this.read();
  }

  private nearest(unixS: number): number {
    return this.times.reduce((best, time, i) => (Math.abs(time - unixS) < Math.abs(this.times[best]! - unixS) ? i : best), 0);
  }

  private async read(): Promise<void> {
    const span = `from=${this.from}&to=${this.to}&step=auto`;
    const one = this.vm.value;
    setText(this.notice, 'Reading…');
    this.notice.hidden = false;
    let answer: Answer<HistoryAnswer> = one ? await get(`api/v1/history/vms?${span}&vm=${encodeURIComponent(one)}`) : await get(`api/v1/history/host?${span}`);
    if (!one && !answer.ok && answer.absent) answer = await get(`api/v1/history/vms?${span}`);
    if (this.closed) return;
    const rows = answer.ok ? answer.data.rows : [];
    this.past.hidden = rows.length === 0;
    this.notice.hidden = rows.length > 0;
    setText(this.notice, !answer.ok ? (answer.absent ? NO_HISTORY : answer.why) : 'The history has nothing of this time.');
    if (!answer.ok || rows.length === 0) return;
    this.stepS = answer.data.step === 'hour' ? HOUR_S : 60;
    this.draw(rows);
    const told = await readChanges(one || null, 1e3 * this.from, 1e3 * this.to);
    if (!this.closed) this.changed.replaceChildren(changes(told, 'Nothing changed in this time.'));
  }

  /** Rows of the same time are added up. */
  private draw(rows: HistoryRow[]): void {
    const timeOf = (row: HistoryRow) => row.unix_ms / 1e3;
    this.times = [...new Set(rows.map(timeOf))].sort((a, b) => a - b);
    const index = new Map(this.times.map((time, i) => [time, i]));
    const columns = this.states.map(({ key }) => {
      const column: (number | null)[] = this.times.map(() => null);
      for (const row of rows) {
        const value = share(row, key);
        const i = index.get(timeOf(row))!;
        if (value != null) column[i] = (column[i] ?? 0) + value;
      }
      return column;
    });
    this.chart.set(this.times, columns);
    this.slider.max = String(this.times.length - 1);
    this.slider.value = this.slider.max;
    this.showMoment();
  }

  private showMoment(): void {
    const time = this.times[Number(this.slider.value)];
    if (time === undefined) return;
    setText(this.at, moment(1e3 * time));
    clearTimeout(this.settling);
    this.settling = setTimeout(() => void this.readMoment(time), SETTLE_MS);
  }

  private async readMoment(time: number): Promise<void> {
    const step = this.stepS === HOUR_S ? 'hour' : 'minute';
    const answer = await get<HistoryAnswer>(`api/v1/history/vms?from=${time}&to=${time + this.stepS}&step=${step}`);
    // The reader may have moved on.
    if (this.closed || time !== this.times[Number(this.slider.value)]) return;
    if (!answer.ok) this.table.replaceChildren(h('p', { class: 'empty' }, answer.why));
    else this.table.replaceChildren(...momentTable(this.store, answer.data.rows.filter((row) => row.unix_ms === 1e3 * time)));
  }
}

export function historyView(store: Store): View {
  return new HistoryView(store);
}
