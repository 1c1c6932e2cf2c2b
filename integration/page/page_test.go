package page_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold/leasehold/serve"
	"github.com/leasehold/leasehold/shard"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/faultstore"
)

// scene is a prefix with something of everything.
func scene(t *testing.T) *site {
	t.Helper()
	s := begin(t, serve.Options{})
	for i, name := range []string{"ci-runner-3", "ci-runner-1", "ci-runner-3", "ci-runner-2"} {
		l := s.acquires("locks", "deploy/production", fmt.Sprintf(`{"ttl":"1h","holder":%q}`, name))
		time.Sleep(time.Duration(300+250*i) * time.Millisecond) // so that there is a past to be seen
		s.releases(l)
	}
	s.acquires("locks", "deploy/production", `{"ttl":"1h","holder":"ci-runner-1","meta":{"commit":"4f2a91c","branch":"main"}}`)
	s.waits("locks", "deploy/production", `{"ttl":"1h","holder":"ci-runner-3","wait":"1h"}`)
	s.acquires("locks", "backup/orders", `{"ttl":"1h","holder":"db-2"}`)
	s.releases(s.acquires("locks", "backup/users", `{"ttl":"1h","holder":"db-1"}`))
	s.acquires("locks", "migrate/schema", `{"ttl":"1h","holder":"deploy-7f9c"}`)
	s.acquires("elections", "scheduler", `{"ttl":"1h","holder":"web-2"}`)
	s.acquires("elections", "billing/leader", `{"ttl":"1h","holder":"web-1"}`)
	for i := range 3 {
		s.acquires("locks", "render/gpu", fmt.Sprintf(`{"ttl":"1h","slots":3,"holder":"render-%d"}`, i+1))
	}
	for i := range 2 {
		body := fmt.Sprintf(`{"ttl":"1h","slots":3,"holder":"render-%d","wait":"1h"}`, i+4)
		s.waits("locks", "render/gpu", body)
		waitersOf(t, s, i+1)
	}
	s.acquires("locks", "reports/cache", `{"ttl":"1h","shared":true,"holder":"api-1"}`)
	s.acquires("locks", "reports/cache", `{"ttl":"1h","shared":true,"holder":"api-2"}`)
	if lease, err := holder(t, s.inner, "export/nightly", "cron-1", time.Minute).Acquire(t.Context()); err != nil {
		t.Fatal(err)
	} else {
		t.Cleanup(func() { _ = lease.Release(context.WithoutCancel(t.Context())) })
	}
	if _, err := s.inner.Put(t.Context(), "notes.txt", []byte("hello"), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	workers(t, s)
	return s
}

// waitersOf waits until so many wait for the semaphore of the scene.
func waitersOf(t *testing.T, s *site, n int) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		o, err := s.inner.Get(t.Context(), "render/gpu", "")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Count(string(o.Body), `"holder":"render-`) == 3+n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d do not wait: %s", n, o.Body)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// workers share four shards between two.
func workers(t *testing.T, s *site) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 2)
	for i := range 2 {
		w, err := shard.NewWorker(s.inner, "convert", []string{"a-f", "g-m", "n-s", "t-z"}, &shard.Options{TTL: time.Minute, Holder: fmt.Sprintf("worker-%d", i+1)})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			done <- w.Run(ctx, func(ctx context.Context, _ shard.Shard) error {
				<-ctx.Done()
				return nil
			})
		}()
	}
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("a worker ended with %v", err)
			}
		}
	})
}

// watchNodes has the page count the nodes that come and go in the table, and remember which ones there were.
const watchNodes = `(window.moved = 0, window.kept = [...document.querySelectorAll('tr[data-key]')],
	new MutationObserver((all) => { for (const m of all) for (const n of [...m.addedNodes, ...m.removedNodes]) if (n.nodeType === 1) moved++; })
		.observe(document.querySelector('table'), { childList: true, subtree: true }), true)`

