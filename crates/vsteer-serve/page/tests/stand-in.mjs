// A stand-in for the service: serves dist with the real service's headers, and answers that were recorded from a real service.
// With `vms` it makes up that many VMs. With `token` it asks for one. Answers that a service may lack can be switched on.
//
// Recorded from vsteer-serve with VMs of the lab on a machine with 2 pCPUs; tests/recorded has the answers.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { fileURLToPath } from 'node:url';

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const recorded = (name) => JSON.parse(readFileSync(at(`recorded/${name}.json`), 'utf8'));
const TYPES = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml' };

/** The security policy of the real service, from its source. */
export const POLICY = /const POLICY: &str = "((?:[^"\\]|\\\s+)*)"/.exec(readFileSync(at('../../src/http/page.rs'), 'utf8'))[1].replace(/\\\n\s*/g, '');

/** The same numbers in every run. */
function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

const CORES = 32;
const WHY = 'it needs every context switch';

function madeVms(n) {
  const next = random(1);
  return Array.from({ length: n }, (_, i) => ({
    id: `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`, name: `${['web', 'db', 'build', 'desk', 'mail'][i % 5]}-${i}`, vcpus: 1 + Math.floor(next() * 8), load: next() ** 3,
  }));
}

function madeRow(vm, next) {
  const run = vm.vcpus * vm.load * (0.6 + 0.4 * next());
  const ready = vm.vcpus * vm.load * 0.4 * next();
  return [vm.id, vm.name, vm.vcpus, run, ready, next() < 0.05 ? 0.2 * vm.vcpus : 0, null, ready * 0.3, Math.round(1e5 * 10 ** (2 * next())), ready / vm.vcpus > 0.1 ? 'pcpus_overloaded' : null];
}

function madeConfig(vms) {
  const { config } = recorded('config');
  const pcpus = CORES * 2;
  const half = pcpus / 2;
  const quarter = pcpus / 4;
  config.topology = {
    ...config.topology, allowed: `0-${pcpus - 1}`, online: `0-${pcpus - 1}`,
    nodes: [0, 1].map((id) => ({ id, cpus: `${id * half}-${(id + 1) * half - 1}`, memory_bytes: 137438953472 })),
    cores: Array.from({ length: CORES }, (_, i) => ({ id: i, cpus: `${2 * i}-${2 * i + 1}`, kind: null, capacity: null })),
    caches: [
      ...Array.from({ length: 4 }, (_, i) => ({ level: 3, kind: 'unified', size_bytes: 33554432, cpus: `${i * quarter}-${(i + 1) * quarter - 1}` })),
      ...Array.from({ length: CORES }, (_, i) => ({ level: 2, kind: 'unified', size_bytes: 1048576, cpus: `${2 * i}-${2 * i + 1}` })),
    ],
    packages: [0, 1].map((id) => ({ id, cpus: `${id * half}-${(id + 1) * half - 1}` })),
  };
  const [model] = config.vms;
  config.vms = vms.map((vm, i) => ({
    ...model, id: vm.id, name: vm.name, memory_nodes: i % 7 === 0 ? String(i % 2) : null,
    threads: Array.from({ length: vm.vcpus }, (_, k) => ({ tid: 1000 * i + k, role: { vcpu: k }, affinity: i % 7 === 0 ? `${(i % 2) * half + (2 * (i % 16))}-${(i % 2) * half + (2 * (i % 16)) + 1}` : `0-${pcpus - 1}` })),
  }));
  return { config };
}

function madeBlame(vms) {
  const next = random(3);
  const blame = vms.slice(0, 300).flatMap((victim) => Array.from({ length: 6 }, () => vms[Math.floor(next() * 60)]).map((by) => ({
    victim: victim.id, victim_name: victim.name, kind: 'vm', key: by.id, name: by.name, share: 0.2 * next() ** 2,
  })));
  return { blame, window_ns: 6e10, missing: null };
}

/** Ups and downs of a few VMs, a row for each minute. */
function history(query, ofHost) {
  const [from, to] = ['from', 'to'].map((name) => Math.ceil(Number(query.get(name)) / 60) * 60);
  const step = query.get('step');
  if (!['minute', 'hour', 'auto'].includes(step)) throw new Error(`${step} is not a step`);
  const rows = [];
  for (let time = from; time < to; time += 60) {
    const vms = ['early-siskin', 'calm-wren', 'lunar-vole'].map((name, i) => {
      const wave = 0.5 + 0.5 * Math.sin(time / 500 + i);
      const us = (part) => Math.round(60e6 * part);
      return {
        unix_ms: 1e3 * time, vm: `id-${i}`, name, covered_us: 60e6, run_us: us(0.5 + 0.3 * wave), ready_us: us(0.6 * wave), wait_us: us(0.6 * wave), limited_us: 0, costop_us: null,
        wake_p50_us: 20, wake_p99_us: Math.round(4e3 * wave), wake_max_us: 9e3, costs: [{ culprit: 'process backup', us: us(0.2 * wave) }],
      };
    });
    const sum = (key) => vms.reduce((all, vm) => all + vm[key], 0);
    if (ofHost) rows.push({ unix_ms: 1e3 * time, covered_us: 60e6, run_us: sum('run_us'), ready_us: sum('ready_us'), limited_us: 0, costop_us: null });
    else rows.push(...vms.filter((vm) => [null, vm.name, vm.vm].includes(query.get('vm'))));
  }
  return { notes: [], rows, step: 'minute' };
}

