// Every view in a real browser, with answers recorded from a real service (stand-in.mjs).

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { launch, open, overflow } from './browser.mjs';
import { POLICY, standIn } from './stand-in.mjs';

let browser;
let service;
let full;
before(async () => {
  browser = await launch();
  service = await standIn();
  full = await standIn({ offers: ['plan', 'history'] });
});
after(async () => {
  await browser.close();
  service.close();
  full.close();
});

async function clean(page) {
  assert.deepEqual(page.errors, [], 'console');
  assert.deepEqual(page.outside, [], 'requests to others');
  await page.context().close();
}

const rows = '.space .row:not([hidden])';
const names = (page) => page.locator(`${rows} .c-name`).allTextContents();

test('the page runs under the strict security policy', async () => {
  for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'", "base-uri 'none'"]) assert.ok(POLICY.includes(part), part);
  const page = await open(browser, service.base);
  const response = await page.request.get(service.base);
  assert.equal(response.headers()['content-security-policy'], POLICY);
  await page.waitForSelector(rows);
  await clean(page);
});

test('state: tiles, chart, worst findings and VMs, sorted by ready', async () => {
  const page = await open(browser, service.base);
  await page.waitForSelector(rows);
  await page.waitForSelector('.worst li');
  assert.match(await page.locator('.tile').first().textContent(), /Host busy\s*\d+\s%/);
  assert.equal(await page.locator('.tile').count(), 7);
  assert.ok(await page.locator('.host canvas').count() >= 1);
  const ready = (await page.locator(`${rows} .c-ready`).allTextContents()).map(parseFloat);
  assert.deepEqual(ready, [...ready].sort((a, b) => b - a));
  await page.click('.head >> text=VM');
  const sorted = await names(page);
  assert.deepEqual(sorted, [...sorted].sort());
  await clean(page);
});

test('live: the time moves on, pause holds it, and a new stream follows one that ended', async () => {
  const short = await standIn({ everyMs: 150, samples: 3 });
  const page = await open(browser, short.base);
  const samples = () => page.evaluate(() => document.querySelector('.connection').textContent);
  await page.waitForFunction(() => /^Live/.test(document.querySelector('.connection').textContent));
  const first = await samples();
  await page.waitForFunction((was) => document.querySelector('.connection').textContent !== was, first, { timeout: 5000 });
  await page.keyboard.press(' ');
  assert.match(await samples(), /^Paused/);
  const held = await samples();
  await page.waitForTimeout(1500);
  assert.equal(await samples(), held);
  await page.keyboard.press(' ');
  await page.waitForFunction(() => /^Live/.test(document.querySelector('.connection').textContent));
  await clean(page);
  short.close();
});

test('keys: choose, open, back, filter, sort, help, views', async () => {
  const page = await open(browser, service.base);
  await page.waitForSelector(rows);
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  const second = (await names(page))[1];
  assert.equal(await page.locator('.row.selected .c-name').textContent(), second);
  await page.keyboard.press('Enter');
  await page.waitForSelector('.view.vm');
  await page.keyboard.press('Escape');
  await page.waitForSelector(rows);
  await page.keyboard.press('/');
  await page.keyboard.type('WREN');
  assert.deepEqual(await names(page), ['calm-wren']);
  await page.keyboard.press('Escape');
  assert.ok((await names(page)).length > 1);
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  assert.ok(await page.locator('dialog.help').isVisible());
  await page.keyboard.press('Escape');
  assert.ok(!(await page.locator('dialog.help').isVisible()));
  await page.keyboard.press('r');
  assert.equal(await page.locator('[aria-sort=ascending]').count(), 1);
  await page.keyboard.press('4');
  await page.waitForSelector('article.finding');
  await clean(page);
});

test('filter: comparisons of values', async () => {
  const page = await open(browser, service.base);
  await page.waitForSelector(rows);
  await page.fill('#filter', 'ready>50');
  for (const text of await page.locator(`${rows} .c-ready`).allTextContents()) assert.ok(parseFloat(text) > 50, text);
  await page.fill('#filter', 'no such vm');
  assert.match(await page.locator('.vms .empty').textContent(), /No VM matches/);
  await clean(page);
});

