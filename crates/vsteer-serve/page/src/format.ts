// Writes numbers with their units, which a line break never separates. A value that was not measured is a dash, never 0.

export type Maybe = number | null | undefined;
export const NONE = '–';

const known = (value: Maybe): value is number => typeof value === 'number' && Number.isFinite(value);

/** A fraction as percent. */
export function percent(value: Maybe, digits = 1): string {
  if (!known(value)) return NONE;
  return `${(100 * value).toFixed(Math.abs(value) >= 0.9995 ? 0 : digits)}\u00a0%`;
}

/** A sum of shares, in pCPUs. */
export function pcpus(value: Maybe): string {
  return known(value) ? value.toFixed(value >= 10 ? 1 : 2) : NONE;
}

/** A time, with the unit that gives it one to three digits before the point. */
export function duration(ns: Maybe): string {
  if (!known(ns)) return NONE;
  if (ns < 1e3) return `${Math.round(ns)}\u00a0ns`;
  if (ns < 1e6) return `${short(ns / 1e3)}\u00a0µs`;
  if (ns < 1e9) return `${short(ns / 1e6)}\u00a0ms`;
  if (ns < 120e9) return `${short(ns / 1e9)}\u00a0s`;
  return `${short(ns / 60e9)}\u00a0min`;
}

function short(value: number): string {
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
}

export function bytes(value: Maybe): string {
  if (!known(value)) return NONE;
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1)} ${units[at]}`;
}

export function clock(unixMs: number): string {
  return new Date(unixMs).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
}

export function moment(unixMs: number): string {
  const day = new Date(unixMs);
  const two = (n: number) => String(n).padStart(2, '0');
  return `${day.getFullYear()}-${two(day.getMonth() + 1)}-${two(day.getDate())} ${clock(unixMs)}`;
}

export function plural(n: number, word: string): string {
  return `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;
}

/** The pCPUs of a list such as `0-3,8`. */
export function cpus(list: string | null | undefined): number[] {
  const all: number[] = [];
  for (const part of (list ?? '').split(',').filter(Boolean)) {
    const [from, to] = part.split('-').map(Number);
    if (from === undefined || !Number.isFinite(from)) continue;
    for (let cpu = from; cpu <= (to ?? from); cpu += 1) all.push(cpu);
  }
  return all;
}

/** A list such as `0-3,8` of pCPUs in ascending order. */
export function cpuList(all: number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < all.length; i += 1) {
    const from = all[i]!;
    while (i + 1 < all.length && all[i + 1] === all[i]! + 1) i += 1;
    parts.push(all[i] === from ? String(from) : `${from}-${all[i]}`);
  }
  return parts.join(',');
}

/** The name of a rule as words: `pcpus_overloaded` is `pcpus overloaded`. */
export function words(name: string): string {
  return name.replaceAll('_', ' ');
}