// All that is there is shown, in words; its time runs; and nothing flickers while nothing happens.
func TestIdle(t *testing.T) {
	c := launch(t)
	s := scene(t)
	b := c.open(t, s, view{})
	for key, want := range map[string][3]string{
		"deploy/production": {"held", "ci-runner-1", "1 waiting"},
		"backup/users":      {"free", "last db-1", ""},
		"scheduler":         {"held", "web-2", ""},
		"render/gpu":        {"held", "render-1 and 2 more", "2 waiting"},
		"reports/cache":     {"read", "api-1 and 1 more", ""},
		"export/nightly":    {"held", "cron-1", ""},
		"notes.txt":         {"not a lock", "", ""},
		"convert/plan":      {"plan", "", ""},
	} {
		b.waits(key, fmt.Sprintf("%s && %s === %q && %s.includes(%q) && %s === %q", row(key), text(key, "state"), want[0], text(key, "holder"), want[1], text(key, "wait"), want[2]))
	}
	b.waits("the shards", `document.querySelectorAll('tr[data-key^="convert/shards/"]').length === 4`)
	b.is("the groups", `[...document.querySelectorAll('tbody:not([hidden]) .group th')].map((th) => th.innerText.replace(/\s+/g, ' ')).join() === 'Elections 2,Locks 5,Semaphores 2,Shards 9,Sessions ' + document.querySelectorAll('tr[data-key*="sessions/"]').length + ',Other 1'`)
	b.is("each state is a word", `[...document.querySelectorAll('td.state')].every((td) => td.innerText.trim())`)
	b.is("the budget", `/^looks \d+ of 600 requests a minute · the last one \d+ requests? · \d+ put off · all sent \d+ a minute · \$\d+\.\d\d a month at /.test(document.getElementById('budget').innerText)`)
	b.is("where it is", `document.title === 's3://my-bucket/locks · leasehold'`)
	b.is("the slots", text("render/gpu", "left")+` === '3 of 3 slots'`)
	b.is("the readers", text("reports/cache", "left")+` === '2 readers'`)

	b.is("the nodes are watched", watchNodes)
	left := get[float64](b, row("export/nightly")+".querySelector('progress').value")
	b.waits("the time runs", fmt.Sprintf("%s.querySelector('progress').value < %v", row("export/nightly"), left))
	b.waits("a lock under a session has its time", text("backup/orders", "left")+".match(/^\\d+ s$/)")
	looked := get[float64](b, "lookedAt")
	b.waits("five looks", fmt.Sprintf("lookedAt > %f + 5000", looked))
	b.is("nothing flickers", `moved === 0 && kept.every((row) => row.isConnected) && kept.length === document.querySelectorAll('tr[data-key]').length`)
	b.picture("idle", false)

	dark := c.open(t, s, view{dark: true, hash: "#key=deploy%2Fproduction"})
	dark.waits("the details", `document.getElementById('terms').children.length === 5`)
	dark.is("who had it", `document.getElementById('terms').innerText.match(/ci-runner-\d/g).join() === 'ci-runner-1,ci-runner-2,ci-runner-3,ci-runner-1,ci-runner-3'`)
	dark.is("what is known", `['meta commit4f2a91c', 'waiting here1 caller of this server', 'objects3://my-bucket/locks/deploy/production'].every((w) => document.getElementById('facts').innerText.replaceAll('\n', '').includes(w))`)
	dark.is("it is dark", `getComputedStyle(document.body).backgroundColor === 'rgb(21, 24, 28)'`)
	dark.is("nothing can be broken", `document.getElementById('break').hidden`)
	dark.is("all that is known is asked for", `(document.getElementById('more').click(), true)`)
	dark.waits("it is answered", `document.getElementById('more-said').innerText === '5 leases known of'`)
	dark.picture("idle-dark", true)
	dark.is("the slots are opened", `(location.hash = '#key=render%2Fgpu', true)`)
	dark.waits("the waiters in order", `[...document.getElementById('waiters').children].map((li) => li.innerText.split(' ')[0]).join() === 'render-4,render-5'`)
	dark.is("the holders", `document.getElementById('holders').children.length === 3 && /token \d+ · since/.test(document.getElementById('holders').innerText)`)
	dark.picture("semaphore-dark", false)
}

