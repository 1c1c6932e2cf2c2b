package gcsstore_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
	"github.com/leasehold/leasehold/store/storetest"
)

const prefix = "some/prefix"

// planted is a store with a second way in, which storetest uses to write objects
// that no store would.
type planted struct {
	*gcsstore.Store
	endpoint, bucket string
}

func (p *planted) Plant(ctx context.Context, key string, body []byte) error {
	query := url.Values{"uploadType": {"media"}, "name": {prefix + "/" + key}}
	return p.post(ctx, query, string(body))
}

func (p *planted) post(ctx context.Context, query url.Values, body string) error {
	u := p.endpoint + "/upload/storage/v1/b/" + p.bucket + "/o?" + query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if said, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(err, errors.New(answer.Status), errors.New(string(said)))
	}
	return nil
}

func open(t *testing.T, endpoint, bucket string) *planted {
	t.Helper()
	st, err := gcsstore.New(&http.Client{Transport: transport(t)}, bucket, &gcsstore.Options{Prefix: prefix, Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	return &planted{st, endpoint, bucket}
}

// transport is that of net/http, whose connections end with the test.
func transport(t *testing.T) *http.Transport {
	t.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// careless is the emulator, which deletes whatever is there, and so is no store.Conditional.
type careless struct {
	storetest.Planter
	store.Large
}

func TestConformance(t *testing.T) {
	servers.OnGCS(t, func(t *testing.T, srv *servers.Server) {
		storetest.Run(t, func(t *testing.T) store.Store {
			st := open(t, srv.Endpoint, srv.GCSBucket(t))
			if srv.Name == servers.GCS {
				return careless{st, st}
			}
			return st
		})
	})
}

// A negative control: a way on which the conditions are lost. If the suite does not notice, its
// silence about the others proves nothing.
func TestSuiteNoticesLostConditions(t *testing.T) {
	servers.OnGCS(t, func(t *testing.T, srv *servers.Server) {
		client := &http.Client{Transport: wiretest.Altered{By: transport(t), Alter: func(r *http.Request) {
			query := r.URL.Query()
			query.Del("ifGenerationMatch")
			r.URL.RawQuery = query.Encode()
		}}}
		wiretest.NoticesLostConditions(t, func() (store.Store, error) {
			return gcsstore.New(client, srv.GCSBucket(t), &gcsstore.Options{Endpoint: srv.Endpoint})
		})
	})
}

// The emulator's words for what is missing are "Not Found", for an object as for a bucket. A
// listing tells them apart. Google Cloud Storage names what is missing: see TestAnswers.
func TestWhatIsMissing(t *testing.T) {
	servers.OnGCS(t, func(t *testing.T, srv *servers.Server) {
		there, nowhere := open(t, srv.Endpoint, srv.GCSBucket(t)), open(t, srv.Endpoint, "no-such-bucket")
		if _, err := there.Put(t.Context(), "key/below", []byte("x"), store.IfAbsent()); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"k", "key", "z"} {
			if _, err := there.Get(t.Context(), key, ""); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("get of %s, which is not there: %v", key, err)
			}
			if _, _, err := there.GetLarge(t.Context(), key); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("opening %s, which is not there: %v", key, err)
			}
		}
		for op, do := range operations {
			err := do(t.Context(), nowhere.Store)
			if op == "delete" && srv.Name == servers.GCS {
				if err != nil {
					t.Errorf("delete where there is no bucket, in words that do not say so: %v", err)
				}
				continue
			}
			if !errors.Is(err, store.ErrNoBucket) {
				t.Errorf("%s where there is no bucket: %v", op, err)
			}
		}
	})
}

// Every write has a generation that no other had, not even before a deletion.
func TestGenerationsAreNotReused(t *testing.T) {
	servers.OnGCS(t, func(t *testing.T, srv *servers.Server) {
		st := open(t, srv.Endpoint, srv.GCSBucket(t))
		seen := map[store.Version]bool{}
		for range 5 {
			object, err := st.Put(t.Context(), "k", []byte("the same"), store.IfAbsent())
			if err != nil {
				t.Fatal(err)
			}
			if seen[object.Version] {
				t.Errorf("the generation %s is there again", object.Version)
			}
			seen[object.Version] = true
			again, err := st.Put(t.Context(), "k", []byte("the same"), store.IfMatch(object.Version))
			if err != nil {
				t.Fatal(err)
			}
			if seen[again.Version] {
				t.Errorf("the generation %s is there again", again.Version)
			}
			seen[again.Version] = true
			if err = st.Delete(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if _, err = st.Put(t.Context(), "k", nil, store.IfMatch(again.Version)); !errors.Is(err, store.ErrPrecondition) {
				t.Errorf("a write over a version that was deleted: %v", err)
			}
		}
	})
}
