package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/promtext"
)

// The rule of /healthz, /readyz and the watchdog, case by case.
func TestHealth(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const ttl = 15 * time.Second
	other, me := leasehold.Info{Holder: "b", Token: 7}, leasehold.Info{Holder: "me", Token: 8}
	for _, tc := range []struct {
		what   string
		status leasehold.Status
		unfit  bool
		leader string
		says   string
	}{
		{"at first", leasehold.Status{}, false, "", "candidate for l, no leader is known"},
		{"it leads", leasehold.Status{Leading: true, HasLeader: true, Leader: me}, false, "me", "leading l as me, token 8"},
		{"it follows", leasehold.Status{HasLeader: true, Leader: other}, false, "b", "following in l, led by b, token 7"},
		{"the leader has resigned", leasehold.Status{Leader: other}, false, "", "candidate for l, no leader is known"},
		{"its lease is lost, and nobody else was seen", leasehold.Status{HasLeader: true, Leader: me}, false, "", "candidate for l, no leader is known"},
		{
			"a hiccup",
			leasehold.Status{HasLeader: true, Leader: other, Failures: 2, FailingSince: now.Add(-time.Second)},
			false, "b", "following in l, led by b, token 7",
		},
		{
			"trouble that is shown",
			leasehold.Status{HasLeader: true, Leader: other, Failures: 2, FailingSince: now.Add(-statusPeriod)},
			false, "b", "following in l, led by b, token 7; the store has failed since 03:04:00",
		},
		{
			"trouble for a TTL",
			leasehold.Status{Leading: true, HasLeader: true, Leader: me, Failures: 3, FailingSince: now.Add(-ttl)},
			false, "me", "leading l as me, token 8; the store has failed since 03:03:50",
		},
		{
			"trouble for longer than a TTL",
			leasehold.Status{HasLeader: true, Leader: other, Failures: 30, FailingSince: now.Add(-ttl - 1)},
			true, "", "candidate for l, no leader is known; the store has failed since 03:03:49",
		},
		{
			"it can read and not write",
			leasehold.Status{FailingSince: now.Add(-2 * ttl), LastSeen: now},
			true, "", "candidate for l, no leader is known; the store has failed since 03:03:35",
		},
		{
			"a long time without a request, and one failure now",
			leasehold.Status{HasLeader: true, Leader: other, LastSeen: now.Add(-4 * ttl), Failures: 1, FailingSince: now},
			false, "b", "following in l, led by b, token 7",
		},
	} {
		tc.status.Holder = "me"
		if why := unfit(tc.status, ttl, now); (why != "") != tc.unfit {
			t.Errorf("%s: unfit because %q", tc.what, why)
		}
		if leader, ok := leaderOf(tc.status, ttl, now); leader.Holder != tc.leader || ok != (tc.leader != "") {
			t.Errorf("%s: the leader is %q, %v", tc.what, leader.Holder, ok)
		}
		if got := standing(tc.status, "l", ttl, now); got != tc.says {
			t.Errorf("%s: %q, want %q", tc.what, got, tc.says)
		}
	}
}

// TestProbeAnswers: the codes, types and bodies of /healthz, /readyz and /leader, by how the candidate stands.
func TestProbeAnswers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	const ttl = 15 * time.Second
	m := &monitor{job: &job{target: target{name: "jobs/l"}, opts: leasehold.LockOptions{TTL: ttl}}}
	me, other := leasehold.Info{Holder: "me", Token: 8, Address: "a:1"}, leasehold.Info{Holder: "<b\x1b>", Token: 7}
	const failing = "the store has failed for 30s, which is longer than the TTL of 15s\n"
	type answer struct {
		code int
		kind string
		body string
	}
	for what, tt := range map[string]struct {
		status                 leasehold.Status
		healthz, readyz, leads answer
	}{
		"at first": {
			leasehold.Status{},
			answer{200, plainText, "ok\n"},
			answer{503, plainText, "no leader is known\n"},
			answer{200, "application/json", `{"name":"","leading":false,"lock":"jobs/l"}` + "\n"},
		},
		"it leads": {
			leasehold.Status{Leading: true, HasLeader: true, Leader: me},
			answer{200, plainText, "ok\n"},
			answer{200, plainText, "ok\n"},
			answer{200, "application/json", `{"name":"me","leading":true,"lock":"jobs/l","token":8,"address":"a:1"}` + "\n"},
		},
		"it follows": {
			leasehold.Status{HasLeader: true, Leader: other},
			answer{200, plainText, "ok\n"},
			answer{200, plainText, "ok\n"},
			answer{200, "application/json", `{"name":"<b\u001b>","leading":false,"lock":"jobs/l","token":7}` + "\n"},
		},
		"the store fails": {
			leasehold.Status{HasLeader: true, Leader: other, FailingSince: now.Add(-2 * ttl)},
			answer{503, plainText, failing},
			answer{503, plainText, failing},
			answer{200, "application/json", `{"name":"","leading":false,"lock":"jobs/l"}` + "\n"},
		},
	} {
		tt.status.Holder = "me"
		for name, c := range map[string]struct {
			ask  func(leasehold.Status, time.Time) (int, string, []byte)
			want answer
		}{"/healthz": {m.healthz, tt.healthz}, "/readyz": {m.readyz, tt.readyz}, "/leader": {m.leader, tt.leads}} {
			code, kind, body := c.ask(tt.status, now)
			if got := (answer{code, kind, string(body)}); got != c.want {
				t.Errorf("%s: %s is %+v, want %+v", what, name, got, c.want)
			}
		}
	}
}