// A leader resigns, and the other candidate is shown, in the same row of the same document.
func TestElection(t *testing.T) {
	c := launch(t)
	s := begin(t, serve.Options{})
	a := s.acquires("elections", "scheduler", `{"ttl":"1h","holder":"web-1"}`)
	next := s.waits("elections", "scheduler", `{"ttl":"1h","holder":"web-2","wait":"1h"}`)
	b := c.open(t, s, view{hash: "#key=scheduler"})
	b.waits("the leader", text("scheduler", "holder")+" === 'web-1' && "+text("scheduler", "wait")+" === '1 waiting'")
	b.is("it is an election", `document.querySelector('tbody:not([hidden]) .group th').innerText.startsWith('Elections')`)
	b.is("the nodes are watched", watchNodes)
	s.releases(a)
	l := <-next
	b.waits("the next leader", text("scheduler", "holder")+" === 'web-2' && "+text("scheduler", "wait")+" === ''")
	b.is("the token", fmt.Sprintf("%s === '%d' && %d > %d", text("scheduler", "token"), l.Token, l.Token, a.Token))
	b.is("in the same row", "moved === 0 && kept.includes("+row("scheduler")+")")
	b.waits("its past", `document.getElementById('terms').children.length === 2 && /web-2[^]*holds it now[^]*web-1[^]*acquired again/.test(document.getElementById('terms').innerText)`)
	b.picture("election", false)
}

// A holder is cut off. Another takes over; the row is the same, and is marked; and the past says how it came.
func TestFailover(t *testing.T) {
	c := launch(t)
	s := begin(t, serve.Options{})
	const ttl = 15 * time.Second
	away := faultstore.Wrap(s.inner, nil)
	first, err := holder(t, away, "orders/leader", "eu-west-1", ttl).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := c.open(t, s, view{hash: "#key=orders%2Fleader", dark: true})
	b.waits("the holder", text("orders/leader", "holder")+" === 'eu-west-1'")
	b.is("the nodes are watched", watchNodes)
	b.is("what happens to the row is noted", "(window.marked = 0, new MutationObserver(() => { if ("+row("orders/leader")+".classList.contains('changed')) marked++; }).observe("+row("orders/leader")+", { attributes: true }), true)")
	took := make(chan error, 1)
	second := holder(t, s.inner, "orders/leader", "eu-west-2", ttl)
	go func() {
		lease, err := second.Acquire(t.Context())
		if err == nil {
			t.Cleanup(func() { _ = lease.Release(context.WithoutCancel(t.Context())) })
		}
		took <- err
	}()
	away.Partition(true)
	b.waits("its time runs out", text("orders/leader", "left")+".startsWith('over for') || "+text("orders/leader", "holder")+" === 'eu-west-2'")
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	b.waits("the next holder", text("orders/leader", "holder")+" === 'eu-west-2'")
	b.is("its token is larger", fmt.Sprintf("Number(%s) > %d", text("orders/leader", "token"), first.Token()))
	b.is("in the same row, which was marked", "moved === 0 && marked > 0 && kept.includes("+row("orders/leader")+")")
	b.waits("its past", `document.getElementById('terms').children.length === 2 && /eu-west-2[^]*holds it now[^]*eu-west-1/.test(document.getElementById('terms').innerText)`)
	b.picture("failover", false)
	_ = first.Release(context.WithoutCancel(t.Context())) // it is lost
}

