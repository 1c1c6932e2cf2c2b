package gocloud_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"

	"github.com/leasehold/leasehold"
	"github.com/leasehold/leasehold/adapter/gocloud"
	"github.com/leasehold/leasehold/adapter/gocloud/onazure"
	"github.com/leasehold/leasehold/adapter/gocloud/ongcs"
	"github.com/leasehold/leasehold/adapter/gocloud/ons3"
	"github.com/leasehold/leasehold/internal/leasetest"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/probe"
	"github.com/leasehold/leasehold/store/storetest"
)

// planted is a store whose bucket another program writes to, without a condition.
type planted struct {
	*gocloud.Store
	bucket *blob.Bucket
}

func (p *planted) Plant(ctx context.Context, key string, body []byte) error {
	return p.bucket.WriteAll(ctx, key, body, nil)
}

// open gives the store of a bucket, which is closed when the test ends.
func open(t *testing.T, bucket *blob.Bucket, url string, driver gocloud.Driver) *planted {
	t.Helper()
	t.Cleanup(func() { bucket.Close() })
	st, err := gocloud.New(bucket, url, driver)
	if err != nil {
		t.Fatal(err)
	}
	return &planted{st, bucket}
}

func inMemory(t *testing.T) *planted {
	t.Helper()
	return open(t, memblob.OpenBucket(nil), "mem://", gocloud.CreateOnly{})
}

// updatable is a store with the updates that the driver does not have, which only one of it
// can do at a time. With them the whole suite tests all that the driver has.
type updatable struct {
	*planted
	mu sync.Mutex
}

func (u *updatable) Put(ctx context.Context, key string, body []byte, only store.Condition) (*store.Object, error) {
	if err := store.CheckPut(ctx, key, body, only); err != nil || only.Absent() {
		return u.planted.Put(ctx, key, body, only)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	o, err := u.Get(ctx, key, "")
	if err == nil && o.Version == only.Match() {
		if err = u.Plant(ctx, key, body); err == nil {
			o, err = u.Get(ctx, key, "")
		}
	} else if err == nil || errors.Is(err, store.ErrNotExist) {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrPrecondition}
	}
	if err != nil {
		return nil, &store.Error{Op: "put", Key: key, Kind: store.ErrUnknownOutcome, Cause: err}
	}
	o.Body = nil
	return o, nil
}

func TestConformanceOfMemblob(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return &updatable{planted: inMemory(t)} })
}

// TestNoUpdates: an update is refused for good, and changes nothing.
func TestNoUpdates(t *testing.T) {
	st := inMemory(t)
	o, err := st.Put(t.Context(), "k", []byte("first"), store.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []store.Version{o.Version, "another"} {
		_, err = st.Put(t.Context(), "k", []byte("second"), store.IfMatch(v))
		wantKind(t, "an update", err, store.ErrRefused)
	}
	if now, err := st.Get(t.Context(), "k", ""); err != nil || string(now.Body) != "first" || now.Version != o.Version {
		t.Errorf("it is %+v, %v", now, err)
	}
}

// needUpdates are the uses that CreateOnly cannot carry.
var needUpdates = []string{"object", "epochs", "marker", "fence.Object", "fast start"}

// TestLayouts: a lock is refused where the driver cannot carry its layout, and so are sessions.
func TestLayouts(t *testing.T) {
	st := inMemory(t)
	for _, layout := range leasetest.Ways {
		opts := layout.Options()
		_, err := leasehold.NewLock(st, "k", opts)
		if refused := layout == leasetest.Object; errors.Is(err, store.ErrRefused) != refused || err != nil != refused {
			t.Errorf("%s: %v", layout, err)
		}
		opts.FastStart = true
		_, err = leasehold.NewLock(st, "k", opts)
		if !errors.Is(err, store.ErrRefused) {
			t.Errorf("%s, fast start: %v", layout, err)
		}
	}
	if _, err := leasehold.NewSession(t.Context(), st, nil); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a session: %v", err)
	}
}

// TestProbe: what New cannot know of a driver, a probe finds out, and what a store says of
// itself is no more than that.
func TestProbe(t *testing.T) {
	var r *probe.Report
	synctest.Test(t, func(t *testing.T) { // so that it waits for nothing
		var err error
		if r, err = probe.Run(t.Context(), inMemory(t), &probe.Options{Races: 40}); err != nil {
			t.Fatal(err)
		}
	})
	st := inMemory(t)
	for _, use := range probe.Uses() {
		said, found := st.Proves(st.String(), use), r.Proves("mem://", use)
		if needs := slices.Contains(needUpdates, use); (said != nil) != needs || (found != nil) != needs {
			t.Errorf("%s: it says %v, and the probe %v", use, said, found)
		}
	}
	if r.Left != 0 {
		t.Errorf("%d objects were left", r.Left)
	}
}

// TestProbeOfMemblobWithoutMD5: CreateOnly needs the MD5 in listings, and says so.
func TestProbeOfMemblobWithoutMD5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := open(t, memblob.OpenBucket(&memblob.Options{NoMD5: true}), "mem://", gocloud.CreateOnly{})
		r, err := probe.Run(t.Context(), st, &probe.Options{Races: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err = r.Proves("mem://", "epochs without If-Match"); !errors.Is(err, probe.ErrUnproven) || !strings.Contains(err.Error(), "no version") {
			t.Errorf("epochs: %v", err)
		}
		if err = r.Proves("mem://", "marker without If-Match"); err != nil {
			t.Error(err)
		}
	})
}

