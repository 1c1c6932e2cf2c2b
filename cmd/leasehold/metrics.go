package main

import (
	"sync/atomic"
	"time"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/internal/promtext"
)

// terms counts what becomes of this candidate's leases.
type terms struct{ acquired, lost atomic.Int64 }

// metrics are those of an election, in the text format of Prometheus.
func metrics(s leasehold.Status, lock string, ttl, remaining time.Duration, t *terms, b build, now time.Time) []byte {
	label := []promtext.Label{{Name: "lock", Value: lock}}
	one := func(name, help string, kind promtext.Kind, value float64) promtext.Family {
		return promtext.Family{Name: name, Help: help, Kind: kind, Samples: []promtext.Sample{{Labels: label, Value: value}}}
	}
	with := func(name, value string) []promtext.Label {
		return append(label[:1:1], promtext.Label{Name: name, Value: value})
	}
	info := promtext.Family{Name: "leasehold_leader_info", Help: "The leader that this candidate knows of; none while it knows of none.", Kind: promtext.Gauge}
	token := promtext.Family{Name: "leasehold_token", Help: "Token of the leader that this candidate knows of; none in a layout without tokens.", Kind: promtext.Gauge}
	if leader, ok := leaderOf(s, ttl, now); ok {
		info.Samples = []promtext.Sample{{Labels: with("holder", leader.Holder), Value: 1}}
		if leader.Token != leasehold.NoToken {
			token.Samples = []promtext.Sample{{Labels: label, Value: float64(leader.Token)}}
		}
	}
	answered := one("leasehold_store_last_answer_timestamp_seconds", "When the store last answered, as Unix time; none before its first answer.", promtext.Gauge, float64(s.LastSeen.UnixMilli())/1000)
	if s.LastSeen.IsZero() {
		answered.Samples = nil
	}
	return promtext.Append(nil,
		one("leasehold_leader", "Whether this candidate leads (1) or not (0).", promtext.Gauge, gauge(s.Leading)),
		info, token,
		one("leasehold_lease_remaining_seconds", "How long this candidate's lease is valid if it is not renewed; 0 while it does not lead.", promtext.Gauge, remaining.Seconds()),
		one("leasehold_acquisitions_total", "Leases that this candidate acquired.", promtext.Counter, float64(t.acquired.Load())),
		one("leasehold_losses_total", "Leases that this candidate lost, so that its command was ended.", promtext.Counter, float64(t.lost.Load())),
		one("leasehold_healthy", "Whether this candidate can do its work (1) or not (0), as /healthz says.", promtext.Gauge, gauge(unfit(s, ttl, now) == "")),
		one("leasehold_store_trouble", "Whether what this candidate last tried at the store failed (1) or not (0).", promtext.Gauge, gauge(!s.FailingSince.IsZero())),
		answered,
		promtext.Family{Name: "leasehold_store_requests_total", Help: "Requests to the store that were answered or failed.", Kind: promtext.Counter, Samples: []promtext.Sample{
			{Labels: with("op", "read"), Value: float64(s.Reads)},
			{Labels: with("op", "write"), Value: float64(s.Writes)},
		}},
		promtext.Family{Name: "leasehold_build_info", Help: "What this program was made of.", Kind: promtext.Gauge, Samples: []promtext.Sample{{
			Labels: []promtext.Label{{Name: "version", Value: b.Version}, {Name: "revision", Value: b.Revision}, {Name: "goversion", Value: b.Go}}, Value: 1,
		}}},
	)
}

func gauge(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
