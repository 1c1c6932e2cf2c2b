// The page of leasehold serve: what lies under the prefix, by the events of the server. It loads nothing from
// elsewhere, and all that comes out of a record is text: nothing here makes markup of it.
'use strict';

const $ = (id) => document.getElementById(id);
const api = (path) => addressOf(path, document.baseURI);

let query = ''; // what is looked for
let kind = ''; // the group that is shown; '' is all
let opened = ''; // the key whose details are shown
let past = null; // {key, terms}: what was asked for of its past

// ——— The small things

function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = plain(text);
  return node;
}

// say sets a text, and touches nothing if it is there already: what is selected stays selected.
function say(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

function show(node, is) {
  if (node.hidden === is) node.hidden = !is;
}

function classed(node, name) {
  if (node.className !== name) node.className = name;
}

// fill makes the children of a list those of items, and keeps the ones that are there.
function fill(list, items, create, update) {
  while (list.children.length > items.length) list.lastElementChild.remove();
  items.forEach((item, i) => {
    if (!list.children[i]) list.append(create());
    update(list.children[i], item, i);
  });
}

// ——— Rows: one for each object, which stays the same node for as long as the object is there

const bodies = {}; // of the table, by group
let disordered = false; // the rows have to be put in order
const watched = new IntersectionObserver((entries) => {
  for (const e of entries) {
    if (e.isIntersecting) visible.add(e.target);
    else visible.delete(e.target);
    if (e.isIntersecting) tickRow(objects.get(e.target.dataset.key));
  }
}, { rootMargin: '200px' });
const visible = new Set(); // rows that can be seen: only their times run

function newRow(key) {
  const row = make('tr');
  row.setAttribute('role', 'row');
  row.dataset.key = key;
  const cell = (name) => {
    const td = make('td', name);
    td.setAttribute('role', 'cell');
    row.append(td);
    return td;
  };
  const state = cell('state');
  const link = make('a', '', key);
  link.href = '#' + new URLSearchParams({ key });
  const parts = { mark: make('span', 'mark'), word: make('span', 'word'), link, holder: null, bar: make('progress'), left: make('span', 'text') };
  parts.mark.setAttribute('aria-hidden', 'true');
  state.append(parts.mark, ' ', parts.word);
  cell('key').append(link);
  parts.holder = cell('holder');
  parts.token = cell('token');
  parts.age = cell('age');
  parts.bar.max = 1;
  cell('left').append(parts.bar, parts.left);
  parts.wait = cell('wait');
  row.parts = parts;
  return row;
}

// draw shows what is known of an object in its row.
function draw(entry) {
  const { o, row } = entry;
  const p = row.parts;
  const [word, mark] = stateOf(o);
  say(p.word, word);
  classed(p.mark, 'mark ' + mark);
  classed(p.holder, 'holder' + (o.state === 'held' ? '' : ' past'));
  say(p.holder, holderOf(o));
  p.holder.title = plain(o.address ? `${o.holder} at ${o.address}` : '');
  say(p.token, String(o.token || o.last_token || ''));
  const waiting = waitersOf(o);
  say(p.wait, waiting ? `${waiting} waiting` : '');
  entry.text = [o.key, o.holder, o.last_holder, o.address, o.token, o.last_token, word, kindNames[o.kind], o.error, o.session,
    ...Object.entries(o.meta || {}).flat(), ...(o.semaphore ? [...o.semaphore.holders, ...o.semaphore.waiters].map((s) => s.holder) : []),
  ].filter(Boolean).join('\n').toLowerCase();
  tickRow(entry);
}

// tickRow lets the times of a row run.
function tickRow(entry) {
  if (!entry) return;
  const p = entry.row.parts;
  const full = share(entry.o);
  show(p.bar, full !== null);
  if (full !== null) p.bar.value = full;
  classed(p.bar, entry.o.semaphore ? 'slots' : full < 0.2 ? 'low' : '');
  say(p.left, leftText(entry.o));
  say(p.age, heldFor(entry.o));
}

// put takes in an object.
function put(o, time) {
  let entry = objects.get(o.key);
  if (!entry) {
    entry = { row: newRow(o.key), group: '' };
    objects.set(o.key, entry);
    watched.observe(entry.row);
  }
  const { group } = entry;
  Object.assign(entry, { o, time });
  const plan = planOf(o.key);
  if (plan !== null && plans.has(plan) !== (o.kind === 'foreign')) {
    plans[o.kind === 'foreign' ? 'add' : 'delete'](plan);
    sortOut();
  }
  entry.group = groupOf(o);
  draw(entry);
  disordered ||= entry.group !== group || query !== '';
}

// sortOut finds out again what belongs to which group.
function sortOut() {
  for (const e of objects.values()) {
    e.group = groupOf(e.o);
    draw(e);
  }
  disordered = true;
}

function drop(key) {
  const entry = objects.get(key);
  if (!entry) return;
  if (plans.delete(planOf(key))) sortOut();
  disordered = true;
  watched.unobserve(entry.row);
  visible.delete(entry.row);
  entry.row.remove();
  objects.delete(key);
}

const byKey = (a, b) => (a.o.key < b.o.key ? -1 : 1);

// arrange puts the rows in order, moves none that is in its place, and hides those that are not looked for.
function arrange() {
  disordered = false;
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = {};
  let shown = 0;
  for (const [group] of groups) counts[group] = [0, 0];
  const of = {};
  for (const e of objects.values()) (of[e.group] ||= []).push(e);
  for (const [group] of groups) {
    const body = bodies[group];
    let next = body.firstElementChild.nextElementSibling;
    for (const e of (of[group] || []).sort(byKey)) {
      const fits = (!kind || kind === group) && words.every((w) => e.text.includes(w));
      counts[group][0]++;
      if (fits) counts[group][1]++;
      show(e.row, fits);
      if (e.row === next) next = next.nextElementSibling;
      else body.insertBefore(e.row, next);
    }
    shown += counts[group][1];
    show(body, counts[group][1] > 0);
    say(body.firstElementChild.firstElementChild.lastElementChild, String(counts[group][1]));
  }
  for (const button of $('kinds').children) {
    const n = button.dataset.kind ? counts[button.dataset.kind][0] : objects.size;
    show(button, n > 0);
    button.setAttribute('aria-pressed', String(kind === button.dataset.kind));
    say(button.lastElementChild, String(n));
  }
  say($('count'), shown === objects.size ? '' : `${shown} of ${objects.size} shown`);
  show($('empty'), shown === 0);
  say($('empty'), !seen ? 'Nothing was seen yet.' : objects.size ? 'Nothing here is like that.' : 'There is nothing under this prefix yet.');
}

// flash marks a row as changed for a moment.
function flash(entry) {
  entry.row.classList.add('changed');
  clearTimeout(entry.flashed);
  entry.flashed = setTimeout(() => entry.row.classList.remove('changed'), 2500);
}

// ——— Details

const line = () => make('li');

// termsOf are the leases of a lock, the last one first, and the one that goes on before them.
function termsOf(o) {
  if (past && past.key === o.key && (!past.terms.length || past.terms[0].token >= (o.token || o.last_token || 0))) return past.terms;
  const terms = o.history || [];
  if (o.state !== 'held' || o.semaphore || o.kind === 'session') return terms;
  return [{ token: o.token, holder: o.holder, address: o.address, began: o.acquired_at, leases: 1 }, ...terms];
}

// drawPast draws who has had a lock as a strip of time, and as a list.
function drawPast(o) {
  const terms = termsOf(o);
  const more = !o.semaphore && o.kind !== 'session' && !!(o.token || o.last_token);
  show($('past'), more || terms.length > 0);
  show($('more'), more);
  const names = [...new Set(terms.map((t) => t.holder))];
  const shade = (t) => `h${names.indexOf(t.holder) % 6}`;
  const timed = terms.slice(0, 16).filter((t) => t.began);
  const first = Math.min(...timed.map((t) => Date.parse(t.began)));
  const long = Math.max(1, now() - first);
  fill($('strip'), timed, () => make('span'), (node, t) => {
    const began = Date.parse(t.began);
    classed(node, shade(t) + (t.ended ? '' : ' goes-on'));
    node.style.left = `${((began - first) / long) * 100}%`;
    node.style.width = `${(((t.ended ? Date.parse(t.ended) : now()) - began) / long) * 100}%`;
  });
  for (const id of ['strip', 'axis']) show($(id), timed.length > 0);
  say($('axis').firstElementChild, timed.length ? moment(first) : '');
  fill($('terms'), terms, () => {
    const li = line();
    li.append(make('span', 'shade'), make('b'), make('span', 'what'));
    return li;
  }, (li, t) => {
    classed(li.children[0], 'shade ' + shade(t));
    say(li.children[1], t.holder || 'unknown');
    const lasted = t.began && `for ${span((t.ended ? Date.parse(t.ended) : now()) - Date.parse(t.began))}`;
    say(li.children[2], [`token ${t.token}`, t.leases > 1 && plural(t.leases, 'lease'), t.began && `from ${moment(t.began)}`, lasted, t.ended ? t.why || 'ended' : t.began && 'holds it now']
      .filter(Boolean).join(' · '));
  });
}

// under are the objects whose holders rely on a session, by its key in the store.
function under(key) {
  return [...objects.values()].filter(({ o }) => o.session === key || o.semaphore?.holders.some((h) => h.session === key)).sort(byKey);
}

function drawBreak(o) {
  const held = o.state === 'held' && o.token && o.kind !== 'session' && o.kind !== 'foreign';
  show($('break'), !!(seen && seen.break && held) || $('break-said').textContent !== '');
  const session = o.session || (o.semaphore && 'one');
  const others = under(o.session || '').length - 1;
  say($('break-warning'), 'The holder, if it is alive after all, may work on until it finds out, while another already holds the lock. Only what checks the token is protected from that.'
    + (o.here ? ' Of what this server holds, only that one lease ends.' : '')
    + (session && !(o.here && !o.semaphore) ? ` If another process holds it, its session ends too, with all that is under that${others > 0 ? `: ${plural(others, 'other object')} seen here` : ''}.` : ''));
}

// drawDetail shows all that is known of the object that was opened.
function drawDetail() {
  const entry = opened && objects.get(opened);
  show($('detail'), !!opened);
  document.body.classList.toggle('opened', !!opened);
  for (const row of document.querySelectorAll('tr[aria-current]')) if (row !== entry?.row) row.removeAttribute('aria-current');
  if (!opened) return;
  say($('detail-key'), opened);
  if (!entry) {
    say($('detail-state'), seen ? 'There is no such object now.' : 'Nothing was seen yet.');
    for (const id of ['slots', 'under', 'past', 'break']) show($(id), false);
    fill($('facts'), [], null, null);
    show($('detail-bar').parentElement, false);
    return;
  }
  const { o } = entry;
  entry.row.setAttribute('aria-current', 'true');
  const [word] = stateOf(o);
  say($('detail-state'), [word, holderOf(o), waitersOf(o) && `${waitersOf(o)} waiting`].filter(Boolean).join(' · '));
  const full = share(o);
  show($('detail-bar').parentElement, full !== null);
  if (full !== null) $('detail-bar').value = full;
  say($('detail-left'), leftText(o) + (o.semaphore ? '' : leftOf(o)?.left > 0 ? ' left' : ''));
  fill($('facts'), facts(o), () => {
    const div = make('div');
    div.append(make('dt'), make('dd'));
    return div;
  }, (div, [name, value]) => {
    say(div.firstElementChild, name);
    say(div.lastElementChild, value);
  });
  show($('slots'), !!o.semaphore);
  fill($('holders'), o.semaphore ? o.semaphore.holders : [], line, (li, s) => say(li, entryText(s)));
  fill($('waiters'), o.semaphore ? o.semaphore.waiters : [], line, (li, s) => say(li, entryText(s)));
  show($('nobody'), !!o.semaphore && !o.semaphore.waiters.length);
  const leases = o.kind === 'session' ? under((seen.prefix || '') + o.key) : [];
  show($('under'), leases.length > 0);
  const items = leases.slice(0, 50).map((e) => e.o.key);
  fill($('leases'), items, () => {
    const li = line();
    li.append(make('a'));
    return li;
  }, (li, key) => {
    say(li.firstElementChild, key);
    li.firstElementChild.href = '#' + new URLSearchParams({ key });
  });
  say($('under').firstElementChild, `Under this session: ${plural(leases.length, 'object')}${leases.length > 50 ? ', of which the first 50 are' : ''}`);
  drawPast(o);
  drawBreak(o);
}

// ——— How it stands

function drawStanding() {
  const age = lookedAt ? now() - lookedAt : 0;
  const late = seen ? 3 * seen.every_ms + 10000 : 30000;
  let word = 'live';
  let state = 'live';
  if (connection === 'connecting') [word, state] = ['connecting', 'waits'];
  else if (connection === 'lost') [word, state] = ['the server does not answer, connecting again', 'lost'];
  else if (trouble) [word, state] = ['the store does not answer', 'lost'];
  else if (!seen) [word, state] = ['waits for the first look', 'waits'];
  else if (age > late && budget && budget.spent >= budget.requests_per_minute) [word, state] = ['waits for the budget of looks', 'waits'];
  else if (age > late) [word, state] = [`no look has ended for ${span(late)}`, 'waits'];
  say($('state'), word);
  say($('age'), !lookedAt ? '' : age < 1000 ? 'seen just now' : `seen ${span(age)} ago`);
  if (document.body.dataset.state !== state) document.body.dataset.state = state;
  const lacks = missing();
  show($('missing'), lacks !== '');
  say($('missing'), lacks);
  show($('trouble'), trouble !== '');
  say($('trouble-text'), trouble && `The store does not answer: ${trouble}.`);
  say($('trouble-age'), lookedAt ? `What is shown is ${span(age)} old, and may be so no more.` : 'Nothing was seen yet.');
  if (!budget) return;
  const money = budget.dollars_a_month;
  say($('budget'), [
    `looks ${budget.spent.toLocaleString('en')} of ${budget.requests_per_minute.toLocaleString('en')} requests a minute`,
    lookTook !== null && `the last one ${plural(lookTook, 'request')}`, `${budget.refused.toLocaleString('en')} put off`,
    `all sent ${budget.sent.toLocaleString('en')} a minute`,
    money === undefined ? 'no prices are known' : `$${money.toFixed(2)} a month at ${budget.price}`,
  ].filter(Boolean).join(' · '));
}

// ——— Events

const handlers = {
  snapshot(data) {
    const time = learn(data);
    const { objects: all, ...rest } = data;
    seen = rest;
    lookedAt = time;
    trouble = data.trouble || '';
    const there = new Set(all.map((o) => o.key));
    for (const key of objects.keys()) if (!there.has(key)) drop(key);
    for (const o of all) {
      const before = objects.get(o.key)?.o;
      put(o, time);
      if (before && (before.token !== o.token || before.state !== o.state)) flash(objects.get(o.key));
    }
    const place = seen.store.replace(/\/$/, '') + (seen.prefix ? '/' + seen.prefix : '');
    say($('place'), place);
    document.title = `${place} · leasehold`;
    disordered = true;
  },
  change(data) {
    put(data.object, learn(data));
    if (data.change !== 'renewed') flash(objects.get(data.object.key));
  },
  gone(data) {
    learn(data);
    drop(data.key);
  },
  trouble(data) {
    learn(data);
    trouble = data.error;
  },
  looked(data) {
    lookedAt = learn(data);
    lookTook = data.requests;
    if (seen) seen.cut = data.cut;
    trouble = '';
  },
};

let tries = 0;

// connect subscribes. A browser comes again by itself when a connection breaks off, and not when it was refused.
function connect() {
  const events = new EventSource(api('v1/events'));
  events.onopen = () => {
    [connection, tries, aheadIsKnown] = ['open', 0, false];
  };
  events.onerror = () => {
    connection = 'lost';
    if (events.readyState === EventSource.CLOSED) {
      events.close();
      setTimeout(connect, Math.min(30000, 1000 * 2 ** tries++));
    }
    drawStanding();
  };
  for (const [name, handle] of Object.entries(handlers)) {
    events.addEventListener(name, (e) => {
      handle(JSON.parse(e.data));
      soon();
    });
  }
}

// soon draws what is not a row's, once for all events that come together.
let planned = 0;
function soon() {
  planned ||= setTimeout(() => {
    planned = 0;
    if (disordered) arrange();
    drawStanding();
    drawDetail();
  }, 20);
}

function tick() {
  for (const row of visible) tickRow(objects.get(row.dataset.key));
  drawStanding();
  drawDetail();
}

// ask sends a request, and returns what it is answered, or throws why there is no answer for people.
async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(api(path), body && { method: 'POST', headers: { 'Content-Type': 'application/json' }, body });
  } catch {
    throw new Error('the server does not answer');
  }
  const data = await answer.json().catch(() => ({ title: `the answer ${answer.status} cannot be read` }));
  if (!answer.ok) throw new Error(data.detail || data.title || String(answer.status));
  return data;
}

