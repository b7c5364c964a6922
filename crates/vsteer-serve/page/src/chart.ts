// Charts over time, drawn by uPlot: stacked states, and lines. Colours come from the style sheet, so a chart is made again when
// the colours change.

import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { h } from './dom';
import type { Maybe } from './format';

export interface Series {
  label: string;
  /** A variable of the style sheet, such as `--run`. */
  colour: string;
  format: (value: Maybe) => string;
  /** Draw a line over the stack, which is not a part of it. */
  line?: boolean;
  dash?: number[];
}

export interface Options {
  series: Series[];
  height: number;
  label: string;
  axis: (value: number) => string;
  logarithmic?: boolean;
  onPick?: (unixS: number) => void;
}

type Column = (number | null)[];

export class Chart {
  readonly root: HTMLElement;
  private plot: uPlot | null = null;
  private times: number[] = [];
  private columns: Column[] = [];
  private readonly watcher: ResizeObserver;
  private readonly options: Options;

  constructor(options: Options) {
    this.options = options;
    this.root = h('div', { class: 'chart', role: 'img', 'aria-label': options.label });
    this.watcher = new ResizeObserver(() => this.fit());
    this.watcher.observe(this.root);
  }

  /** Times in seconds since 1970, and a column for each series. */
  set(times: number[], columns: Column[]): void {
    this.times = times;
    this.columns = columns;
    if (this.plot) this.plot.setData(this.data());
    else this.make();
  }

  recolour(): void {
    this.make();
  }

  close(): void {
    this.watcher.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }

  /** Each stacked column is the sum of itself and those before it. uPlot draws the last first, so that all stay visible. */
  private data(): uPlot.AlignedData {
    const sums: Column[] = [];
    let below: Column | null = null;
    this.options.series.forEach((series, i) => {
      const own = this.columns[i] ?? [];
      if (series.line) {
        sums.push(own);
        return;
      }
      const base: Column | null = below;
      below = own.map((value, k) => (value === null && base?.[k] == null ? null : (value ?? 0) + (base?.[k] ?? 0)));
      sums.push(below);
    });
    return [this.times, ...this.order().map((i) => sums[i]!)] as uPlot.AlignedData;
  }

  /** Stacked series from the top of the stack down, then lines. */
  private order(): number[] {
    const all = this.options.series.map((_, i) => i);
    const is = (i: number) => this.options.series[i]!.line === true;
    return [...all.filter((i) => !is(i)).reverse(), ...all.filter(is)];
  }

  /** Length of the time that is shown, s. */
  private span(): number {
    return (this.times.at(-1) ?? 0) - (this.times[0] ?? 0);
  }

  private fit(): void {
    const width = Math.floor(this.root.clientWidth);
    if (width <= 0) return;
    if (!this.plot) this.make();
    else if (this.plot.width !== width) this.plot.setSize({ width, height: this.options.height });
  }

  private make(): void {
    const width = Math.floor(this.root.clientWidth);
    if (width <= 0 || this.times.length === 0) return;
    this.plot?.destroy();
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const font = '12px system-ui, sans-serif';
    const axis = { stroke: colour('--soft'), font, grid: { stroke: colour('--faint'), width: 1 }, ticks: { show: false } };
    const value = (i: number) => (_: uPlot, __: number, ___: number, at: number | null) =>
      this.options.series[i]!.format(at === null ? (this.columns[i]?.at(-1) ?? null) : (this.columns[i]?.[at] ?? null));
    const { onPick, series } = this.options;
    this.plot = new uPlot({
      width,
      height: this.options.height,
      padding: [8, 26, 0, 0],
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { y: this.options.logarithmic ? { distr: 3 } : { range: (_, __, most) => [0, most > 0 ? most * 1.05 : 1] } },
      axes: [
        { ...axis, size: 30, values: (_, ticks) => ticks.map((t) => tick(t, this.span())), space: 82 },
        {
          ...axis,
          size: 62,
          values: (_, ticks) => ticks.map((t) => (t === null ? '' : this.options.axis(t))),
          ...(this.options.logarithmic ? { filter: powers, grid: { ...axis.grid, filter: powers } } : {}),
        },
      ],
      series: [
        { label: 'Time', value: (_, at) => tick(at ?? this.times.at(-1)!, this.span()) },
        ...this.order().map((i): uPlot.Series => {
          const { label, colour: name, line, dash } = series[i]!;
          const ink = colour(name);
          const common = { label, value: value(i) as uPlot.Series.Value, spanGaps: false };
          return line
            ? { ...common, stroke: ink, width: 1.75, dash, points: { show: this.options.logarithmic === true, size: 3, width: 0, fill: ink } }
            : { ...common, stroke: ink, fill: ink, width: 0, points: { show: false } };
        }),
      ],
      hooks: onPick
        ? { ready: [(plot) => plot.over.addEventListener('click', () => onPick(plot.posToVal(plot.cursor.left ?? 0, 'x')))] }
        : {},
    }, this.data(), this.root);
  }
}

/** A time as exact as a chart over this many seconds needs it. */
function tick(unixS: number, spanS: number): string {
  const day = new Date(unixS * 1e3);
  const two = (n: number) => String(n).padStart(2, '0');
  const minute = `${two(day.getHours())}:${two(day.getMinutes())}`;
  if (spanS > 86_400) return `${two(day.getMonth() + 1)}-${two(day.getDate())} ${minute}`;
  return spanS > 3_000 ? minute : `${minute}:${two(day.getSeconds())}`;
}

const powers: uPlot.Axis.Filter = (_, ticks) => ticks.map((t) => (isPower(t) ? t : null)) as number[];

function isPower(value: number | null): boolean {
  return value !== null && Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
}

/** The states of a vCPU in the order of the stack. */
export const STATES = [
  { key: 'run', label: 'Running', colour: '--run' },
  { key: 'ready', label: 'Ready', colour: '--ready' },
  { key: 'limited', label: 'Limited', colour: '--limited' },
  { key: 'costop', label: 'Co-stopped', colour: '--costop' },
] as const;

/** Co-stop exists only on ESXi and in the simulator. */
export function statesOf(vms: { costop: unknown }[]): (typeof STATES)[number][] {
  const is = vms.some((vm) => vm.costop !== null && vm.costop !== undefined);
  return STATES.filter((state) => is || state.key !== 'costop');
}
