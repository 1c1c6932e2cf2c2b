// What is known of the objects under the prefix, and the words for it. Nothing here touches the page.
'use strict';

// All times are of the server's clock, in ms: see now.
const objects = new Map(); // key → {o, time: when it was looked at, row, group, text}
let seen = null; // the last snapshot, without its objects
let budget = null;
let lookedAt = 0; // when the last look ended
let lookTook = null; // requests; null: not known
let connection = 'connecting'; // connecting, open, lost
let trouble = ''; // why the store was not seen
let ahead = Date.now() - performance.now(); // of the server's clock, before that of this page
let aheadIsKnown = false; // of this connection

const now = () => performance.now() + ahead;

// learn takes in the time of an event, which is late by as much as it was under way.
function learn(data) {
  const time = Date.parse(data.time);
  const seems = time - performance.now();
  ahead = aheadIsKnown ? Math.max(ahead, seems) : seems;
  aheadIsKnown = true;
  if (data.budget) budget = data.budget;
  return time;
}

// plain shows what would not be seen, or would turn what is beside it around: a name may be made to look like another.
function plain(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const two = (n) => String(n).padStart(2, '0');

// span is a duration for people: its two largest units.
function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s / 60) % 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

const clockTime = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const dayTime = new Intl.DateTimeFormat(undefined, { year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });

// moment is a time for people: without its day if that is today.
function moment(text) {
  const t = new Date(text);
  return (t.toDateString() === new Date().toDateString() ? clockTime : dayTime).format(t);
}

const plural = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;

// addressOf is where a path of the API is, for a page at base. A browser refuses to ask an address that has a name and a
// password in it, as that of the page may; it sends them by itself.
function addressOf(path, base) {
  const to = new URL('../' + path, base);
  to.username = to.password = '';
  return to;
}

// missing says which objects are not shown, since a look reads no more; '' if none are.
function missing() {
  if (!seen?.cut) return '';
  const last = [...objects.keys()].reduce((a, b) => (inOrder(a, b) ? b : a), '');
  return `Only the first ${plural(objects.size, 'object')} can be seen here: what comes after ${plain(last)} is missing, also from a search. `
    + 'A larger --limit of leasehold serve shows more, or a prefix with fewer objects.';
}

// inOrder reports whether the store lists a before b: by their bytes, which are in the order of code points.
function inOrder(a, b) {
  const [x, y] = [[...a], [...b]];
  const i = x.findIndex((c, n) => c !== y[n]);
  return i < 0 || i < y.length && x[i].codePointAt(0) < y[i].codePointAt(0);
}

// broken says what came of breaking what had the token.
function broken(o, key, token, freed) {
  const of = o?.semaphore && o.semaphore.size > 1 ? `The lease of ${key} with the token ${token}` : key;
  return `${of} was ${freed ? 'freed' : 'free already'}.`;
}

// ——— What an object is

const groups = [
  ['elections', 'Elections'], ['locks', 'Locks'], ['semaphores', 'Semaphores'],
  ['shards', 'Shards'], ['sessions', 'Sessions'], ['other', 'Other'],
];
const groupOfKind = {
  election: 'elections', lock: 'locks', epochs: 'locks', marker: 'locks', moved: 'locks',
  semaphore: 'semaphores', fair_lock: 'semaphores', rw_lock: 'semaphores', session: 'sessions',
};
const kindNames = {
  election: 'election', lock: 'lock', epochs: 'lock with epochs', marker: 'marker', moved: 'lock that was moved',
  semaphore: 'semaphore', fair_lock: 'fair lock', rw_lock: 'reader/writer lock', session: 'session', foreign: 'not a lock',
};
const plans = new Set(); // where workers share shards: what stands before "plan" in its key

const planOf = (key) => (key === 'plan' || key.endsWith('/plan') ? key.slice(0, -4) : null);

// partOf says which part of a set of shards a key is: plan, coordinator, worker, shard, list of names; '' is none.
function partOf(key) {
  if (plans.has(planOf(key))) return 'plan';
  const m = /^(.*\/|)(?:(shards|workers|lists)\/[^/]+|coordinator)$/.exec(key);
  return m && plans.has(m[1]) ? m[2]?.slice(0, -1) || 'coordinator' : '';
}

const groupOf = (o) => (partOf(o.key) ? 'shards' : groupOfKind[o.kind] || 'other');

// stateOf is the word for how an object stands, and the shape beside it. No colour says what these do not.
function stateOf(o) {
  const part = partOf(o.key);
  if (o.kind === 'foreign' && part) return [part, 'none'];
  if (o.state === 'held') {
    if (o.abandoned) return ['abandoned', 'abandoned'];
    const s = o.semaphore;
    if (s && s.waiters.length === 0 && s.taken < s.size) return [s.size > 1000 ? 'read' : 'in use', 'partly'];
    return o.kind === 'session' ? ['goes on', 'held'] : ['held', 'held'];
  }
  if (o.kind === 'session') return ['over', 'free'];
  if (o.rest_ms) return ['rests', 'partly'];
  return [o.state, o.state === 'free' ? 'free' : 'none'];
}

