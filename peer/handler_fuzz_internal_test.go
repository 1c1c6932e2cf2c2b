package peer

import (
	"net/url"
	"testing"
	"time"

	"github.com/leasehold/leasehold/store"
)

// FuzzQuestion: the handler gets the client's question unchanged. Whatever a query is, a
// question that the handler accepts keeps to its bounds, and means the same when it is
// asked again.
func FuzzQuestion(f *testing.F) {
	for _, q := range []string{
		"", "lock=leaders%2Fx&holder=web-1", "lock=x&version=42+leading&wait=7.5s", "holder=a&waited=1m30s", "waited=1s",
		"lock=x&lock=y", "wait=-1s", "wait=1e3s", "wait=1", "holder=%ff", "lock=%zz", "lock=x;wait=1s", "LOCK=x&more=1", "wait=2562048h",
	} {
		f.Add(q, "leaders/x", "web-1", int64(time.Second), "42 leading", int64(7500*time.Millisecond))
	}
	f.Fuzz(func(t *testing.T, text, lock, holder string, waited int64, known string, wait int64) {
		if q, err := question(text); err == nil {
			checkQuestion(t, text, q)
		}
		q := Question{Lock: lock, Holder: holder, Waited: time.Duration(waited), Known: known, Wait: time.Duration(wait)}
		if q.Wait <= 0 {
			q.Wait, q.Known = 0, "" // is answered at once, whatever is known
		}
		q.Waited = max(q.Waited, 0)
		if got, err := question(query(q)); err == nil && got != q {
			t.Errorf("asked %+v, heard %+v", q, got)
		} else if err != nil && bounded(q) {
			t.Errorf("asked %+v: %v", q, err)
		}
	})
}

// bounded reports that a question is one that a handler must understand.
func bounded(q Question) bool {
	for _, text := range []string{q.Lock, q.Holder, q.Known} {
		for _, r := range text {
			if r < ' ' || r > '~' {
				return false
			}
		}
	}
	return len(q.Lock) <= store.MaxKey && len(q.Holder) <= 1<<10 && len(q.Known) <= 256 && (q.Waited == 0 || q.Holder != "")
}

func checkQuestion(t *testing.T, text string, q Question) {
	t.Helper()
	if len(q.Lock) > store.MaxKey || len(q.Holder) > 1<<10 || len(q.Known) > 256 || q.Wait < 0 || q.Waited < 0 || q.Waited > 0 && q.Holder == "" {
		t.Errorf("%q is accepted: %+v", text, q)
	}
	values, err := url.ParseQuery(text)
	if err != nil {
		t.Errorf("%q is accepted: %v", text, err)
	}
	if values.Get("lock") != q.Lock || values.Get("holder") != q.Holder || values.Get("version") != q.Known {
		t.Errorf("%q is taken for %+v", text, q)
	}
	if q.Wait == 0 {
		q.Known = "" // is not sent then
	}
	if again, err := question(query(q)); err != nil || again != q {
		t.Errorf("%q means %+v, and asked again %+v, %v", text, q, again, err)
	}
}
