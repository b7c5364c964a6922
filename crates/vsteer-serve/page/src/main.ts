// The frame of the page: header, views by the part of the address after #, keys, colours, and the question for the token.

import './style.css';
import { h, setClass, setText } from './dom';
import { clock } from './format';
import { begin, type Connection, listen, onTokenNeeded } from './service';
import { Store, type View } from './store';
import { blameView } from './views/blame';
import { findingsView } from './views/findings';
import { historyView } from './views/history';
import { hostView } from './views/host';
import { mapView } from './views/map';
import { vmView } from './views/vm';

const store = new Store();
const main = h('main', {});
const openVm = (id: string) => {
  location.hash = `#/vm/${encodeURIComponent(id)}`;
};

const ROUTES: { path: string; label: string; make: () => View }[] = [
  { path: '', label: 'State', make: () => hostView(store, openVm) },
  { path: 'blame', label: 'Blame', make: () => blameView(store) },
  { path: 'map', label: 'Pins', make: () => mapView(store) },
  { path: 'findings', label: 'Findings', make: () => findingsView(store) },
  { path: 'history', label: 'History', make: () => historyView(store) },
];

let view: View | null = null;

// Colours: those of the system, until the reader chooses.
const THEME = 'vsteer-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');
const themeButton = h('button', { type: 'button', class: 'quiet', click: () => switchTheme() });

function isDark(): boolean {
  const chosen = localStorage.getItem(THEME);
  return chosen ? chosen === 'dark' : dark.matches;
}

function showTheme(): void {
  document.documentElement.dataset['theme'] = isDark() ? 'dark' : 'light';
  setText(themeButton, isDark() ? 'Light' : 'Dark');
  themeButton.title = `Use ${isDark() ? 'light' : 'dark'} colours (key t)`;
  view?.recolour?.();
}

function switchTheme(): void {
  localStorage.setItem(THEME, isDark() ? 'light' : 'dark');
  showTheme();
}
dark.addEventListener('change', showTheme);

// The header.
const hostName = h('span', { class: 'host-name' });
const state = h('span', { class: 'connection' });
// A screen reader hears when the connection changes, not each second.
const spoken = h('span', { class: 'unseen', role: 'status' });
const links = ROUTES.map((route, i) => h('a', { href: `#/${route.path}`, title: `Key ${i + 1}` }, route.label));
const header = h('header', {},
  h('a', { class: 'brand', href: '#/' }, 'vsteer'), hostName, state, spoken,
  h('nav', { 'aria-label': 'Views' }, ...links),
  h('span', { class: 'tools' }, themeButton, h('button', { type: 'button', class: 'quiet', title: 'Keys and words (key ?)', click: () => help.showModal() }, 'Help')));

let connection: Connection = 'connecting';
function showState(): void {
  const at = store.sample ? clock(store.sample.unix_ns / 1e6) : '';
  const text = store.paused ? `Paused at ${at}` : connection === 'live' ? `Live ${at}` : connection === 'lost' ? `Connection lost${at ? `, last sample ${at}` : ''}` : 'Connecting…';
  setText(state, text);
  state.dataset['state'] = store.paused ? 'paused' : connection;
  setText(spoken, store.paused ? 'Paused' : connection === 'live' ? 'Live' : connection === 'lost' ? 'Connection lost' : '');
  setText(hostName, store.sample?.host.name ?? '');
}

