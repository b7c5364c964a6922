// What was found in the last minute, and what vsteer would do: a plan with its forecast, and the command that makes the change.

import { findingCard } from '../cards';
import { h } from '../dom';
import { NO_PLANS, planParts } from '../plan';
import { get } from '../service';
import type { Store, View } from '../store';
import type { PlanAnswer } from '../types';

const PLAN_EVERY_MS = 30_000;

export function findingsView(store: Store): View {
  const list = h('div', {});
  const plan = h('div', {}, h('p', { class: 'empty' }, 'Reading…'));
  let shown: unknown = null;
  let planAt = 0;
  let closed = false;

  const readPlan = async () => {
    planAt = Date.now();
    const answer = await get<PlanAnswer>('api/v1/plan');
    if (closed) return;
    if (answer.ok) plan.replaceChildren(...planParts(store, answer.data));
    else plan.replaceChildren(h('p', { class: 'empty' }, answer.absent ? NO_PLANS : answer.why));
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
        h('p', { class: 'empty' }, store.findingsKnown ? 'Nothing was found in the last minute.' : 'vsteer looks at the last minute. The first findings come after 15 seconds.')]));
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