// The store is not there, and then the server. The page says so, and how old is what it shows, until all is back.
func TestOutage(t *testing.T) {
	c := launch(t)
	s := scene(t)
	b := c.open(t, s, view{})
	b.mayFail = true
	b.waits("the shards", `document.querySelectorAll('tr[data-key^="convert/shards/"]').length === 4`)
	b.is("the nodes are watched", watchNodes)
	begun := time.Now()
	s.store.Partition(true)
	b.waits("the store is missed", `document.body.dataset.state === 'lost' && document.getElementById('state').innerText === 'the store does not answer'`)
	t.Logf("the page said so after %v", time.Since(begun))
	b.is("why", `!document.getElementById('trouble').hidden && document.getElementById('trouble-text').innerText.includes('partition')`)
	b.waits("how old it is", `Number(document.getElementById('trouble-age').innerText.match(/is (\d+) s old/)[1]) >= 4`)
	b.is("what was seen is still there", `moved === 0 && kept.every((row) => row.isConnected)`)
	b.picture("outage", true)
	s.store.Partition(false)
	b.waits("it is back", `document.body.dataset.state === 'live' && document.getElementById('trouble').hidden`)

	address := s.http.Address()
	s.end()
	b.waits("the server is missed", `document.getElementById('state').innerText.startsWith('the server does not answer')`)
	s.listen(address)
	b.waits("it is back too", `document.body.dataset.state === 'live'`)
	b.is("the rows are those of before", `kept.filter((row) => row.isConnected).length >= kept.length - 1`) // a session may be another
}

// A thousand locks: one listing for each look, and reads of what has changed; one is found by typing.
func TestThousand(t *testing.T) {
	c := launch(t)
	const many = 1000
	s := begin(t, serve.Options{Limit: many + 10, Every: 2 * time.Second})
	for i := range many {
		s.acquires("locks", fmt.Sprintf("user/%04d", i), fmt.Sprintf(`{"ttl":"1h","holder":"worker-%02d"}`, i%40))
	}
	s.store.Reset()
	began := time.Now()
	b := c.open(t, s, view{})
	b.waits("all of them", fmt.Sprintf("document.querySelectorAll('tr[data-key^=\"user/\"]').length === %d", many))
	// looks are how many there may have been by now: one each 2 s, and one of which the page does not know yet.
	looks := func() int { return int(time.Since(began)/(2*time.Second)) + 2 }
	t.Logf("%d rows were there %v after the tab was opened", many, time.Since(began).Round(time.Millisecond))
	if n := s.store.Counts(); n.List > looks() || n.Get < many || n.Get > many+5*looks() {
		t.Errorf("the first look: %+v", n)
	}
	b.is("the nodes are watched", watchNodes)
	began = time.Now()
	s.store.Reset()
	for s.store.Counts().List < 5 {
		looked := get[float64](b, "lookedAt")
		b.waits("the next look", fmt.Sprintf("lookedAt > %f", looked))
	}
	n := s.store.Counts()
	if n.List > looks() || n.Get > 2*n.List {
		t.Errorf("five looks at what has not changed: %+v", n)
	}
	t.Logf("five looks at %d locks that nobody touches: %+v", many, n)
	b.is("the budget says so", `/^looks [\d,]+ of 600 requests a minute · the last one [1-4] requests? /.test(document.getElementById('budget').innerText)`)

	began = time.Now()
	s.acquires("locks", "user/0500x", `{"ttl":"1h","holder":"me"}`)
	b.waits("the new one", row("user/0500x"))
	t.Logf("a new lock was there after %v", time.Since(began).Round(time.Millisecond))
	b.is("in its place", row("user/0500x")+".previousElementSibling === "+row("user/0500")+" && moved === 1")
	t.Logf("all rows are put in order in %.1f ms, and those in sight are brought up to date in %.2f ms",
		get[float64](b, "(() => { const t = performance.now(); for (let i = 0; i < 20; i++) arrange(); return (performance.now() - t) / 20; })()"),
		get[float64](b, "(() => { const t = performance.now(); for (let i = 0; i < 20; i++) tick(); return (performance.now() - t) / 20; })()"))
	b.is("only what is in sight runs", "visible.size > 5 && visible.size < 200")
	b.picture("thousand", false)
	b.key("/")
	b.key("user/0777") // a token, which is looked through too, may have 0777
	b.waits("one is found", `[...document.querySelectorAll('tr[data-key]')].filter((row) => row.offsetParent).map((row) => row.dataset.key).join() === 'user/0777'`)
	b.is("it is told", fmt.Sprintf("document.getElementById('count').innerText === '1 of %d shown' ", many+2))
	if h := get[string](b, "location.hash"); h != "#q=user%2F0777" {
		t.Errorf("the address is %q", h)
	}
	b.key(kb.Escape)
	b.waits("all are there again", `document.getElementById('count').innerText === ''`)
}