// Help.
const KEYS: [string, string][] = [
  ['1 to 5', 'Open a view'], ['j k, arrows', 'Choose a VM'], ['← →', 'Sort by the next column'], ['r', 'Reverse the order'], ['Enter', 'Open the chosen VM'],
  ['/', 'Filter VMs'], ['Esc', 'Clear the filter, or go back'], ['Space', 'Pause, and go on'], ['t', 'Switch colours'], ['?', 'This help'],
];
const WORDS: [string, string][] = [
  ['Running', 'The vCPU has a pCPU.'], ['Ready', 'The vCPU could run, but has no pCPU.'],
  ['Limited', 'A quota, a real-time budget or a cap stops the vCPU.'], ['Co-stopped', 'The vCPU is stopped so that its siblings catch up. Only ESXi and the simulator do this.'],
  ['Lag', 'Ready while a sibling vCPU ran: a part of ready.'], ['Wake-up latency', 'Time from wake-up to running.'],
  ['Pressure (PSI)', 'Part of the time in which tasks stalled: some of them, or all that were not asleep (full).'],
  ['Blame', 'Which threads ran while a VM was ready.'], ['pCPU', 'A logical CPU of the host. A sum of 1 pCPU is one vCPU all the time.'],
];
const help = h('dialog', { class: 'help', 'aria-label': 'Help' },
  h('h2', {}, 'Keys'), h('dl', { class: 'keys' }, ...KEYS.flatMap(([key, what]) => [h('dt', {}, h('kbd', {}, key)), h('dd', {}, what)])),
  h('h2', {}, 'Words'), h('dl', { class: 'facts' }, ...WORDS.flatMap(([word, what]) => [h('dt', {}, word), h('dd', {}, what)])),
  h('p', { class: 'note' }, 'A filter has words and comparisons: “web ready>5 wake>2” shows VMs with “web” in the name, more than 5 % ready, and a wake-up p99 above 2 ms.'),
  h('button', { type: 'button', click: () => help.close() }, 'Close'));

// The token.
function askToken(wrong: boolean): Promise<string> {
  return new Promise((resolve) => {
    const input = h('input', { type: 'password', autocomplete: 'off', 'aria-label': 'Token', size: 44 });
    const done = () => {
      if (!input.value.trim()) return;
      dialog.close();
      dialog.remove();
      resolve(input.value.trim());
    };
    input.addEventListener('keydown', (event) => event.key === 'Enter' && done());
    const dialog = h('dialog', { class: 'token', 'aria-label': 'Token', cancel: (event: Event) => event.preventDefault() },
      h('h2', {}, 'This service needs a token'),
      wrong ? h('p', { class: 'notice' }, 'The service does not know this token. Try again.') : null,
      h('p', {}, 'Enter one of the tokens in the file that vsteer-serve was started with (--tokens). The page keeps the token until you close this tab.'),
      h('p', { class: 'bar' }, input, h('button', { type: 'button', click: done }, 'Continue')));
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
onTokenNeeded(askToken);

function show(): void {
  const [, first = '', ...rest] = location.hash.replace(/^#/, '').split('/');
  view?.close?.();
  const route = ROUTES.find((r) => r.path === first);
  const next = first === 'vm' && rest.length > 0 ? vmView(store, decodeURIComponent(rest.join('/'))) : (route ?? ROUTES[0]!).make();
  view = next;
  links.forEach((link, i) => {
    if (ROUTES[i] === route) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
  main.replaceChildren(next.root);
  next.update?.();
  document.title = `${next.title} – vsteer`;
  scrollTo(0, 0);
  const focus = next.root.querySelector<HTMLElement>('h1[tabindex], .scroller');
  focus?.focus({ preventScroll: true });
}

function key(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]')) return;
  if (view?.key?.(event)) {
    event.preventDefault();
    return;
  }
  const target = event.target as HTMLElement;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
  const number = Number(event.key);
  if (number >= 1 && number <= ROUTES.length) location.hash = `#/${ROUTES[number - 1]!.path}`;
  else if (event.key === '?') help.showModal();
  else if (event.key === 't') switchTheme();
  else if (event.key === 'Escape' && location.hash.length > 2) location.hash = '#/';
  else if (event.key === ' ' && !/^(BUTTON|A|SUMMARY)$/.test(target.tagName)) {
    store.paused = !store.paused;
    showState();
  } else return;
  event.preventDefault();
}

async function start(): Promise<void> {
  document.body.append(header, main, help);
  showTheme();
  showState();
  main.append(h('p', { class: 'empty' }, 'Waiting for the first sample…'));
  document.addEventListener('keydown', key);
  store.onChange(() => {
    setClass(document.body, 'several', store.vms.length > 0);
    showState();
    // A hidden tab draws nothing; it catches up when it is shown.
    if (!document.hidden) view?.update?.();
  });
  let first = true;
  await begin();
  listen((sample) => {
    store.take(sample);
    if (first) {
      first = false;
      addEventListener('hashchange', show);
      show();
    }
  }, (now) => {
    connection = now;
    showState();
  });
}

void start();
