// Changes and events of the past: /api/v1/timeline, if the service keeps a history.

import { h } from './dom';
import { moment, words } from './format';
import { type Answer, get } from './service';
import type { Change } from './types';

export const NO_HISTORY = 'This service keeps no history. Start it with a folder for the history to see the past here.';

/** The rows of an answer: a list, or its field `rows` or `events`, or the first field that is a list of objects. */
export function rowsOf(answer: unknown): Record<string, unknown>[] {
  if (Array.isArray(answer)) return answer as Record<string, unknown>[];
  const fields = (answer ?? {}) as Record<string, unknown>;
  const lists = [fields['rows'], fields['events'], ...Object.values(fields)].filter(Array.isArray);
  return (lists.find((list) => list.every((row) => typeof row === 'object')) ?? []) as Record<string, unknown>[];
}

const text = (value: unknown): string => (value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value));

/** A time in any of the units that answers use. */
export function timeMs(row: Record<string, unknown>): number | null {
  const units: [string, number][] = [['time_unix_s', 1e3], ['unix_s', 1e3], ['at_unix_s', 1e3], ['time_unix_ms', 1], ['unix_ms', 1], ['unix_ns', 1e-6], ['time_unix_ns', 1e-6], ['at_unix_ns', 1e-6], ['from_unix_ns', 1e-6]];
  for (const [name, factor] of units) {
    const value = Number(row[name] ?? NaN);
    if (Number.isFinite(value)) return value * factor;
  }
  return null;
}

function change(row: Record<string, unknown>): Change {
  const kind = text(row['kind'] ?? row['event'] ?? row['type']);
  const told = row['text'] ?? row['title'] ?? row['what'] ?? row['summary'] ?? row['detail'];
  const rest = Object.entries(row).filter(([key, value]) => value !== null && !/unix|time|kind|vm|name|event|type/.test(key)).map(([key, value]) => `${words(key)} ${text(value)}`);
  return { at_ms: timeMs(row), vm: text(row['name'] ?? row['vm_name'] ?? row['vm']), kind, text: told === undefined ? rest.join(', ') : text(told) };
}

export async function readChanges(vm: string | null, fromMs: number, toMs: number): Promise<Answer<Change[]>> {
  const of = vm === null ? '' : `&vm=${encodeURIComponent(vm)}`;
  const answer = await get<unknown>(`api/v1/timeline?from=${Math.floor(fromMs / 1e3)}&to=${Math.ceil(toMs / 1e3)}${of}`);
  return answer.ok ? { ok: true, data: rowsOf(answer.data).map(change).sort((a, b) => (b.at_ms ?? 0) - (a.at_ms ?? 0)) } : answer;
}

export function changes(answer: Answer<Change[]>, none: string): HTMLElement {
  if (!answer.ok) return h('p', { class: 'empty' }, answer.absent ? NO_HISTORY : answer.why);
  if (answer.data.length === 0) return h('p', { class: 'empty' }, none);
  return h('ol', { class: 'changes' }, ...answer.data.slice(0, 200).map((c) => h('li', {},
    h('time', {}, c.at_ms === null ? '' : moment(c.at_ms)), h('span', {}, c.kind ? h('b', {}, words(c.kind)) : null, c.text ? ` ${c.text}` : c.vm ? ` ${c.vm}` : ''))));
}
