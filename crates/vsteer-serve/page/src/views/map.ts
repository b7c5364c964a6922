// Which vCPUs may run where? The machine as nodes, last-level caches, cores and their threads, with the VMs that are pinned there.

import { vmLink } from '../cards';
import { h, setClass, setText } from '../dom';
import { bytes, cpuList, cpus, percent, plural } from '../format';
import { get } from '../service';
import type { Store, View } from '../store';
import type { HostConfig, VmConfig } from '../types';

const READ_EVERY_MS = 15_000;
/** Names on one core before the rest is a number. */
const NAMES = 4;
const ROWS = 200;

type Node = HostConfig['topology']['nodes'][number];
type Core = HostConfig['topology']['cores'][number];

interface Pinned {
  config: VmConfig;
  /** pCPUs that any vCPU may use. */
  all: Set<number>;
  /** Text for each group of vCPUs with the same pCPUs. */
  pins: string[];
}

function pinned(host: HostConfig): { pinned: Pinned[]; free: VmConfig[] } {
  const everywhere = cpus(host.topology.allowed).filter((cpu) => cpus(host.topology.online).includes(cpu)).length;
  const found: Pinned[] = [];
  const free: VmConfig[] = [];
  for (const config of host.vms) {
    const vcpus = config.threads.flatMap((t) => (typeof t.role === 'object' && 'vcpu' in t.role ? [{ vcpu: t.role['vcpu']!, affinity: t.affinity }] : []));
    const groups = new Map<string, number[]>();
    for (const { vcpu, affinity } of vcpus) groups.set(affinity, [...(groups.get(affinity) ?? []), vcpu]);
    const narrow = [...groups].filter(([affinity]) => cpus(affinity).length < everywhere);
    if (narrow.length === 0) {
      free.push(config);
      continue;
    }
    found.push({
      config,
      all: new Set(vcpus.flatMap((v) => cpus(v.affinity))),
      pins: [...groups].map(([affinity, of]) => `vCPU${of.length > 1 ? 's' : ''} ${cpuList(of.sort((a, b) => a - b))} on ${affinity}`),
    });
  }
  return { pinned: found, free };
}

const inside = (inner: string, outer: number[]) => cpus(inner).length > 0 && cpus(inner).every((cpu) => outer.includes(cpu));

class MapView implements View {
  readonly title = 'Pins';
  readonly root: HTMLElement;
  private readonly machine = h('div', { class: 'machine' }, h('p', { class: 'empty' }, 'Reading…'));
  private readonly table = h('div', {});
  private readonly detail = h('p', { class: 'note', role: 'status' });
  /** The box of each pCPU. */
  private readonly boxes = new Map<number, HTMLElement>();
  private readAt = 0;
  private closed = false;

  constructor(private readonly store: Store) {
    this.root = h('div', { class: 'view' }, h('h1', { tabindex: -1 }, 'Pins and NUMA nodes'),
      h('p', { class: 'lead' }, 'Boxes side by side in a core are sibling threads. The fill shows how busy a pCPU is now. Names are VMs with a vCPU pinned there.'),
      this.detail, this.machine, h('h2', {}, 'VMs and their pins'), this.table);
  }

  update(): void {
    if (!this.store.sample) return;
    if (Date.now() - this.readAt > READ_EVERY_MS) void this.read();
    this.showBusy();
  }

  close(): void {
    this.closed = true;
  }

  private async read(): Promise<void> {
    this.readAt = Date.now();
    const answer = await get<{ config: HostConfig }>('api/v1/config');
    if (this.closed) return;
    if (answer.ok) this.draw(answer.data.config);
    else this.machine.replaceChildren(h('p', { class: 'empty' }, answer.why));
  }

  private draw(host: HostConfig): void {
    this.boxes.clear();
    const vms = pinned(host);
    this.machine.replaceChildren(...host.topology.nodes.map((node) => this.node(host, node, vms.pinned)));
    this.table.replaceChildren(this.free(host, vms.free), vms.pinned.length === 0
      ? h('p', { class: 'empty' }, host.vms.length === 0 ? 'This host runs no VM.' : 'No VM is pinned.') : this.pins(host, vms.pinned),
    vms.pinned.length > ROWS ? h('p', { class: 'note' }, `The first ${ROWS} of ${vms.pinned.length} pinned VMs.`) : '');
    this.highlight(null);
    this.showBusy();
  }

  private node(host: HostConfig, node: Node, vms: Pinned[]): HTMLElement {
    const { caches } = host.topology;
    const set = cpus(node.cpus);
    const level = Math.max(...caches.map((c) => c.level), 0);
    const shared = caches.filter((c) => c.level === level && level > 2 && inside(c.cpus, set));
    const bound = host.vms.filter((vm) => cpus(vm.memory_nodes).includes(node.id));
    const about = [set.length > 0 ? `pCPUs ${node.cpus}` : 'memory without pCPUs', `${bytes(node.memory_bytes)} memory`, ...(bound.length > 0 ? [`memory of ${plural(bound.length, 'VM')} is bound here`] : [])];
    const cores = (of: number[]) => h('div', { class: 'cores' }, ...host.topology.cores.filter((core) => inside(core.cpus, of)).map((core) => this.core(host, core, vms)));
    const boxes = shared.map((c) => h('div', { class: 'cache' },
      h('h4', {}, `L${level} cache ${bytes(c.size_bytes)}`, h('small', {}, ` shared by pCPUs ${c.cpus}`)), cores(cpus(c.cpus))));
    return h('section', { class: 'node' }, h('h3', {}, `NUMA node ${node.id}`, h('small', {}, ` ${about.join(', ')}`)), ...(boxes.length > 0 ? boxes : [cores(set)]));
  }

