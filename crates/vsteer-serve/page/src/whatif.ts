// What if a setting of a VM were another? The service forecasts it for all VMs of the host, and changes nothing.

import { h } from './dom';
import { NO_PLANS, planParts } from './plan';
import { get } from './service';
import type { Store } from './store';
import type { PlanAnswer, VmConfig } from './types';

interface Setting {
  key: string;
  name: string;
  hint: string;
  unit?: string;
}

const WEIGHT = { key: 'weight', name: 'CPU weight', hint: 'for example 200' };
const PIN = { key: 'pin', name: 'pCPUs where its vCPUs may run', hint: 'for example 0-3, or any' };
const LIMIT = { key: 'limit', name: 'CPU limit, in pCPUs', hint: 'for example 1.5, or none' };

/** What `vsteer plan --set` knows on this VM's hypervisor. */
function settingsOf(config: VmConfig): Setting[] {
  switch (config.manager) {
    case 'vsphere': return [
      { ...WEIGHT, name: 'CPU shares', hint: 'for example 2000' }, { key: 'limit', name: 'CPU limit, in MHz', hint: 'for example 2000', unit: 'MHz' },
      { key: 'reservation', name: 'CPU reservation, in MHz', hint: 'for example 500', unit: 'MHz' }, PIN,
    ];
    case 'xen': return [WEIGHT, LIMIT, PIN, { key: 'prefer', name: 'pCPUs that its vCPUs prefer', hint: 'for example 0-3, or any' }];
    default: return [WEIGHT, LIMIT, PIN];
  }
}

/** A form that asks. It is empty until the VM's settings are known. */
export class WhatIf {
  readonly root = h('div', { class: 'whatif' });
  private known = '';
  private asked = 0;

  constructor(private readonly store: Store) {}

  /** Offers the settings of this VM. What the reader has typed stays. */
  show(config: VmConfig): void {
    const known = `${config.id} ${JSON.stringify(config.manager)}`;
    if (known === this.known) return;
    this.known = known;
    const settings = settingsOf(config);
    const value = h('input', { type: 'text', 'aria-label': 'Value', placeholder: settings[0]!.hint, autocomplete: 'off', size: 26 });
    const which = h('select', {
      'aria-label': 'Setting', change: () => {
        value.value = '';
        value.placeholder = settings[which.selectedIndex]!.hint;
      },
    }, ...settings.map((s) => h('option', { value: s.key }, s.name)));
    const result = h('div', { role: 'status' });
    // A policy of the page forbids forms to submit.
    const ask = () => void this.ask(config, settings[which.selectedIndex]!, value.value.trim(), result);
    value.addEventListener('keydown', (event) => event.key === 'Enter' && ask());
    this.root.replaceChildren(h('div', { class: 'bar' }, which, value, h('button', { type: 'button', click: ask }, 'Forecast')), result);
  }

  private async ask(config: VmConfig, setting: Setting, value: string, result: HTMLElement): Promise<void> {
    const say = (text: string) => result.replaceChildren(h('p', { class: 'empty' }, text));
    if (value === '') return say(`Type a value, ${setting.hint}.`);
    this.asked += 1;
    const asked = this.asked;
    say('Computing… a forecast takes up to half a minute.');
    const word = `${config.id}:${setting.key}=${value}${setting.unit && /^\d+$/.test(value) ? setting.unit : ''}`;
    const answer = await get<PlanAnswer>(`api/v1/plan?set=${encodeURIComponent(word)}`);
    // The reader may have asked something else meanwhile.
    if (asked !== this.asked) return;
    if (answer.ok) result.replaceChildren(...planParts(this.store, answer.data, true));
    else say(answer.absent ? NO_PLANS : answer.why);
  }
}
