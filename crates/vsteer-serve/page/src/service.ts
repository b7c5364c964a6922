// Asks the service. Every request has a path below this page's own, so the page never talks to another server.
//
// Over TCP the service needs a token. The page asks for it once and keeps it for this tab only. EventSource cannot send a
// token, so the page reads the event stream with fetch().

import type { Sample } from './types';

const TOKEN = 'vsteer-token';
/** After this long without an event the stream counts as dead. */
const SILENCE_MS = 70_000;

export type Answer<T> = { ok: true; data: T } | { ok: false; absent: boolean; why: string };
export type Connection = 'connecting' | 'live' | 'lost';

let askForToken: (wrong: boolean) => Promise<string> = async () => '';
let asking: Promise<string> | null = null;
let paths: string[] | null = null;

export function onTokenNeeded(ask: (wrong: boolean) => Promise<string>): void {
  askForToken = ask;
}

function url(path: string): URL {
  return new URL(path, document.baseURI);
}

async function newToken(wrong: boolean): Promise<void> {
  asking ??= askForToken(wrong).finally(() => (asking = null));
  sessionStorage.setItem(TOKEN, await asking);
}

/** Sends the token if there is one, and asks for another one if the service does not know it. */
async function request(path: string, init: RequestInit = {}): Promise<Response> {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers: Record<string, string> = token ? { authorization: `Bearer ${token}` } : {};
    const response = await fetch(url(path), { ...init, headers, cache: 'no-store' });
    if (response.status !== 401) return response;
    if (token === sessionStorage.getItem(TOKEN)) await newToken(token !== null);
  }
}

/** Asks whether a token is needed, so that the first request is not refused. */
export async function begin(): Promise<void> {
  if (sessionStorage.getItem(TOKEN)) return;
  const response = await fetch(url('access.json'), { cache: 'no-store' }).catch(() => null);
  if (response?.ok && (await response.json()).token) await newToken(false);
}

/** Does the service have this answer? It lists all of them. */
async function offers(path: string): Promise<boolean> {
  if (!paths) {
    const response = await request('api/v1');
    const index = (await response.json()) as { answers?: { path: string }[] };
    paths = (index.answers ?? []).map((answer) => answer.path);
  }
  const bare = (text: string) => text.replace(/^\/?/, '/').split('?')[0]!;
  return paths.some((offered) => bare(offered) === bare(path));
}

/** What an error says: faults come as JSON, other errors as text. */
function reason(text: string): string {
  try {
    const { what, help } = (JSON.parse(text) as { error: { what: string; help: string | null } }).error;
    return help ? `${what}: ${help}` : what;
  } catch {
    return text.trim();
  }
}

export async function get<T>(path: string): Promise<Answer<T>> {
  try {
    if (!(await offers(path))) return { ok: false, absent: true, why: 'This service does not offer it.' };
    const response = await request(path);
    if (response.ok) return { ok: true, data: (await response.json()) as T };
    const why = reason(await response.text()) || `The service answered ${response.status}.`;
    return { ok: false, absent: response.status === 404, why };
  } catch (error) {
    return { ok: false, absent: false, why: `The service does not answer (${String(error)}).` };
  }
}

/** Passes on every event, and connects again when the stream ends. */
export function listen(onSample: (sample: Sample) => void, onConnection: (state: Connection) => void): void {
  let retryMs = 1_000;
  let failures = 0;
  const once = async () => {
    const stop = new AbortController();
    let silence = setTimeout(() => stop.abort(), SILENCE_MS);
    try {
      const response = await request('api/v1/live', { signal: stop.signal });
      if (!response.ok || !response.body) throw new Error(`status ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(() => stop.abort(), SILENCE_MS);
        text += value;
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
          const event = text.slice(0, end);
          text = text.slice(end + 2);
          for (const line of event.split('\n')) {
            if (line.startsWith('retry:')) retryMs = Number(line.slice(6)) || retryMs;
            if (!line.startsWith('data:')) continue;
            failures = 0;
            onConnection('live');
            onSample(JSON.parse(line.slice(5)) as Sample);
          }
        }
      }
    } catch {
      failures += 1;
    } finally {
      clearTimeout(silence);
    }
    // After a stream that ended in order, the next one begins at once.
    if (failures > 0) onConnection('lost');
    // Another version may have been started meanwhile.
    if (failures > 0) paths = null;
    setTimeout(once, failures > 0 ? Math.min(retryMs * 2 ** (failures - 1), 15_000) : 50);
  };
  void once();
}