// With a prefix keys are shown without it. The sessions lie outside, so that of a holder's time it is only known that its
// session goes on.
func TestPrefix(t *testing.T) {
	c := launch(t)
	s := begin(t, serve.Options{Prefix: "jobs/"})
	s.acquires("locks", "a/b", `{"ttl":"1h","holder":"me"}`)
	b := c.open(t, s, view{hash: "#key=a%2Fb"})
	b.waits("the key", text("a/b", "holder")+" === 'me'")
	b.is("where it is", `document.getElementById('place').innerText === 's3://my-bucket/locks/jobs/'`)
	b.is("the time", text("a/b", "left")+" === 'session goes on'")
	b.is("the past is asked for", `(document.getElementById('more').click(), true)`)
	b.waits("it is answered", `document.getElementById('more-said').innerText === '1 lease known of'`)
}

// On a phone nothing scrolls sideways, neither the list nor the details.
func TestPhone(t *testing.T) {
	c := launch(t)
	s := scene(t)
	s.acquires("locks", strings.Repeat("very-long-name/", 12)+"end", fmt.Sprintf(`{"ttl":"1h","holder":%q}`, strings.Repeat("holder-", 30)))
	b := c.open(t, s, view{phone: true})
	b.waits("the shards", `document.querySelectorAll('tr[data-key^="convert/shards/"]').length === 4`)
	const fits = `innerWidth === 360 && document.documentElement.scrollWidth <= 360 && [...document.querySelectorAll('tr[data-key]')].every((row) => row.getBoundingClientRect().right <= 360)`
	b.is("the list fits", fits)
	b.is("rows can be touched", `[...document.querySelectorAll('tr[data-key]')].every((row) => row.getBoundingClientRect().height >= 40)`)
	b.picture("phone", true)
	b.is("one is opened", "("+row("deploy/production")+".querySelector('a').click(), true)")
	b.waits("the details", `!document.getElementById('detail').hidden && document.activeElement.id === 'detail'`)
	b.is("the details fit", fits+` && document.getElementById('detail').scrollWidth <= 360`)
	b.picture("phone-details", false)
	b.is("they are closed", `(document.getElementById('close').click(), document.getElementById('detail').hidden)`)
	dark := c.open(t, s, view{phone: true, dark: true, still: true})
	dark.is("nothing moves for those who want that", `matchMedia('(prefers-reduced-motion: reduce)').matches`)
	dark.picture("phone-dark", false)
}

