// Draws a distribution of times as bars over a logarithmic axis, with its quantiles.

import { h, svg } from './dom';
import { duration } from './format';
import type { Times } from './types';

const WIDTH = 640;
const HEIGHT = 190;
const LEFT = 8;
const BOTTOM = 26;
const TOP = 22;

/** The time below which the fraction lies, interpolated inside its bucket. */
export function quantile(times: Times, fraction: number): number | null {
  const total = times.buckets.reduce((sum, [, , count]) => sum + count, 0);
  let below = 0;
  for (const [from, to, count] of times.buckets) {
    if (below + count >= fraction * total && count > 0) {
      return from + ((to - from) * (fraction * total - below)) / count;
    }
    below += count;
  }
  return null;
}

/** Buckets are eighths of an octave: two together are wide enough to see. */
function merged(times: Times): [number, number, number][] {
  const all = new Map<number, [number, number, number]>();
  for (const [from, to, count] of times.buckets) {
    const key = from === 0 ? -1 : Math.floor(Math.log2(from) * 4 + 1e-9);
    const lower = key < 0 ? 0 : 2 ** (key / 4);
    const seen = all.get(key);
    if (seen) seen[2] += count;
    else all.set(key, [lower, key < 0 ? to : 2 ** ((key + 1) / 4), count]);
  }
  return [...all.values()];
}

export function histogram(times: Times, threshold: number): HTMLElement {
  const bars = merged(times);
  const total = bars.reduce((sum, [, , count]) => sum + count, 0);
  if (total === 0) return h('p', { class: 'empty' }, 'No vCPU woke up in this time.');
  const from = Math.log10(1e3);
  const to = Math.max(8, ...bars.map(([, upper]) => Math.log10(upper)));
  const x = (ns: number) => LEFT + ((Math.max(Math.log10(Math.max(ns, 1)), from) - from) / (to - from)) * (WIDTH - 2 * LEFT);
  const most = Math.max(...bars.map(([, , count]) => count));
  const y = (count: number) => TOP + (1 - count / most) * (HEIGHT - TOP - BOTTOM);
  const floor = HEIGHT - BOTTOM;
  const p50 = quantile(times, 0.5);
  const p99 = quantile(times, 0.99);
  const late = bars.reduce((sum, [lower, , count]) => sum + (lower >= threshold ? count : 0), 0);
  const text = `${total.toLocaleString('en')} wake-ups: half within ${duration(p50)}, 99 % within ${duration(p99)}`;
  const root = svg('svg', { class: 'histogram', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': text });
  for (let power = 3; power <= to; power += 1) {
    const at = x(10 ** power);
    root.append(
      svg('line', { class: 'grid', x1: at, x2: at, y1: TOP, y2: floor }),
      svg('text', { x: at, y: HEIGHT - 8, 'text-anchor': power === 3 ? 'start' : at > WIDTH - 30 ? 'end' : 'middle' }, duration(10 ** power).replace('.00', '').replace('.0', '')),
    );
  }
  for (const [lower, upper, count] of bars) {
    const left = x(lower);
    const top = Math.min(y(count), floor - 1.5);
    root.append(
      svg('rect', {
        class: lower >= threshold ? 'bar late' : 'bar', x: left, y: top, width: Math.max(x(upper) - left - 0.8, 1), height: floor - top,
      }, svg('title', {}, `${duration(lower)} to ${duration(upper)}: ${count.toLocaleString('en')}`)),
    );
  }
  const marks: [number | null, string, number][] = [[p50, 'p50', 9], [p99, 'p99', 9]];
  for (const [value, name, height] of marks) {
    if (value === null) continue;
    const at = x(value);
    root.append(
      svg('line', { class: 'mark', x1: at, x2: at, y1: 12, y2: floor }),
      svg('text', { class: 'strong', x: Math.min(Math.max(at, 12), WIDTH - 12), y: height, 'text-anchor': 'middle' }, name),
    );
  }
  return h('div', {},
    h('p', { class: 'note' }, text, late > 0 ? `; ${late.toLocaleString('en')} took ${duration(threshold)} or longer.` : '.'),
    root);
}
