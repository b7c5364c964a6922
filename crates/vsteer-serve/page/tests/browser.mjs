// Opens the page in the system's Chromium, and collects what must not happen: errors in the console, requests to others.

import { chromium } from 'playwright-core';

export const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';

export async function launch() {
  return chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
}

/** A page with `errors` and `outside`: both must stay empty. */
export async function open(browser, base, { width = 1280, height = 900, dark = false, token = null, hash = '' } = {}) {
  const context = await browser.newContext({
    viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', permissions: ['clipboard-read', 'clipboard-write'],
  });
  if (token) await context.addInitScript((value) => sessionStorage.setItem('vsteer-token', value), token);
  const page = await context.newPage();
  page.errors = [];
  page.outside = [];
  page.on('pageerror', (error) => page.errors.push(String(error)));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && page.errors.push(message.text()));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (url.origin !== new URL(base).origin && url.protocol !== 'data:') page.outside.push(request.url());
  });
  await page.goto(base + hash);
  return page;
}

/** Is anything wider than the window? */
export async function overflow(page) {
  return page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
}