// All can be done with the keyboard.
func TestKeyboard(t *testing.T) {
	c := launch(t)
	s := scene(t)
	b := c.open(t, s, view{})
	b.waits("the shards", `document.querySelectorAll('tr[data-key^="convert/shards/"]').length === 4`)
	b.key("/")
	b.is("search has the focus", `document.activeElement.id === 'search'`)
	b.key("deploy/")
	b.waits("it is found", `document.getElementById('count').innerText.startsWith('1 of ')`)
	b.key(kb.Enter)
	b.is("the row has the focus", "document.activeElement === "+row("deploy/production")+".querySelector('a')")
	b.key(kb.Enter)
	b.waits("its details are shown", `document.getElementById('detail-key').innerText === 'deploy/production' && location.hash.includes('key=deploy%2Fproduction')`)
	b.is("and what was looked for stays", `document.getElementById('search').value === 'deploy/'`)
	b.key(kb.Escape)
	b.is("they are closed, and the row has the focus", "document.getElementById('detail').hidden && document.activeElement === "+row("deploy/production")+".querySelector('a')")
	b.key(kb.Escape)
	b.is("all are shown", `document.getElementById('search').value === '' && document.getElementById('count').innerText === ''`)
	b.key(kb.Home)
	b.is("the first", "document.activeElement.textContent === 'billing/leader'")
	b.key("j")
	b.key(kb.ArrowDown)
	b.is("two on", "document.activeElement.textContent === 'backup/orders'")
	b.key("k")
	b.is("one back", "document.activeElement.textContent === 'scheduler'")
	b.key(kb.Enter)
	b.waits("it is open", `document.getElementById('detail-key').innerText === 'scheduler'`)
	b.key("j")
	b.waits("the details follow", `document.getElementById('detail-key').innerText === 'backup/orders'`)
	b.key("?")
	b.is("the keys are shown", `document.getElementById('help').open`)
	b.picture("keys", false)
	b.key(kb.Escape)
	b.waits("and closed, alone", `!document.getElementById('help').open && !document.getElementById('detail').hidden`)
	b.key(kb.End)
	b.is("the last", "document.activeElement.textContent === 'notes.txt'")
	b.is("what has the focus can be seen", `getComputedStyle(document.activeElement).outlineStyle === 'solid'`)
	b.is("one goes back", `(history.back(), true)`)
	b.waits("to where nothing was open", `document.getElementById('detail').hidden`)
}

// The text of a record stays text, whatever it is.
func TestHostile(t *testing.T) {
	c := launch(t)
	s := begin(t, serve.Options{AllowBreak: true})
	const evil = `<img src=x onerror="window.evil=1"><script>window.evil=1</script>`
	names := []string{evil, `"><svg onload=window.evil=1>`, "a'b\"c]", "\u202eevil\u2066\u200b", "javascript:window.evil=1"}
	for i, name := range names {
		key := strings.ReplaceAll(fmt.Sprintf("k%d-%s", i, name), "/", "|")
		body := fmt.Sprintf(`{"ttl":"1h","holder":%q,"meta":{"%d <b>x</b>":%q}}`, name, i, "<iframe src=//evil.example>")
		s.acquires("locks", key, body)
	}
	if _, err := s.inner.Put(t.Context(), "zz", []byte(`{"<img src=x onerror=window.evil=1>":1}`), store.IfAbsent()); err != nil {
		t.Fatal(err)
	}
	b := c.open(t, s, view{})
	for i := range names {
		b.is("it is opened", fmt.Sprintf("(toHash({ key: [...objects.keys()].find((k) => k.startsWith('k%d-')) }), true)", i))
		b.waits("its details", fmt.Sprintf("document.getElementById('detail-key').innerText.startsWith('k%d-') && document.getElementById('facts').innerText.includes('<iframe src=//evil.example>')", i))
	}
	b.is("it is all text", `!window.evil && !document.querySelector('img, svg, iframe, b:not(#terms b), script:not([src])') && [...document.scripts].length === 2`)
	b.is("as it was written", fmt.Sprintf("[...document.querySelectorAll('td.holder')].some((td) => td.textContent === %q)", evil))
	b.is("what turns text around is shown, and does not", `[...document.querySelectorAll('td.holder')].some((td) => td.textContent === '\\u202eevil\\u2066\\u200b') && !/[\u202e\u2066]/.test(document.body.textContent)`)
	b.is("no link leads elsewhere", `[...document.links].every((a) => a.href.startsWith(location.origin + '/ui/#key='))`)
	b.picture("hostile", false)
	b.is("it is looked for", fmt.Sprintf("(toHash({ key: '', q: %q }), true)", `<svg onload`))
	b.waits("it is found", `document.getElementById('count').innerText.startsWith('1 of ')`)
}