const pathOf = (key, what) => `v1/locks/${encodeURIComponent(key)}/${what}`;

async function askPast() {
  const key = opened;
  say($('more-said'), 'asking …');
  try {
    const { history } = await ask(pathOf(key, 'history'));
    past = { key, terms: history };
    say($('more-said'), `${plural(history.length, 'lease')} known of`);
  } catch (err) {
    say($('more-said'), err.message);
  }
  drawDetail();
}

async function breakIt(event) {
  event.preventDefault();
  const key = opened;
  const token = $('break-token').value.trim();
  const before = objects.get(key)?.o;
  if (!/^[0-9]+$/.test(token)) return say($('break-said'), 'A token is a number.');
  say($('break-said'), 'asking …');
  try {
    const { freed } = await ask(pathOf(key, 'break'), `{"token":${token.replace(/^0+(?=.)/, '')}}`);
    say($('break-said'), broken(before, key, token, freed));
    $('break-token').value = '';
  } catch (err) {
    say($('break-said'), `Nothing was broken: ${err.message}`);
  }
}

// ——— What the user does

// fromHash takes in what the address says: what is looked for, and what is open.
function fromHash() {
  const p = new URLSearchParams(location.hash.slice(1));
  const key = p.get('key') || '';
  if (p.has('q') || !key) query = p.get('q') || '';
  if (p.has('kind') || !key) kind = groups.some(([g]) => g === p.get('kind')) ? p.get('kind') : '';
  if ($('search').value !== query) $('search').value = query;
  if (key !== opened) {
    for (const id of ['more-said', 'break-said']) say($(id), '');
    $('break-token').value = '';
    $('break').open = false;
    past = null;
    opened = key;
    drawDetail();
    if (key) $('detail').scrollTop = 0;
    if (key && narrow.matches) $('detail').focus();
  }
  arrange();
}