/** The recorded events, so late that the last one is of the last minute. */
function timeline(query) {
  const { events } = recorded('timeline');
  const late = 1e3 * Number(query.get('to')) - 30_000 - Math.max(...events.map((e) => e.unix_ms));
  const vm = query.get('vm');
  return { notes: [], events: events.map((e) => ({ ...e, unix_ms: e.unix_ms + late })).filter((e) => vm === null || e.vm === vm || e.name === vm) };
}

/** The recorded plan; with a setting the recorded forecast of one; what is no number is refused as the service refuses it. */
function plan(query) {
  const set = query.get('set');
  if (set === null) return recorded('plan');
  if (/=(\d|any|none)/.test(set)) return recorded('plan-set');
  return { status: 400, error: { kind: 'usage', what: `set=${JSON.stringify(set)} is not a setting`, cause: `${set} is not a number greater than 0`, help: null, way_out: null } };
}

/** Starts it. `everyMs` is the time between samples; `offers` lists what else it answers: plan, history. `rename` is another
 * name for the first VM. `poor`: a collector that measures little. */
export async function standIn({ vms = 0, rename = null, poor = false, token = null, everyMs = 1000, offers = [], samples = Infinity } = {}) {
  const made = madeVms(vms);
  const next = random(2);
  const base = recorded('sample');
  const index = recorded('index');
  if (offers.includes('plan')) index.answers.push({ path: '/api/v1/plan', about: '' });
  if (offers.includes('history')) index.answers.push({ path: '/api/v1/history/vms', about: '' }, { path: '/api/v1/history/host', about: '' }, { path: '/api/v1/timeline', about: '' });
  let n = 0;
  const sample = () => {
    n += 1;
    const one = { ...base, unix_ns: Date.now() * 1e6, samples: n, minute_unix_ns: 1 + Math.floor(n / 10) };
    if (rename !== null) one.vms = one.vms.map((row, i) => (i === 0 ? [row[0], rename, ...row.slice(2)] : row));
    if (poor) Object.assign(one, { exact: false, collector: 'schedstat', vms: one.vms.map((row) => [...row.slice(0, 7), null, null, row[9]]) });
    if (vms === 0) return one;
    const rows = made.map((vm) => madeRow(vm, next));
    const sum = (i) => rows.reduce((all, row) => all + (row[i] ?? 0), 0);
    return { ...one, vms: rows, pcpus: Array.from({ length: CORES * 2 }, (_, cpu) => [cpu, next()]), host: { ...one.host, pcpus: CORES * 2, run: sum(3), ready: sum(4), limited: sum(5) } };
  };
  const ago = (answer) => {
    const late = Date.now() - answer.time_unix_ms.at(-1) - 1000;
    return { ...answer, time_unix_ms: answer.time_unix_ms.map((ms) => ms + late) };
  };
  const answers = {
    '/api/v1': () => index,
    '/api/v1/findings': () => recorded('findings'),
    '/api/v1/config': () => (vms > 0 ? madeConfig(made) : recorded('config')),
    '/api/v1/blame': () => (poor ? { blame: null, window_ns: null, missing: WHY } : vms > 0 ? madeBlame(made) : recorded('blame')),
    '/api/v1/vm': () => (poor ? { ...recorded('vm'), blame: null, missing: { blame: WHY, wake_latency: WHY } } : recorded('vm')),
    '/api/v1/recent': (query) => ago(recorded(query.get('vm') ? 'recent-vm' : 'recent-host')),
    ...(offers.includes('plan') ? { '/api/v1/plan': plan } : {}),
    ...(offers.includes('history') ? { '/api/v1/history/vms': (query) => history(query, false), '/api/v1/history/host': (query) => history(query, true), '/api/v1/timeline': timeline } : {}),
  };
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url, 'http://localhost');
    if (pathname === '/access.json') return response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ token: token !== null }));
    if (pathname.startsWith('/api/')) {
      if (token !== null && request.headers.authorization !== `Bearer ${token}`) return response.writeHead(401).end();
      if (pathname === '/api/v1/live') return live(response);
      const answer = answers[pathname];
      if (!answer) return response.writeHead(404).end();
      const body = answer(searchParams);
      return response.writeHead(body.status ?? 200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    }
    return file(pathname === '/' ? '/index.html' : pathname, response);
  });
  const live = (response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('retry: 200\n\n');
    let told = 0;
    const tell = () => {
      response.write(`event: sample\ndata: ${JSON.stringify(sample())}\n\n`);
      told += 1;
      // The real service ends its streams too.
      if (told >= samples) response.end();
    };
    tell();
    const timer = setInterval(tell, everyMs).unref();
    response.on('close', () => clearInterval(timer));
  };
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  // A test that fails does not close its stand-in.
  server.unref();
  return { base: `http://127.0.0.1:${server.address().port}/`, close: () => (server.closeAllConnections(), server.close()) };
}

function file(path, response) {
  try {
    const body = readFileSync(at(`../dist${path}`));
    response.writeHead(200, { 'content-type': TYPES[path.split('.').pop()] ?? 'application/octet-stream', 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' }).end(body);
  } catch {
    response.writeHead(404).end();
  }
}
