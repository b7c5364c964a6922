// Which threads ran while each VM was ready? A heat map: a row for each VM that waited, a column for what ran meanwhile.

import { vmLink } from '../cards';
import { h, setText } from '../dom';
import { pcpus, percent } from '../format';
import { get } from '../service';
import type { Store, View } from '../store';
import type { Blamed } from '../types';

const VICTIMS = 50;
const CULPRITS = 20;
/** Culprits other than VMs have a column of their own above this part of all. */
const LEAST = 0.01;
const READ_EVERY_MS = 10_000;

interface Answer {
  blame: Blamed[] | null;
  window_ns: number | null;
  missing: string | null;
}

function sums(rows: Blamed[], key: (b: Blamed) => string): [string, number][] {
  const all = new Map<string, number>();
  for (const b of rows) all.set(key(b), (all.get(key(b)) ?? 0) + b.share);
  return [...all].sort((a, b) => b[1] - a[1]);
}

/** Percent of one pCPU, without the unit, which the caption has. */
const cell = (share: number) => (share < 0.0005 ? '' : (100 * share).toFixed(share < 0.0995 ? 1 : 0));

export function blameView(store: Store): View {
  const content = h('div', {}, h('p', { class: 'empty' }, 'Reading…'));
  const detail = h('p', { class: 'note', role: 'status' });
  let readAt = 0;
  let closed = false;

  const tell = (b: { victim: string; culprit: string; share: number }) => setText(detail,
    `${b.victim} was ready for ${pcpus(b.share)} pCPUs (${percent(b.share)} of one) while ${b.culprit} ran.`);

  const draw = (rows: Blamed[]) => {
    const victims = sums(rows, (b) => b.victim);
    const culprits = sums(rows, (b) => b.key);
    const names = new Map(rows.flatMap((b) => [[b.victim, b.victim_name], [b.key, b.name]] as [string, string][]));
    const kinds = new Map(rows.map((b) => [b.key, b.kind]));
    const all = culprits.reduce((sum, [, share]) => sum + share, 0);
    // Many short processes would push the VMs out of sight.
    const shown = culprits.filter(([key, share]) => kinds.get(key) === 'vm' || share > LEAST * all).slice(0, CULPRITS).map(([key]) => key);
    const others = culprits.length - shown.length;
    const share = new Map<string, number>();
    for (const b of rows) {
      const key = `${b.victim}\n${shown.includes(b.key) ? b.key : ''}`;
      share.set(key, (share.get(key) ?? 0) + b.share);
    }
    const most = Math.max(...share.values(), 1e-9);
    const heat = (victim: string, key: string, name: string) => {
      const value = share.get(`${victim}\n${key}`) ?? 0;
      const td = h('td', {
        class: `n heat${key === victim ? ' own' : ''}`,
        title: value > 0 ? `${names.get(victim)} waited while ${name} ran: ${pcpus(value)} pCPUs` : null,
        mouseenter: () => value > 0 && tell({ victim: names.get(victim) ?? victim, culprit: key === victim ? 'another thread of the same VM' : name, share: value }),
      }, cell(value));
      // Square root, so that small shares stay visible.
      td.style.setProperty('--heat', (value >= 0.0005 ? 0.08 + 0.92 * Math.sqrt(value / most) : 0).toFixed(3));
      return td;
    };
    const label = (key: string) => (kinds.get(key) === 'vm' ? vmLink(store, key) : names.get(key) ?? key);
    content.replaceChildren(
      h('p', { class: 'note' }, 'In % of one pCPU. Rows wait, columns run. Dashed: other threads of the same VM.',
        victims.length > VICTIMS ? ` The ${VICTIMS} VMs of ${victims.length} that wait most.` : ''),
      h('div', { class: 'wide', role: 'region', tabindex: 0, 'aria-label': 'Blame matrix' }, h('table', { class: 'blame' },
        h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'VM that waits'), h('th', { scope: 'col', class: 'n' }, 'All'),
          others > 0 ? h('th', { scope: 'col' }, `${others} others`) : null,
          ...shown.map((key) => h('th', { scope: 'col', }, h('span', { title: names.get(key) ?? key }, label(key)), h('small', {}, kinds.get(key) === 'vm' ? 'VM' : kinds.get(key) === 'process' ? 'process' : kinds.get(key) === 'kernel' ? 'kernel' : ''))))),
        h('tbody', {}, ...victims.slice(0, VICTIMS).map(([victim, sum]) => h('tr', {},
          h('th', { scope: 'row' }, vmLink(store, victim)), h('td', { class: 'n sum' }, cell(sum)), others > 0 ? heat(victim, '', 'others') : null,
          ...shown.map((key) => heat(victim, key, names.get(key) ?? key))))))),
      detail);
  };

  const read = async () => {
    readAt = Date.now();
    const answer = await get<Answer>('api/v1/blame');
    if (closed) return;
    const none = (text: string) => content.replaceChildren(h('p', { class: 'empty' }, text));
    if (!answer.ok) none(answer.why);
    else if (answer.data.missing) none(`Blame is not measured: ${answer.data.missing}.`);
    else if (!answer.data.blame) none('The first values come 15 seconds after the start of the service.');
    else if (answer.data.blame.length === 0) none('No VM waited in the last minute.');
    else draw(answer.data.blame);
  };

  return {
    title: 'Blame',
    root: h('div', { class: 'view' }, h('h1', { tabindex: -1 }, 'Who runs while a VM waits'),
      h('p', { class: 'lead' }, 'Blame counts the time in which a VM was ready, and shows which threads had its pCPUs then, in the last minute. It does not say that these threads did something wrong.'),
      content),
    update() {
      if (store.sample && Date.now() - readAt > READ_EVERY_MS) void read();
    },
    close() {
      closed = true;
    },
  };
}