  private core(host: HostConfig, core: Core, vms: Pinned[]): HTMLElement {
    const threads = cpus(core.cpus);
    const here = vms.filter((vm) => threads.some((cpu) => vm.all.has(cpu)));
    const own = host.topology.caches.filter((c) => c.level < 3 && c.kind !== 'instruction' && inside(c.cpus, threads)).sort((a, b) => b.level - a.level)[0];
    const rest = here.slice(NAMES);
    return h('div', { class: 'core', title: own ? `L${own.level} cache ${bytes(own.size_bytes)}` : null },
      h('h5', {}, `Core ${core.id ?? ''}`, core.kind ? h('small', {}, ` ${core.kind.replace('_', ' ')}`) : null, h('small', {}, here.length > 0 ? ` ${plural(here.length, 'VM')}` : '')),
      h('div', { class: 'threads' }, ...threads.map((cpu) => this.pcpu(cpu, threads))),
      h('div', { class: 'chips' }, ...here.slice(0, NAMES).map((vm) => this.chip(vm)),
        rest.length > 0 ? h('span', { class: 'chip more', title: rest.map((vm) => vm.config.name).join(', ') }, `${rest.length} more`) : null));
  }

  private pcpu(cpu: number, threads: number[]): HTMLElement {
    const siblings = threads.filter((t) => t !== cpu);
    const box = h('div', { class: 'pcpu', title: siblings.length > 0 ? `pCPU ${cpu}, sibling of ${siblings.join(', ')}` : `pCPU ${cpu}` },
      h('i', { 'aria-hidden': 'true' }), h('b', {}, cpu), h('span', { class: 'busy' }, '–'));
    this.boxes.set(cpu, box);
    return box;
  }

  private chip(vm: Pinned): HTMLElement {
    const on = () => this.highlight(vm);
    const off = () => this.highlight(null);
    return h('a', { class: 'chip', href: `#/vm/${encodeURIComponent(vm.config.id)}`, mouseenter: on, mouseleave: off, focus: on, blur: off }, vm.config.name);
  }

  private free(host: HostConfig, vms: VmConfig[]): HTMLElement {
    if (vms.length === 0 || host.vms.length === 0) return h('p', {});
    const few = vms.length <= 6;
    return h('p', {}, `${plural(vms.length, 'VM')} ${vms.length === 1 ? 'is' : 'are'} not pinned and may run on each pCPU${few ? ': ' : '.'}`,
      ...(few ? vms.flatMap((vm, i) => [i > 0 ? ', ' : '', vmLink(this.store, vm.id)]) : []));
  }

  private pins(host: HostConfig, vms: Pinned[]): HTMLElement {
    const sharing = (vm: Pinned) => vms.filter((other) => other !== vm && [...vm.all].some((cpu) => other.all.has(cpu))).map((other) => other.config.name);
    const nodes = (set: Set<number>) => host.topology.nodes.filter((n) => cpus(n.cpus).some((cpu) => set.has(cpu))).map((n) => n.id).join(', ');
    const row = (vm: Pinned) => {
      const others = sharing(vm);
      return h('tr', { mouseenter: () => this.highlight(vm), mouseleave: () => this.highlight(null) },
        h('th', { scope: 'row' }, vmLink(this.store, vm.config.id)), h('td', {}, vm.pins.join('; ')), h('td', {}, nodes(vm.all)),
        h('td', {}, vm.config.memory_nodes ? `node ${vm.config.memory_nodes}` : 'not bound'),
        h('td', {}, others.length === 0 ? 'no pinned VM' : others.slice(0, 5).join(', ') + (others.length > 5 ? ` and ${others.length - 5} more` : '')));
    };
    return h('div', { class: 'wide' }, h('table', {},
      h('thead', {}, h('tr', {}, ...['VM', 'Pins', 'Nodes of its pCPUs', 'Memory', 'Shares pCPUs with'].map((name) => h('th', { scope: 'col' }, name)))),
      h('tbody', {}, ...vms.slice(0, ROWS).map(row))));
  }

  /** Marks the pCPUs of a VM. */
  private highlight(vm: Pinned | null): void {
    for (const [cpu, box] of this.boxes) setClass(box, 'chosen', vm?.all.has(cpu) ?? false);
    setText(this.detail, vm ? `${vm.config.name}: ${vm.pins.join('; ')}.` : 'Point at a VM to mark the pCPUs that its vCPUs may use.');
  }

  private showBusy(): void {
    for (const [cpu, busy] of this.store.sample?.pcpus ?? []) {
      const box = this.boxes.get(cpu);
      if (!box) continue;
      setText(box.querySelector('.busy')!, percent(busy, 0));
      box.querySelector('i')!.style.height = `${Math.min(100 * busy, 100).toFixed(0)}%`;
    }
  }
}

export function mapView(store: Store): View {
  return new MapView(store);
}