test('one VM: states, latencies, culprits, findings, settings, threads', async () => {
  const page = await open(browser, service.base, { hash: '#/vm/early-siskin' });
  await page.waitForSelector('.histogram .bar');
  await page.waitForSelector('.bars li');
  assert.equal(await page.locator('.view.vm canvas').count(), 2);
  assert.match(await page.locator('.view.vm').textContent(), /wake-ups: half within/);
  assert.ok(await page.locator('article.finding').count() >= 1);
  assert.match(await page.locator('.facts').first().textContent(), /Managed by\s*libvirt/);
  assert.match(await page.locator('table tbody').last().textContent(), /vCPU 0/);
  assert.match(await page.locator('.view.vm').textContent(), /keeps no history/);
  await clean(page);
});

test('blame: victims by culprits', async () => {
  const page = await open(browser, service.base, { hash: '#/blame' });
  await page.waitForSelector('.blame .heat');
  assert.ok(await page.locator('.blame tbody tr').count() >= 4);
  assert.ok(await page.locator('.blame .own').count() >= 1);
  await page.locator('.blame .own').first().hover();
  assert.match(await page.locator('.view [role=status]').textContent(), /another thread of the same VM/);
  await clean(page);
});

test('pins: nodes, caches, cores, and VMs that are pinned', async () => {
  const page = await open(browser, service.base, { hash: '#/map' });
  await page.waitForSelector('.core');
  assert.match(await page.locator('.node').textContent(), /NUMA node 0/);
  assert.match(await page.locator('.cache').textContent(), /L3 cache 32 MiB/);
  assert.equal(await page.locator('.pcpu').count(), 2);
  await page.waitForFunction(() => /\d+\s%/.test(document.querySelector('.pcpu .busy').textContent));
  assert.match(await page.locator('.view').textContent(), /not pinned/);
  await clean(page);
});

test('findings: cards with evidence; symptoms stay open; no plan is explained', async () => {
  const page = await open(browser, service.base, { hash: '#/findings' });
  await page.waitForSelector('article.finding .evidence');
  assert.match(await page.locator('article.finding').first().textContent(), /Disproved if/);
  await page.locator('article.finding summary').first().click();
  assert.ok(await page.locator('article.symptom').first().isVisible());
  assert.match(await page.locator('.view').textContent(), /Plans are not available/);
  await clean(page);
});

test('plan: steps, forecast, a command that can be copied, and the file that it names', async () => {
  const page = await open(browser, full.base, { hash: '#/findings' });
  await page.waitForSelector('.command');
  assert.match(await page.locator('.steps').textContent(), /real-time/);
  assert.match(await page.locator('table.forecast tbody').textContent(), /16\.0\s%\s→\s1\.2\s%/);
  await page.click('.command button');
  const command = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(command, /^vsteer apply plan-[0-9a-f]{12}\.json --connect qemu:\/\/\/system --try 60s$/);
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('button:has-text("Download")')]);
  assert.ok(command.includes(file.suggestedFilename()), file.suggestedFilename());
  const plan = JSON.parse(readFileSync(await file.path(), 'utf8'));
  assert.equal(`plan-${plan.id}.json`, file.suggestedFilename());
  assert.ok(plan.parent && plan.steps.length > 0, 'as vsteer apply reads it');
  await clean(page);
});

test('what if: a setting of a VM, forecast; what is wrong is said', async () => {
  const page = await open(browser, full.base, { hash: '#/vm/early-siskin' });
  await page.waitForSelector('.whatif select');
  await page.click('.whatif button:has-text("Forecast")');
  assert.match(await page.locator('.whatif').textContent(), /Type a value/);
  await page.fill('.whatif input', 'many');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /is not a setting/.test(document.querySelector('.whatif').textContent));
  page.errors.length = 0; // Chromium reports the refused request itself.
  const [asked] = await Promise.all([page.waitForRequest(/plan\?set=/), page.fill('.whatif input', '20').then(() => page.keyboard.press('Enter'))]);
  assert.match(new URL(asked.url()).searchParams.get('set'), /^[0-9a-f-]{36}:weight=20$/);
  await page.waitForSelector('.whatif table.forecast');
  assert.match(await page.locator('.whatif .steps').textContent(), /CPU weight: 1024 shares -> 20 shares/);
  await page.selectOption('.whatif select', 'pin');
  assert.equal(await page.locator('.whatif input').inputValue(), '');
  // Reading the VM's settings again must not take away what is being typed.
  await page.fill('.whatif input', '0');
  await page.waitForRequest(/api\/v1\/vm\?/, { timeout: 15_000 });
  await page.waitForTimeout(300);
  assert.equal(await page.locator('.whatif input').inputValue(), '0');
  await clean(page);
});