function holderOf(o) {
  if (!o.semaphore) return o.holder || (o.last_holder ? `last ${o.last_holder}` : partOf(o.key) ? '' : o.error || '');
  const [first, ...rest] = o.semaphore.holders;
  return first ? first.holder + (rest.length ? ` and ${rest.length} more` : '') : '';
}

const waitersOf = (o) => (o.semaphore ? o.semaphore.waiters.length : o.waiting);

// leaseOf is what says how long a holder has yet: the object itself, or its session. A session is named by its key in the
// store, and may lie outside of the prefix.
function leaseOf(o) {
  if (o.state !== 'held' || o.semaphore) return null;
  if (!o.session) return objects.get(o.key);
  const prefix = seen.prefix || '';
  return o.session.startsWith(prefix) ? objects.get(o.session.slice(prefix.length)) || null : null;
}

// leftOf is how long a holder has yet, in ms, and of how much; null if that is not known.
function leftOf(o) {
  const entry = leaseOf(o);
  if (!entry || entry.o.state !== 'held' || !entry.o.ttl_ms) return null;
  const { left_ms: left, expires_at: expires, ttl_ms: ttl } = entry.o;
  if (left !== undefined) return { left: left - (now() - entry.time), ttl, about: '' };
  if (expires) return { left: Date.parse(expires) - now(), ttl, about: '~' }; // by the holder's clock
  return null;
}

const stale = () => trouble !== '' || connection !== 'open';

function leftText(o) {
  if (o.semaphore) {
    const { taken, size, holders } = o.semaphore;
    if (size > 1000) return taken === size ? 'one writes' : plural(holders.length, 'reader');
    return `${taken} of ${plural(size, 'slot')}`;
  }
  if (o.rest_ms && o.state === 'free') return `rests ${span(o.rest_ms - (now() - objects.get(o.key).time))}`;
  const l = leftOf(o);
  if (!l && o.state === 'held') return !o.session || o.abandoned || stale() ? 'not known' : 'session goes on';
  if (!l) return '';
  if (l.left > 0) return `${l.about}${span(l.left)}`;
  return stale() ? 'not known now' : `over for ${span(-l.left)}`;
}

// share is how full the bar is: of the time that is left, or of the slots.
function share(o) {
  if (o.semaphore) return o.semaphore.size > 1000 ? Math.min(1, o.semaphore.taken) : o.semaphore.taken / o.semaphore.size;
  const l = leftOf(o);
  return l ? Math.min(1, Math.max(0, l.left / l.ttl)) : null;
}

function heldFor(o) {
  const since = o.state === 'held' ? o.acquired_at : o.renewed_at;
  return since && !o.semaphore ? span(now() - Date.parse(since)) : '';
}

function facts(o) {
  const all = [];
  const add = (name, value) => value !== undefined && value !== '' && all.push([name, String(value)]);
  const held = o.state === 'held';
  add('kind', partOf(o.key) || kindNames[o.kind]);
  if (!o.semaphore) add(held ? 'holder' : 'last holder', o.holder || o.last_holder);
  add('address', o.address || o.last_address);
  add(held || o.semaphore ? 'token' : 'last token', o.token || o.last_token);
  add('term', o.term);
  if (o.acquired_at && !o.semaphore) add(held ? 'held since' : 'was held since', `${moment(o.acquired_at)}${held ? `, for ${span(now() - Date.parse(o.acquired_at))}` : ''}`);
  if (o.renewed_at && !(held && o.session)) add(held ? 'renewed' : 'released', `${moment(o.renewed_at)}, ${span(now() - Date.parse(o.renewed_at))} ago`);
  if (o.ttl_ms) add('TTL', span(o.ttl_ms));
  add('session', o.session);
  add('layout', o.no_if_match ? `${o.layout} without If-Match` : o.layout);
  if (o.here) add('here', `${plural(o.here, 'lease')} of this server`);
  if (!o.semaphore) add('waiting here', o.waiting ? plural(o.waiting, 'caller') + ' of this server' : '');
  for (const [name, value] of Object.entries(o.meta || {})) add(`meta ${name}`, value);
  add('problem', partOf(o.key) ? '' : o.error);
  add('object', o.lock);
  return all;
}

function entryText(s) {
  const slots = s.weight >= 1 << 20 ? 'writes' : s.weight > 1 ? plural(s.weight, 'slot') : '';
  return [s.holder, slots, s.token && `token ${s.token}`, s.since && `since ${moment(s.since)}`, s.abandoned && 'abandoned'].filter(Boolean).join(' · ');
}