// TestNew: what can be known to go wrong is refused at once.
func TestNew(t *testing.T) {
	file := func() *blob.Bucket {
		bucket, err := fileblob.OpenBucket(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		return bucket
	}
	mem := memblob.OpenBucket(nil)
	for name, c := range map[string]struct {
		bucket *blob.Bucket
		url    string
		driver gocloud.Driver
		want   error
	}{
		"good":                   {mem, "mem://", gocloud.CreateOnly{}, nil},
		"no bucket":              {nil, "mem://", gocloud.CreateOnly{}, store.ErrInvalid},
		"no driver":              {mem, "mem://", nil, store.ErrInvalid},
		"no URL":                 {mem, "", gocloud.CreateOnly{}, store.ErrInvalid},
		"a name":                 {mem, "my-bucket", gocloud.CreateOnly{}, store.ErrInvalid},
		"a secret":               {mem, "s3://key:secret@my-bucket", gocloud.CreateOnly{}, store.ErrInvalid},
		"S3's driver":            {mem, "mem://", ons3.Driver{}, store.ErrInvalid},
		"Google's driver":        {mem, "mem://", ongcs.Driver{}, store.ErrInvalid},
		"Azure's driver":         {mem, "mem://", onazure.Driver{}, store.ErrInvalid},
		"fileblob":               {file(), "file:///tmp/x", gocloud.CreateOnly{}, store.ErrRefused},
		"fileblob with a prefix": {blob.PrefixedBucket(file(), "x/"), "file:///tmp/x", gocloud.CreateOnly{}, store.ErrRefused},
	} {
		st, err := gocloud.New(c.bucket, c.url, c.driver)
		if !errors.Is(err, c.want) || (st == nil) != (c.want != nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// TestClosedBucket: it is no lost race, and to try again is of no use.
func TestClosedBucket(t *testing.T) {
	st := inMemory(t)
	st.bucket.Close()
	_, putErr := st.Put(t.Context(), "k", nil, store.IfAbsent())
	_, getErr := st.Get(t.Context(), "k", "")
	errs := []error{putErr, getErr}
	for _, err := range st.List(t.Context(), "", "") {
		errs = append(errs, err)
	}
	for _, err := range errs {
		wantKind(t, "a closed bucket", err, store.ErrRefused)
	}
}

// TestPrefixedBucket: the prefix of a bucket is none of the store's business.
func TestPrefixedBucket(t *testing.T) {
	st := open(t, blob.PrefixedBucket(memblob.OpenBucket(nil), "some/prefix/"), "mem:///some/prefix", gocloud.CreateOnly{})
	holdInTurns(t, st, leasetest.Epochs)
	for e, err := range st.List(t.Context(), "", "") {
		if err != nil || strings.HasPrefix(e.Key, "some") {
			t.Errorf("it lists %+v, %v", e, err)
		}
	}
}

func TestLockInMemblob(t *testing.T) {
	st := inMemory(t)
	for _, layout := range leasetest.Ways[1:] {
		holdInTurns(t, st, layout)
	}
}

// holdInTurns has two candidates hold a lock one after the other, and none beside the other.
func holdInTurns(t *testing.T, st store.Store, layout leasetest.Way) {
	t.Helper()
	var last leasehold.Token
	var locks [2]*leasehold.Lock
	for i := range locks {
		var err error
		if locks[i], err = leasehold.NewLock(st, "locks/"+layout.String(), layout.Options()); err != nil {
			t.Fatalf("%s: %v", layout, err)
		}
	}
	for i := range 4 {
		mine, other := locks[i%2], locks[(i+1)%2]
		lease, err := mine.TryAcquire(t.Context())
		if err != nil {
			t.Fatalf("%s, turn %d: %v", layout, i, err)
		}
		if _, err = other.TryAcquire(t.Context()); !errors.Is(err, leasehold.ErrHeld) {
			t.Errorf("%s, turn %d: the other one: %v", layout, i, err)
		}
		if layout.Tokens() && lease.Token() <= last {
			t.Errorf("%s, turn %d: the token %v came after %v", layout, i, lease.Token(), last)
		}
		last = lease.Token()
		if err = lease.Release(t.Context()); err != nil {
			t.Errorf("%s, turn %d: %v", layout, i, err)
		}
	}
}

// TestKeysThatDriversWriteOtherwise: they come back as they were.
func TestKeysThatDriversWriteOtherwise(t *testing.T) {
	for _, key := range []string{"a__0x2f__b", "dots../x"} {
		st := inMemory(t)
		if _, err := st.Put(t.Context(), key, []byte(key), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		for e, err := range st.List(t.Context(), "", "") {
			if err != nil || e.Key != key {
				t.Errorf("%q is listed as %+v, %v", key, e, err)
			}
		}
	}
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if e, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(e.Kind, kind) {
		t.Errorf("%s: %v, want the kind %v", what, err, kind)
	}
}
