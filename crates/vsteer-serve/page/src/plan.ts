// How a plan looks: its steps, the forecast for each VM, and how to apply it. The page itself changes nothing.

import { vmLink } from './cards';
import { h, setText } from './dom';
import { duration, type Maybe, percent } from './format';
import type { Store } from './store';
import type { Interval, PlanAnswer, VmForecast } from './types';

/** Differences of ready below this are not worth a colour. */
const NOTICED = 0.005;
const VMS = 100;

/** A value now, and as expected with the interval of 90 %. More ready time is worse. */
function change(before: Maybe, after: Interval | null | undefined, text: (value: Maybe) => string, isReady = false): HTMLElement {
  if (!after) return h('td', { class: 'n' }, text(before));
  const more = isReady && before != null ? after.likely - before : 0;
  const judged = more > NOTICED ? 'worse' : more < -NOTICED ? 'better' : '';
  return h('td', { class: 'n' }, `${text(before)} → `, h('b', { class: judged }, text(after.likely)), h('small', {}, ` ${text(after.low)} to ${text(after.high)}`));
}

function row(store: Store, vm: VmForecast): HTMLElement {
  const name = h('th', { scope: 'row' }, store.vm(vm.vm) ? vmLink(store, vm.vm) : vm.name);
  if (vm.withheld) return h('tr', {}, name, h('td', { colspan: 3 }, 'no forecast: the model does not describe this VM'));
  return h('tr', {}, name, change(vm.ready_before, vm.ready_after, percent, true), change(vm.run_before, vm.run_after, percent),
    change(vm.wake_p99_ns_before, vm.wake_p99_ns_after, duration));
}

function forecast(store: Store, method: string, vms: VmForecast[]): HTMLElement[] {
  const gain = (vm: VmForecast) => (vm.withheld ? -1 : Math.abs(vm.ready_after.likely - vm.ready_before));
  const sorted = [...vms].sort((a, b) => gain(b) - gain(a));
  const head = ['VM', 'Ready', 'Run', 'Wake-up p99'];
  return [
    h('div', { class: 'wide' }, h('table', { class: 'forecast' },
      h('thead', {}, h('tr', {}, ...head.map((text, i) => h('th', { scope: 'col', class: i > 0 ? 'n' : '' }, text)))),
      h('tbody', {}, ...sorted.slice(0, VMS).map((vm) => row(store, vm))))),
    h('p', { class: 'note' }, `Now → expected, and the interval of 90 %. Sums over vCPUs, 100 % is one pCPU. By ${method}.${vms.length > VMS ? ` The ${VMS} VMs that change most.` : ''}`),
  ];
}

/** A command, with a button that copies it. */
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

/** A button that stores the plan under the name that the command has. */
function download(plan: { id: string }): HTMLElement {
  const name = `plan-${plan.id}.json`;
  return h('button', {
    type: 'button',
    click: () => {
      const url = URL.createObjectURL(new Blob([JSON.stringify(plan, null, 1)], { type: 'application/json' }));
      h('a', { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10_000);
    },
  }, `Download ${name}`);
}

/** A plan. `asked`: the reader asked for these settings, and knows why. */
export function planParts(store: Store, answer: PlanAnswer, asked = false): HTMLElement[] {
  const { plan, steps, note } = answer;
  const why = note ? [h('p', { class: 'note' }, note)] : [];
  if (!plan) return [h('p', { class: 'empty' }, note ?? 'The service has no plan yet.')];
  if (steps.length === 0) return [h('p', { class: 'empty' }, `Nothing to change: ${plan.title}.`), ...why];
  // The same reason is not told for each of a VM's many threads.
  const reason = (i: number) => (asked || steps[i - 1]?.reason === steps[i]!.reason ? '' : ` because ${steps[i]!.reason}`);
  const step = (s: PlanAnswer['steps'][number], i: number) => h('li', {}, store.vm(s.vm) ? vmLink(store, s.vm) : s.vm_name, `: ${s.text}`, h('small', {}, reason(i)));
  return [
    asked ? h('h3', {}, 'Change') : h('p', { class: 'plan-title' }, `${plan.title.charAt(0).toUpperCase()}${plan.title.slice(1)}`),
    h('ol', { class: 'steps' }, ...steps.map(step)),
    ...[...plan.irreversible.map((text) => `Cannot be undone: ${text}`), ...(plan.contested ?? []).map((text) => `May not last: ${text}`)].map((text) => h('p', { class: 'notice' }, text)),
    h('h3', {}, 'Forecast'), ...forecast(store, plan.forecast.method, plan.forecast.vms), ...why,
    ...(answer.command ? [
      h('h3', {}, 'To apply it'),
      h('p', { class: 'note' }, 'This page changes nothing. Copy the plan’s file to the host and run the command there: it makes the change for a minute, then takes it back unless you confirm it.'),
      download(plan), command(answer.command),
    ] : []),
  ];
}

export const NO_PLANS = 'Plans are not available from this service. Run vsteer plan on the host.';
