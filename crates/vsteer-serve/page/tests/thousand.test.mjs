// 1,000 VMs: how long do frames take while samples come, and while the reader scrolls? The stand-in makes the VMs up.
//
// Two bounds. The page's own CPU time for each sample and each frame does not depend on other programs. The time between frames
// does, because they delay frames too: its 95th percentile must be within the bound in one of some windows.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { launch, open } from './browser.mjs';
import { standIn } from './stand-in.mjs';

/** The promise, ms. */
const FRAME_MOST = 50;
/** Windows in which other programs may disturb. */
const WINDOWS = 4;

let browser;
let service;
before(async () => {
  browser = await launch();
  service = await standIn({ vms: 1000, everyMs: 500 });
});
after(async () => {
  await browser.close();
  service.close();
});

/** Time of the page's own work for each frame: longest tasks, and gaps between frames. */
async function frames(page, ms, scroll) {
  return page.evaluate(async ({ ms, scroll }) => {
    const gaps = [];
    const tasks = [];
    const observer = new PerformanceObserver((list) => list.getEntries().forEach((entry) => tasks.push(entry.duration)));
    observer.observe({ type: 'longtask' });
    const scroller = document.querySelector('.scroller');
    const begin = performance.now();
    let before = begin;
    while (before < begin + ms) {
      await new Promise((done) => requestAnimationFrame(done));
      const now = performance.now();
      gaps.push(now - before);
      before = now;
      if (scroll && scroller) scroller.scrollTop = (scroller.scrollTop + 240) % (scroller.scrollHeight - scroller.clientHeight);
    }
    observer.disconnect();
    gaps.sort((a, b) => a - b);
    return { count: gaps.length, p50: gaps[Math.floor(gaps.length / 2)], p95: gaps[Math.floor(gaps.length * 0.95)], max: gaps.at(-1), longest: Math.max(0, ...tasks) };
  }, { ms, scroll });
}

/** The first window within the bound, or the last one; `all` counts the frames of all windows. */
async function quiet(page, name, ms, scroll) {
  let all = 0;
  for (let window = 1; ; window += 1) {
    const f = await frames(page, ms, scroll);
    told(name, f);
    all += f.count;
    if (f.p95 <= FRAME_MOST || window === WINDOWS) return { ...f, all };
  }
}

const told = (name, f) => console.log(`# ${name}: ${f.count} frames, median ${f.p50.toFixed(1)} ms, p95 ${f.p95.toFixed(1)} ms, longest ${f.max.toFixed(1)} ms, longest task ${f.longest.toFixed(0)} ms`);

test(`the table keeps frames within ${FRAME_MOST} ms`, async () => {
  const page = await open(browser, service.base);
  await page.waitForSelector('.space .row:not([hidden])');
  assert.equal(await page.locator('.vms .count').textContent(), '1000');
  assert.ok((await page.locator('.space .row').count()) < 60, 'only rows in sight are elements');
  await page.waitForTimeout(1500);
  const client = await page.context().newCDPSession(page);
  await client.send('Performance.enable', { timeDomain: 'threadTicks' });
  const worked = async () => (await client.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration').value * 1e3;
  const before = await worked();
  await page.waitForTimeout(5000);
  const each = (await worked() - before) / 10;
  console.log(`# CPU time of the page for each sample: ${each.toFixed(1)} ms`);
  assert.ok(each <= FRAME_MOST, `${each} ms for each sample`);
  for (const [name, scroll] of [['samples', false], ['samples and scrolling', true]]) {
    const begun = await worked();
    const f = await quiet(page, name, 5000, scroll);
    const cpu = (await worked() - begun) / f.all;
    console.log(`# ${name}: ${cpu.toFixed(1)} ms of CPU time for each frame`);
    assert.ok(cpu <= FRAME_MOST, `${cpu} ms for each frame`);
    assert.ok(f.p95 <= FRAME_MOST, `${name}: ${JSON.stringify(f)}`);
  }
  assert.deepEqual(page.errors, []);
  await page.context().close();
});

test('filter, sort and keys work over all VMs', async () => {
  const page = await open(browser, service.base);
  await page.waitForSelector('.space .row:not([hidden])');
  await page.fill('#filter', 'db-5');
  assert.match(await page.locator('.vms .count').textContent(), /^\d+ of 1000$/);
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.keyboard.press('End');
  const selected = page.locator('.row.selected');
  assert.ok(await selected.isVisible());
  assert.equal(await selected.getAttribute('aria-rowindex'), '1001');
  await page.context().close();
});

test('the other views show 1,000 VMs in bounded pieces', async () => {
  const page = await open(browser, service.base);
  await page.waitForSelector('.space .row:not([hidden])');
  for (const [hash, ready, most] of [['#/blame', '.blame .heat', 1200], ['#/map', '.core', 4000], ['#/findings', 'article.finding', 4000]]) {
    await page.goto(service.base + hash);
    await page.waitForSelector(ready);
    await page.waitForTimeout(500);
    const elements = await page.evaluate(() => document.querySelectorAll('main *').length);
    assert.ok(elements < 2 * most, `${hash}: ${elements} elements`);
    const f = await quiet(page, hash, 1500, false);
    assert.ok(f.p95 <= FRAME_MOST, `${hash}: ${JSON.stringify(f)}`);
  }
  assert.deepEqual(page.errors, []);
  await page.context().close();
});
