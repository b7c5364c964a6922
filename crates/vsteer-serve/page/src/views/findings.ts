// What was found in the last minute, and what vsteer would do: a plan with its forecast, and the command that makes the change.

import { findingCard } from '../cards';
import { h, setText } from '../dom';
import { duration, percent, words } from '../format';
import { rowsOf } from '../changes';
import { get } from '../service';
import type { Store, View } from '../store';

interface PlanAnswer {
  plan?: unknown;
  text?: string | null;
  command?: string | string[] | null;
  forecast?: unknown;
  rows?: unknown;
}

const PLAN_EVERY_MS = 30_000;

function cellText(key: string, value: unknown): string {
  if (value === null || value === undefined) return '–';
  if (typeof value !== 'number') return typeof value === 'object' ? JSON.stringify(value) : String(value);
  if (key.endsWith('_ns')) return duration(value);
  if (/share|run|ready|limited|costop|wait/.test(key) && Math.abs(value) <= 64) return percent(value);
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}

/** Rows of any shape: a column for each field that any row has. */
export function anyTable(rows: Record<string, unknown>[]): HTMLElement {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const isNumber = (key: string) => rows.some((row) => typeof row[key] === 'number');
  return h('div', { class: 'wide' }, h('table', {},
    h('thead', {}, h('tr', {}, ...keys.map((key) => h('th', { scope: 'col', class: isNumber(key) ? 'n' : '' }, words(key.replace(/_ns$/, '')))))),
    h('tbody', {}, ...rows.slice(0, 500).map((row) => h('tr', {}, ...keys.map((key) => h('td', { class: isNumber(key) ? 'n' : '' }, cellText(key, row[key]))))))));
}

function command(text: string): HTMLElement {
  const told = h('span', { class: 'note', role: 'status' });
  const copy = h('button', {
    type: 'button',
    click: async () => {
      try {
        await navigator.clipboard.writeText(text);
        setText(told, 'Copied.');
      } catch {
        setText(told, 'The browser does not allow it here: select the text and copy it.');
      }
    },
  }, 'Copy');
  return h('div', { class: 'command' }, h('pre', { tabindex: 0 }, h('code', {}, text)), copy, told);
}

export function findingsView(store: Store): View {
  const list = h('div', {});
  const plan = h('div', {}, h('p', { class: 'empty' }, 'Reading…'));
  let shown: unknown = null;
  let planAt = 0;
  let closed = false;

  const showPlan = (answer: PlanAnswer) => {
    const text = answer.text?.trim();
    const commands = [answer.command ?? []].flat().filter(Boolean).join('\n');
    const forecast = rowsOf(answer.forecast ?? answer.rows ?? []);
    if (!answer.plan && !text) {
      plan.replaceChildren(h('p', { class: 'empty' }, 'vsteer has no plan: it knows no change that would help now.'));
      return;
    }
    plan.replaceChildren(
      ...(text ? [h('pre', { class: 'text', tabindex: 0 }, text)] : []),
      ...(forecast.length > 0 ? [h('h3', {}, 'Forecast'), anyTable(forecast)] : []),
      ...(commands ? [h('h3', {}, 'To apply it'), h('p', { class: 'note' }, 'This page changes nothing. Run the command on the host; it shows a dry run unless told otherwise.'), command(commands)] : []));
  };
  const readPlan = async () => {
    planAt = Date.now();
    const answer = await get<PlanAnswer>('api/v1/plan');
    if (closed) return;
    if (answer.ok) showPlan(answer.data);
    else plan.replaceChildren(h('p', { class: 'empty' }, answer.absent ? 'Plans are not available from this service. Run vsteer plan on the host.' : answer.why));
  };

  return {
    title: 'Findings',
    root: h('div', { class: 'view' }, h('h1', { tabindex: -1 }, 'Findings'),
      h('p', { class: 'lead' }, 'What vsteer found in the last minute, causes first. Each finding names what would disprove it.'), list,
      h('h1', { class: 'next' }, 'Plan'), h('p', { class: 'lead' }, 'The change that vsteer proposes, with its forecast.'), plan),
    update() {
      if (!store.sample) return;
      if (Date.now() - planAt > PLAN_EVERY_MS) void readPlan();
      if (shown === store.findings) return;
      // What the reader has opened stays open.
      const open = new Set([...list.querySelectorAll('article:has(> details[open])')].map((a) => a.getAttribute('data-rule')));
      if (store.findingsKnown) shown = store.findings;
      list.replaceChildren(...(store.findings.length > 0 ? store.findings.map((f, i) => findingCard(store, f, i + 1)) : [
        h('p', { class: 'empty' }, store.findingsKnown ? 'Nothing was found in the last minute.' : 'vsteer looks at the last minute. The first findings come after ten seconds.')]));
      for (const article of list.querySelectorAll('article')) {
        const details = article.querySelector(':scope > details');
        if (open.has(article.getAttribute('data-rule'))) details?.setAttribute('open', '');
      }
    },
    close() {
      closed = true;
    },
  };
}
