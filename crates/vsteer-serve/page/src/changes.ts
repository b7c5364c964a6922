// Changes and events of the past: /api/v1/timeline, if the service keeps a history.

import { h } from './dom';
import { moment, words } from './format';
import { type Answer, get } from './service';
import type { Change } from './types';

export const NO_HISTORY = 'This service keeps no history. Start it with a folder for the history to see the past here.';

export async function readChanges(vm: string | null, fromMs: number, toMs: number): Promise<Answer<Change[]>> {
  const of = vm === null ? '' : `&vm=${encodeURIComponent(vm)}`;
  const answer = await get<{ events: Change[] }>(`api/v1/timeline?from=${Math.floor(fromMs / 1e3)}&to=${Math.ceil(toMs / 1e3)}${of}`);
  return answer.ok ? { ok: true, data: answer.data.events.sort((a, b) => b.unix_ms - a.unix_ms) } : answer;
}

export function changes(answer: Answer<Change[]>, none: string): HTMLElement {
  if (!answer.ok) return h('p', { class: 'empty' }, answer.absent ? NO_HISTORY : answer.why);
  if (answer.data.length === 0) return h('p', { class: 'empty' }, none);
  return h('ol', { class: 'changes' }, ...answer.data.slice(0, 200).map((c) => h('li', {},
    h('time', {}, moment(c.unix_ms)), h('span', {}, h('b', {}, words(c.kind)), ` ${c.text}`))));
}
