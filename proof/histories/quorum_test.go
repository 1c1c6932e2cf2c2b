//go:build unix

package histories_test

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/quorumstore"
	"github.com/leasehold/leasehold/store/s3store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// quorums are those that histories are played in: servers of different kinds, one of which fails at a time.
var quorums = map[string][]string{
	"quorum":         {"minio", "versitygw", servers.GCS},
	"quorum-azurite": {"azurite", "versitygw", servers.GCS},
}

// quorum is a new quorum of these servers.
func quorum(t *testing.T, names []string) place {
	t.Helper()
	q := &nemesis{reached: map[string]int{}, member: -1}
	query, env := url.Values{}, []string(nil)
	var members []store.Store
	for i, name := range names {
		m := q.behind(t, i, name)
		members, env = append(members, m.st), append(env, m.env...)
		query.Add("member", m.url)
	}
	st, err := quorumstore.New(members, nil)
	if err == nil {
		err = st.Init(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	q.begin(t)
	return place{func(key string) string { return "quorum:///" + key + "?" + query.Encode() }, env}
}

// A member is one server of a quorum, for who makes it and for who opens it by its URL.
type member struct {
	st  store.Store
	url string
	env []string
}

// behind starts a server behind a proxy.
func (q *nemesis) behind(t *testing.T, i int, name string) member {
	t.Helper()
	opts := &servers.ProxyOptions{Fault: func(*http.Request, int) servers.Fault { return q.fault(i) }}
	var (
		m   member
		err error
	)
	switch name {
	case servers.GCS:
		server := servers.StartGCS(t)
		m.url = servers.GCSURLAt(servers.StartProxy(t, server.Endpoint, opts).Endpoint, server.GCSBucket(t))
		m.st, err = storeurl.Open(t.Context(), m.url)
		q.servers = append(q.servers, server)
	case "azurite":
		server := servers.StartAzurite(t)
		endpoint, box := servers.StartProxy(t, server.Host(), opts).Endpoint+"/"+server.Account, server.Container(t)
		m.url, m.env = server.URLAt(endpoint, box), server.Env()
		var key *container.SharedKeyCredential
		if key, err = container.NewSharedKeyCredential(server.Account, server.Key); err == nil {
			m.st, err = azstore.New(endpoint+"/"+box, &azstore.Options{SharedKey: key})
		}
		q.servers = append(q.servers, server.Process)
	default:
		server := servers.Start(t, name)
		endpoint, bucket := servers.StartProxy(t, server.Endpoint, opts).Endpoint, server.Bucket(t)
		m.url, m.env = server.URLAt(endpoint, bucket), server.Env()
		m.st, err = s3store.New(server.ClientAt(endpoint), bucket, nil)
		q.servers = append(q.servers, server)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A nemesis lets one member of a quorum fail at a time.
type nemesis struct {
	servers []*servers.Server

	mu      sync.Mutex
	member  int // that fails; -1: none does
	how     string
	until   time.Time
	reached map[string]int // the requests that met each fault
}

// The ways in which a member fails.
const (
	stopped  = "stopped"
	deaf     = "requests lost"
	mute     = "answers lost"
	slow     = "slow"
	cut      = "cut off" // and what was sent meanwhile arrives late
	refusing = "refuses"
	failing  = "fails afterwards"
)

// begin begins with it, and ends it with the test.
func (q *nemesis) begin(t *testing.T) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ways := []string{stopped, deaf, mute, slow, cut, refusing, failing}
		for n := 0; q.fail(t, n%len(q.servers), ways[n%len(ways)], 200*time.Millisecond+rand.N(time.Second), end); n++ {
		}
	}()
	t.Cleanup(func() {
		close(end)
		<-ended
		q.mu.Lock()
		defer q.mu.Unlock()
		t.Logf("figures: requests that met a member that was failing: %v", q.reached)
		if len(q.reached) == 0 {
			t.Error("no request met a member that failed")
		}
	})
}

// fail lets a member fail for d. It reports false at the end.
func (q *nemesis) fail(t *testing.T, member int, how string, d time.Duration, end <-chan struct{}) bool {
	t.Helper()
	q.mu.Lock()
	q.member, q.how, q.until = member, how, time.Now().Add(d)
	q.mu.Unlock()
	if how == stopped {
		q.servers[member].Pause(t)
		defer q.servers[member].Resume(t)
	}
	select {
	case <-time.After(d):
		return true
	case <-end:
		return false
	}
}

// fault is what becomes of a request to a member.
func (q *nemesis) fault(member int) servers.Fault {
	q.mu.Lock()
	defer q.mu.Unlock()
	if member != q.member {
		return servers.Pass
	}
	q.reached[q.how]++
	switch q.how {
	case deaf:
		return servers.DropRequest
	case mute:
		return servers.DropAnswer
	case slow:
		return servers.Delay(rand.N(2 * time.Second))
	case cut:
		return servers.Delay(time.Until(q.until))
	case refusing:
		return servers.Status(http.StatusServiceUnavailable)
	case failing:
		return servers.StatusAfter(http.StatusInternalServerError)
	}
	return servers.Pass
}