// A lock is broken where that is allowed, by its token, typed.
func TestBreak(t *testing.T) {
	c := launch(t)
	s := begin(t, serve.Options{AllowBreak: true})
	lock := holder(t, s.inner, "stuck/job", "host-9", 10*time.Minute)
	lease, err := lock.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.releases(s.acquires("locks", "free", `{"ttl":"1h"}`))
	b := c.open(t, s, view{hash: "#key=free"})
	b.mayFail = true
	b.is("what is free cannot be broken", `document.getElementById('break').hidden`)
	b.is("another is opened", `(toHash({ key: 'stuck/job' }), true)`)
	b.is("it can", `!document.getElementById('break').hidden && !document.getElementById('break').open`)
	b.is("the form is opened", `(document.querySelector('#break summary').click(), document.getElementById('break-token').focus(), true)`)
	b.key(kb.Enter)
	b.is("nothing is sent without a token", `document.getElementById('break-said').innerText === ''`)
	b.key(fmt.Sprint(lease.Token() + 1))
	b.key(kb.Enter)
	b.waits("another token is refused", `document.getElementById('break-said').innerText.startsWith('Nothing was broken: ')`)
	if !lease.Valid() {
		t.Fatalf("it was broken: %v", lease.Err())
	}
	b.is("it is held", text("stuck/job", "state")+" === 'held'")
	b.is("the form is in sight", `(document.getElementById('break-said').scrollIntoView(), true)`)
	b.picture("break", true)
	b.is("it is typed again", `(document.getElementById('break-token').select(), true)`)
	b.key(fmt.Sprint(lease.Token()))
	b.key(kb.Enter)
	b.waits("it is freed", `document.getElementById('break-said').innerText === 'stuck/job was freed.'`)
	b.waits("which the row shows", text("stuck/job", "state")+" === 'free'")
	b.waits("and the past", `document.getElementById('terms').innerText.includes('broken')`)
	_ = lease.Release(t.Context()) // it is lost

	timid := begin(t, serve.Options{})
	timid.acquires("locks", "k", `{"ttl":"1h"}`)
	none := c.open(t, timid, view{hash: "#key=k"})
	none.is("elsewhere nothing can be broken", `document.getElementById('break').hidden`)
	a, err := timid.ask(t.Context(), "POST", "/v1/locks/k/break", `{"token":1}`)
	if err != nil || a.code != 403 {
		t.Errorf("%d, %v", a.code, err)
	}
}

// The reports that are looked for in each test come if there is something to report.
func TestPolicy(t *testing.T) {
	c := launch(t)
	s := begin(t, serve.Options{})
	b := c.open(t, s, view{})
	b.is("markup is refused", `(() => { try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return false; } catch { return true; } })()`)
	b.is("a script is refused", `(() => { const s = document.createElement('style'); s.textContent = 'body { color: red }'; document.head.append(s); return true; })()`)
	b.is("a request elsewhere is refused", `(new Image().src = 'http://127.0.0.1:1/x.png', true)`)
	b.waits("they are reported", `violations.length >= 3`)
	b.is("each by its rule", `['require-trusted-types-for', 'style-src', 'img-src'].every((rule) => violations.some((v) => v.startsWith(rule)))`)
	b.is("they are forgotten", `(violations.length = 0, true)`)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) == 0 {
		t.Error("the browser has logged nothing of it")
	}
	b.wrong, b.failures = nil, nil
	b.asked = slices.DeleteFunc(b.asked, func(url string) bool { return url == "http://127.0.0.1:1/x.png" }) // which was not sent
}
