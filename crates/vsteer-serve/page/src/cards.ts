// How a finding looks: what it is, what it costs, why, what to do, and what it explains.

import { h } from './dom';
import { pcpus } from './format';
import type { Store } from './store';
import type { Evidence, Finding } from './types';

export function vmLink(store: Store, id: string): HTMLElement {
  return h('a', { href: `#/vm/${encodeURIComponent(id)}` }, store.name(id));
}

function value(n: number, unit: string): string {
  const digits = Math.abs(n) >= 100 || Number.isInteger(n) ? 0 : Math.abs(n) >= 10 ? 1 : 2;
  return `${n.toFixed(digits)} ${n === 1 && unit === 'pCPUs' ? 'pCPU' : unit}`.trim();
}

function evidence(all: Evidence[]): HTMLElement | null {
  if (all.length === 0) return null;
  return h('table', { class: 'evidence' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Measured'), h('th', { scope: 'col', class: 'n' }, 'Value'), h('th', { scope: 'col', class: 'n' }, 'Compared with'))),
    h('tbody', {}, ...all.map((e) => h('tr', {}, h('td', {}, e.quantity), h('td', { class: 'n' }, value(e.value, e.unit)),
      h('td', { class: 'n' }, e.against === null ? '' : value(e.against, e.unit))))));
}

export function findingCard(store: Store, finding: Finding, number?: number, depth = 0): HTMLElement {
  const vms = [...new Set([...(finding.vm ? [finding.vm] : []), ...(finding.vms ?? [])])];
  const part = (name: string, text: string) => (text ? [h('dt', {}, name), h('dd', {}, text)] : []);
  const symptoms = finding.symptoms ?? [];
  const links = vms.slice(0, 12).flatMap((vm, i) => [i > 0 ? ', ' : '', vmLink(store, vm)]);
  if (vms.length > 12) links.push(` and ${vms.length - 12} more`);
  const heading = depth === 0 ? 'h3' : 'h4';
  return h('article', { class: depth === 0 ? 'finding' : 'symptom', 'data-rule': finding.rule },
    h(heading, {}, number === undefined ? null : h('span', { class: 'number' }, number), h('span', { class: 'what' }, finding.title),
      finding.loss_pcpus > 0 ? h('span', { class: 'loss' }, `costs ${pcpus(finding.loss_pcpus)} pCPUs`) : null),
    h('dl', {}, ...part('Why', finding.explanation), ...part('Next', finding.next), ...part('Disproved if', finding.disproved_by),
      ...(vms.length > 0 ? [h('dt', {}, 'VMs'), h('dd', {}, ...links)] : [])),
    evidence(finding.evidence),
    symptoms.length === 0 ? null : h('details', {}, h('summary', {}, symptoms.length === 1 ? 'Explains 1 symptom' : `Explains ${symptoms.length} symptoms`),
      ...symptoms.map((symptom) => findingCard(store, symptom, undefined, depth + 1))));
}
