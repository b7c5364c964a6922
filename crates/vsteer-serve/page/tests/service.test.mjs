// The page from the real service, which observes this machine. Build it first: cargo build -p vsteer-serve. VSTEER_SERVE names
// another program. The machine may run no VM: then the page must say so.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, test } from 'node:test';
import { launch, open, overflow } from './browser.mjs';
import { POLICY } from './stand-in.mjs';

const PROGRAM = process.env.VSTEER_SERVE ?? fileURLToPath(new URL('../../../../target/debug/vsteer-serve', import.meta.url));
const skip = existsSync(PROGRAM) ? false : `${PROGRAM} does not exist: build it first`;
const token = randomBytes(32).toString('base64');
const VIEWS = ['#/', '#/blame', '#/map', '#/findings', '#/history'];

let browser;
let child;
let folder;
let base;

const freePort = () => new Promise((done) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => done(port));
  });
});

const answers = () => new Promise((done) => request(base, (response) => done(response.resume().statusCode === 200)).on('error', () => done(false)).end());

before(async () => {
  if (skip) return;
  folder = mkdtempSync(join(tmpdir(), 'vsteer-page-'));
  writeFileSync(join(folder, 'tokens'), `${token}\n`, { mode: 0o600 });
  const port = await freePort();
  base = `http://127.0.0.1:${port}/`;
  child = spawn(PROGRAM, ['--socket', 'none', '--listen', `127.0.0.1:${port}`, '--tokens', join(folder, 'tokens')], { stdio: 'inherit' });
  for (let i = 0; i < 100 && !(await answers()); i += 1) await new Promise((done) => setTimeout(done, 200));
  browser = await launch();
});
after(async () => {
  if (skip) return;
  await browser?.close();
  child.kill();
  rmSync(folder, { recursive: true });
});

const head = (path, headers = {}) => new Promise((done, failed) => {
  request(new URL(path, base), { headers }, (response) => {
    let bytes = 0;
    response.on('data', (chunk) => (bytes += chunk.length)).on('end', () => done({ status: response.statusCode, headers: response.headers, bytes }));
  }).on('error', failed).end();
});

test('headers: a strict policy, hashed names for ever, all below 300 kB', { skip }, async () => {
  const start = await head('/');
  assert.equal(start.headers['content-security-policy'], POLICY);
  assert.equal(start.headers['x-content-type-options'], 'nosniff');
  assert.equal(start.headers['referrer-policy'], 'no-referrer');
  assert.equal(start.headers['cache-control'], 'no-cache');
  const page = await open(browser, base, { token });
  const assets = await page.evaluate(() => [...document.querySelectorAll('script[src], link[href]')].map((e) => new URL(e.src ?? e.href, document.baseURI).pathname));
  assert.ok(assets.length >= 2);
  let all = start.bytes;
  for (const path of assets) {
    const asset = await head(path, { 'accept-encoding': 'gzip' });
    assert.equal(asset.status, 200, path);
    assert.match(asset.headers['cache-control'], /immutable/);
    assert.equal(asset.headers['content-encoding'], 'gzip');
    all += asset.bytes;
  }
  console.log(`# the page: ${all} bytes as gzip`);
  assert.ok(all < 300_000, `${all} bytes`);
  await page.context().close();
});

test('access: files without a token, values only with one, neither under another name', { skip }, async () => {
  assert.equal((await head('/api/v1/state')).status, 401);
  assert.equal((await head('/api/v1/live')).status, 401);
  assert.equal((await head('/metrics')).status, 401);
  assert.equal((await head('/', { host: 'evil.example' })).status, 421);
  const live = await new Promise((done, failed) => {
    request(new URL('/api/v1/live', base), { headers: { authorization: `Bearer ${token}` } }, (response) => {
      response.destroy();
      done(response.headers);
    }).on('error', failed).end();
  });
  assert.equal(live['content-type'], 'text/event-stream');
  // The next stream begins on a new connection, which lasts longer than the stream.
  assert.equal(live['connection'], 'close');
  assert.equal((await head('/api/v1', { authorization: `Bearer ${token}` })).status, 200);
});

test('every view, live, at 1280 and 400 px, without an error or a request to others', { skip }, async () => {
  for (const width of [1280, 400]) {
    const page = await open(browser, base, { width });
    await page.waitForSelector('dialog.token');
    await page.fill('.token input', token);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => /^Live/.test(document.querySelector('.connection').textContent), null, { timeout: 20_000 });
    const first = await page.locator('.connection').textContent();
    await page.waitForFunction((was) => document.querySelector('.connection').textContent !== was, first, { timeout: 5000 });
    for (const hash of VIEWS) {
      await page.goto(base + hash);
      await page.waitForSelector('.view');
      await page.waitForTimeout(700);
      assert.ok((await overflow(page)) <= 0, `${hash} at ${width} px`);
    }
    await page.goto(`${base}#/`);
    const row = page.locator('.space .row:not([hidden])').first();
    if (await row.isVisible()) {
      await row.click();
      await page.waitForSelector('.view.vm canvas');
    } else {
      assert.match(await page.locator('.vms .empty').textContent(), /no VM|second sample/);
    }
    assert.deepEqual(page.errors, []);
    assert.deepEqual(page.outside, []);
    await page.context().close();
  }
});