const narrow = matchMedia('(max-width: 60rem)');

// toHash makes the address say it, and takes it in. What is opened by hand can be gone back from.
function toHash(change, opens) {
  const p = new URLSearchParams();
  const all = { key: opened, kind, q: query, ...change };
  for (const name of ['key', 'kind', 'q']) if (all[name]) p.set(name, all[name]);
  [query, kind] = [all.q, all.kind];
  history[opens ? 'pushState' : 'replaceState'](null, '', '#' + p);
  fromHash();
}

const links = () => [...document.querySelectorAll('tbody:not([hidden]) tr[data-key]:not([hidden]) a')];

// step goes so many rows on, or to one end.
function step(by) {
  const all = links();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement);
  const next = by === Infinity ? all.length - 1 : by === -Infinity ? 0 : at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by));
  all[next].focus();
  all[next].scrollIntoView({ block: 'nearest' });
  if (opened && !narrow.matches) toHash({ key: all[next].closest('tr').dataset.key });
}

function close() {
  const link = objects.get(opened)?.row.parts.link;
  toHash({ key: '' });
  link?.focus();
}

const keys = {
  '/': () => $('search').focus(), '?': () => $('help').showModal(), Escape: () => (opened ? close() : query && toHash({ q: '' })),
  j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1),
  Home: () => step(-Infinity), End: () => step(Infinity),
};