// TestTermsAreCounted: a term counts as lost only if the lease was lost, and when it has ended no time of it remains.
func TestTermsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, _ := newWaiter()
		m := &monitor{job: j}
		for _, lost := range []bool{false, true, false} {
			if left := m.remaining(time.Now()); left != 0 {
				t.Errorf("without a lease %v of it remain", left)
			}
			ended := m.leads(timedLease{heldLease{valid: true}, time.Now().Add(9 * time.Second)})
			time.Sleep(time.Second)
			if left := m.remaining(time.Now()); left != 8*time.Second {
				t.Errorf("%v of the lease remain, want 8s", left)
			}
			if left := m.remaining(time.Now().Add(time.Minute)); left != 0 {
				t.Errorf("after its end %v of the lease remain", left)
			}
			ended(lost)
		}
		m.leads(timedLease{heldLease{}, time.Now().Add(9 * time.Second)})
		if left := m.remaining(time.Now()); left != 0 {
			t.Errorf("%v of a lease that is not valid remain", left)
		}
		if acquired, lost := m.terms.acquired.Load(), m.terms.lost.Load(); acquired != 4 || lost != 1 {
			t.Errorf("%d terms, of which %d were lost, want 4 and 1", acquired, lost)
		}
	})
}

// A timedLease has a deadline.
type timedLease struct {
	heldLease
	deadline time.Time
}

func (l timedLease) Deadline() time.Time { return l.deadline }

// A metric whose value is not known is left out, instead of a number that looks like an answer.
func TestMetrics(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var t0 terms
	text := string(metrics(leasehold.Status{}, "l", time.Minute, 0, &t0, build{Version: "v1"}, now))
	for _, absent := range []string{"leasehold_leader_info", "leasehold_token", "leasehold_store_last_answer_timestamp_seconds"} {
		if strings.Contains(text, absent) {
			t.Errorf("at first there is %s:\n%s", absent, text)
		}
	}
	t0.acquired.Add(3)
	t0.lost.Add(2)
	text = string(metrics(leasehold.Status{
		Holder: "me", HasLeader: true, Leader: leasehold.Info{Holder: "a\"\n\xff", Token: 1763625000123},
		LastSeen: now.Add(-1500 * time.Millisecond), Failures: 3, FailingSince: now.Add(-time.Second),
		Reads: 5, Writes: 4,
	}, `s3://b/l?a="b"`, time.Minute, 2500*time.Millisecond, &t0, build{Version: "v1", Revision: "r", Go: "go1"}, now))
	const lock = `lock="s3://b/l?a=\"b\""`
	if want := strings.NewReplacer("LOCK", lock, "REPLACED", "\uFFFD").Replace(metricsText); text != want {
		t.Errorf("it is\n%s\nwant\n%s", text, want)
	}
	if promtext.ContentType != "text/plain; version=0.0.4; charset=utf-8" {
		t.Error(promtext.ContentType)
	}
}

const metricsText = `# HELP leasehold_leader Whether this candidate leads (1) or not (0).
# TYPE leasehold_leader gauge
leasehold_leader{LOCK} 0
# HELP leasehold_leader_info The leader that this candidate knows of; none while it knows of none.
# TYPE leasehold_leader_info gauge
leasehold_leader_info{LOCK,holder="a\"\nREPLACED"} 1
# HELP leasehold_token Token of the leader that this candidate knows of; none in a layout without tokens.
# TYPE leasehold_token gauge
leasehold_token{LOCK} 1763625000123
# HELP leasehold_lease_remaining_seconds How long this candidate's lease is valid if it is not renewed; 0 while it does not lead.
# TYPE leasehold_lease_remaining_seconds gauge
leasehold_lease_remaining_seconds{LOCK} 2.5
# HELP leasehold_acquisitions_total Leases that this candidate acquired.
# TYPE leasehold_acquisitions_total counter
leasehold_acquisitions_total{LOCK} 3
# HELP leasehold_losses_total Leases that this candidate lost, so that its command was ended.
# TYPE leasehold_losses_total counter
leasehold_losses_total{LOCK} 2
# HELP leasehold_healthy Whether this candidate can do its work (1) or not (0), as /healthz says.
# TYPE leasehold_healthy gauge
leasehold_healthy{LOCK} 1
# HELP leasehold_store_trouble Whether what this candidate last tried at the store failed (1) or not (0).
# TYPE leasehold_store_trouble gauge
leasehold_store_trouble{LOCK} 1
# HELP leasehold_store_last_answer_timestamp_seconds When the store last answered, as Unix time; none before its first answer.
# TYPE leasehold_store_last_answer_timestamp_seconds gauge
leasehold_store_last_answer_timestamp_seconds{LOCK} 1.7999999985e+09
# HELP leasehold_store_requests_total Requests to the store that were answered or failed.
# TYPE leasehold_store_requests_total counter
leasehold_store_requests_total{LOCK,op="read"} 5
leasehold_store_requests_total{LOCK,op="write"} 4
# HELP leasehold_build_info What this program was made of.
# TYPE leasehold_build_info gauge
leasehold_build_info{version="v1",revision="r",goversion="go1"} 1
`