test('history: a chart, a moment, changes; and an explanation without a history', async () => {
  const page = await open(browser, full.base, { hash: '#/history' });
  await page.waitForSelector('.past canvas');
  await page.waitForSelector('.changes li');
  const before = await page.locator('.moment output').textContent();
  await page.locator('.moment input').fill('3');
  assert.notEqual(await page.locator('.moment output').textContent(), before);
  await page.waitForFunction(() => document.querySelectorAll('.past .wide tbody tr').length === 3);
  assert.match(await page.locator('.past .wide').textContent(), /process backup \d/);
  assert.match(await page.locator('.changes').textContent(), /plan applied Plan [0-9a-f]{12} was applied to VM/);
  await page.selectOption('select[aria-label=VM]', 'early-siskin');
  await page.waitForFunction(() => document.querySelector('.past canvas'));
  await clean(page);
  const none = await open(browser, service.base, { hash: '#/history' });
  await none.waitForFunction(() => /keeps no history/.test(document.querySelector('.notice')?.textContent ?? ''));
  await clean(none);
});

test('what was not measured is explained, and never 0', async () => {
  const poor = await standIn({ poor: true });
  const page = await open(browser, poor.base);
  await page.waitForSelector(rows);
  assert.match(await page.locator('.tile').nth(2).textContent(), /estimate/);
  assert.deepEqual([...new Set(await page.locator(`${rows} .c-wake`).allTextContents())], ['–']);
  await page.goto(`${poor.base}#/vm/early-siskin`);
  await page.waitForFunction(() => document.querySelector('.view.vm').textContent.match(/Not measured: it needs every context switch/g)?.length === 3);
  await page.goto(`${poor.base}#/blame`);
  await page.waitForFunction(() => /Blame is not measured/.test(document.querySelector('.view').textContent));
  await clean(page);
  poor.close();
});

test('names of VMs are text, however they look', async () => {
  const name = '<img src=x onerror=alert(1)> \u202e"quoted" & a very long name that does not fit into any column of the table';
  const odd = await standIn({ rename: name });
  const page = await open(browser, odd.base, { width: 400 });
  await page.waitForSelector(rows);
  assert.ok((await names(page)).includes(name));
  assert.equal(await page.locator('main img').count(), 0);
  await page.locator(rows).first().click();
  await page.waitForSelector('.view.vm canvas');
  assert.ok((await overflow(page)) <= 0);
  await clean(page);
  odd.close();
});

test('token: asked once, a wrong one again, kept for the tab', async () => {
  const token = 'a'.repeat(43);
  const guarded = await standIn({ token });
  const page = await open(browser, guarded.base);
  await page.waitForSelector('dialog.token');
  assert.deepEqual(page.errors, []);
  await page.fill('.token input', 'b'.repeat(43));
  await page.keyboard.press('Enter');
  await page.waitForSelector('.token .notice');
  await page.fill('.token input', token);
  await page.keyboard.press('Enter');
  await page.waitForSelector(rows);
  // Chromium reports the refused request itself.
  assert.ok(page.errors.every((error) => error.includes('401')), String(page.errors));
  page.errors.length = 0;
  await page.reload();
  await page.waitForSelector(rows);
  await clean(page);
  guarded.close();
});

test('colours: those of the system, and a switch', async () => {
  const page = await open(browser, service.base, { dark: true });
  await page.waitForSelector(rows);
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await background(), 'rgb(20, 23, 27)');
  await page.keyboard.press('t');
  assert.equal(await background(), 'rgb(255, 255, 255)');
  await clean(page);
});

for (const width of [400, 800, 1280, 2200]) {
  test(`no view is wider than a window of ${width} px`, async () => {
    const page = await open(browser, full.base, { width });
    await page.waitForSelector(rows);
    for (const hash of ['#/', '#/vm/early-siskin', '#/blame', '#/map', '#/findings', '#/history']) {
      await page.goto(full.base + hash);
      await page.waitForTimeout(500);
      assert.ok((await overflow(page)) <= 0, `${hash}: ${await overflow(page)} px`);
    }
    await clean(page);
  });
}