document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.altKey || e.metaKey || e.isComposing || $('help').open) return;
  const typing = e.target.matches('input');
  if (typing && e.target.id === 'search' && e.key === 'Escape') {
    if (query) toHash({ q: '' });
    else e.target.blur();
  } else if (typing && e.target.id === 'search' && (e.key === 'ArrowDown' || e.key === 'Enter')) {
    step(1);
  } else if (typing && e.key !== 'Escape' || !keys[e.key] || e.key.length > 1 && e.key !== 'Escape' && $('detail').contains(e.target)) {
    return; // arrows scroll the details
  } else {
    keys[e.key]();
  }
  e.preventDefault();
});

function begin() {
  const table = document.querySelector('table');
  for (const [group, title] of [['', 'All'], ...groups]) {
    const button = make('button', '', title + ' ');
    button.type = 'button';
    button.dataset.kind = group;
    button.append(make('span', 'n'));
    button.addEventListener('click', () => toHash({ kind: group }));
    $('kinds').append(button);
    if (!group) continue;
    const body = make('tbody');
    const head = make('tr', 'group');
    const th = make('th', '', title + ' ');
    body.setAttribute('role', 'rowgroup');
    head.setAttribute('role', 'row');
    th.setAttribute('role', 'rowheader');
    th.append(make('span', 'n'));
    head.append(th);
    body.append(head);
    table.append(body);
    bodies[group] = body;
  }
  table.addEventListener('click', (e) => {
    const row = e.target.closest('tr[data-key]');
    if (!row || e.defaultPrevented || String(getSelection())) return;
    if (e.target.tagName === 'A' && (e.ctrlKey || e.metaKey || e.shiftKey)) return;
    e.preventDefault();
    if (row.dataset.key === opened) toHash({ key: '' });
    else toHash({ key: row.dataset.key }, true);
  });
  $('search').addEventListener('input', (e) => toHash({ q: e.target.value }));
  $('close').addEventListener('click', close);
  $('more').addEventListener('click', askPast);
  $('break-form').addEventListener('submit', breakIt);
  addEventListener('hashchange', fromHash);
  fromHash();
  connect();
  setInterval(tick, matchMedia('(prefers-reduced-motion: reduce)').matches ? 1000 : 250);
}

begin();
