package s3store_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/internal/servers"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
	"github.com/leasehold/leasehold/store/s3store"
	"github.com/leasehold/leasehold/store/storetest"
)

const prefix = "some/prefix"

// planted is a store with a second way in, which storetest uses to write objects
// that no store would.
type planted struct {
	*s3store.Store
	client *s3.Client
	bucket string
}

func (p *planted) Plant(ctx context.Context, key string, body []byte) error {
	_, err := p.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &p.bucket, Key: aws.String(prefix + "/" + key), Body: bytes.NewReader(body),
	})
	return err
}

func open(t *testing.T, client *s3.Client, bucket string) *planted {
	t.Helper()
	st, err := s3store.New(client, bucket, &s3store.Options{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	return &planted{st, client, bucket}
}

// careless is a server that does not keep what a delete on a condition is to promise.
type careless struct {
	storetest.Planter
	store.Large
}

// TestDeleteIf: the condition is sent, and what is answered to it is understood. Of the servers here only versitygw
// looks at it, and it looks first and deletes later, so none is a store.Conditional by the suite.
func TestDeleteIf(t *testing.T) {
	for _, name := range servers.Selected() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			st := open(t, srv.Client(), srv.Bucket(t))
			first, err := st.Put(t.Context(), "key", []byte("1"), store.IfAbsent())
			if err != nil {
				t.Fatal(err)
			}
			second, err := st.Put(t.Context(), "key", []byte("2"), store.IfMatch(first.Version))
			if err != nil {
				t.Fatal(err)
			}
			err = st.DeleteIf(t.Context(), "key", first.Version)
			_, there := st.Get(t.Context(), "key", "")
			switch {
			case errors.Is(err, store.ErrPrecondition) && there == nil:
				if name != "versitygw" {
					t.Errorf("%s looks at the condition now: is it a store.Conditional by the suite?", name)
				}
			case err == nil && errors.Is(there, store.ErrNotExist) && name != "versitygw":
				return
			default:
				t.Errorf("a delete of a former version said %v, and a read %v", err, there)
			}
			if err := st.DeleteIf(t.Context(), "key", second.Version); err != nil {
				t.Error(err)
			}
			if _, err := st.Get(t.Context(), "key", ""); !errors.Is(err, store.ErrNotExist) {
				t.Errorf("after a delete of the current version: %v", err)
			}
			if err := st.DeleteIf(t.Context(), "key", second.Version); err != nil && !errors.Is(err, store.ErrPrecondition) {
				t.Errorf("a delete of no object: %v", err)
			}
		})
	}
}

func TestConformance(t *testing.T) {
	for _, name := range servers.Selected() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			client := srv.Client()
			storetest.Run(t, func(t *testing.T) store.Store {
				st := open(t, client, srv.Bucket(t))
				return careless{st, st} // TestDeleteIf is about deletes on a condition
			})
		})
	}
}

// The negative control: conditions that are lost on the way.
func TestSuiteNoticesLostConditions(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	client := s3.New(srv.Client().Options(), func(o *s3.Options) {
		o.HTTPClient = &http.Client{Transport: wiretest.Altered{By: transport, Alter: func(r *http.Request) {
			r.Header.Del("If-Match")
			r.Header.Del("If-None-Match")
		}}}
	})
	wiretest.NoticesLostConditions(t, func() (store.Store, error) {
		return open(t, client, srv.Bucket(t)), nil
	})
}

// Another negative control: a server that ignores every condition of a write. What it lets happen can
// end its process. Then the suite has seen an outage, and is asked again.
func TestSuiteNoticesS3rver(t *testing.T) {
	srv := servers.StartS3rver(t)
	client := srv.Client()
	for {
		err := wiretest.LostConditions(t.Context(), func() (store.Store, error) {
			return open(t, client, srv.Bucket(t)), nil
		})
		if err == nil {
			return
		}
		if !srv.Ended() {
			t.Fatal(err)
		}
		t.Log("s3rver ended by itself, before it was noticed: ", err)
	}
}

// A server that keeps objects as files cannot have a key below another object's
// key, and must say so, not leave a lock waiting for a store that will never do.
func TestKeyBelowAnother(t *testing.T) {
	for _, name := range servers.Selected() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, name)
			st := open(t, srv.Client(), srv.Bucket(t))
			for i, pair := range [][2]string{{"a", "a/b"}, {"c/d", "c"}} {
				for j, key := range pair {
					_, err := st.Put(t.Context(), key, []byte("x"), store.IfAbsent())
					if err != nil && (j == 0 || !errors.Is(err, store.ErrInvalid)) {
						t.Errorf("pair %d: put %s: %v, want success or ErrInvalid", i, key, err)
					}
				}
			}
		})
	}
}
