package gcsstore_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/gcsstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// The operations, each as a call that gives its error.
var operations = map[string]func(context.Context, *gcsstore.Store) error{
	"get": func(ctx context.Context, st *gcsstore.Store) error {
		_, err := st.Get(ctx, "k", "1")
		return err
	},
	"create": func(ctx context.Context, st *gcsstore.Store) error {
		_, err := st.Put(ctx, "k", []byte("body"), store.IfAbsent())
		return err
	},
	"update": func(ctx context.Context, st *gcsstore.Store) error {
		_, err := st.Put(ctx, "k", []byte("body"), store.IfMatch("1"))
		return err
	},
	"delete": func(ctx context.Context, st *gcsstore.Store) error { return st.Delete(ctx, "k") },
	"list": func(ctx context.Context, st *gcsstore.Store) error {
		_, err := drain(ctx, st, "k", "")
		return err
	},
}

var (
	reads  = []string{"get", "list"}
	puts   = []string{"create", "update"}
	writes = []string{"create", "update", "delete"}
	all    = []string{"get", "list", "create", "update", "delete"}
)

// drain reads a listing to its end.
func drain(ctx context.Context, st *gcsstore.Store, prefix, after string) (keys []string, err error) {
	for entry, e := range st.List(ctx, prefix, after) {
		if e != nil {
			return keys, e
		}
		keys = append(keys, entry.Key)
	}
	return keys, nil
}

// faulty is the store of a server that always gives the same answer.
func faulty(t *testing.T, answer string, end wiretest.Ending) (*gcsstore.Store, *wiretest.Server) {
	t.Helper()
	server := wiretest.New(t, answer, end)
	return newStore(t, "http://"+server.Addr, nil), server
}

// newStore gives a store of the bucket "bucket".
func newStore(t *testing.T, endpoint string, opts *gcsstore.Options) *gcsstore.Store {
	t.Helper()
	if opts == nil {
		opts = &gcsstore.Options{}
	}
	opts.Endpoint = endpoint
	st, err := gcsstore.New(&http.Client{Transport: transport(t)}, "bucket", opts)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// reason is an answer with an error in the form of the JSON API.
func reason(status int, reason, message string) string {
	return wiretest.Raw(status, "Content-Type: application/json; charset=UTF-8\r\nX-Guploader-Uploadid: 4711\r\n", jsonError(status, reason, message))
}

func jsonError(status int, reason, message string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":%q,"errors":[{"message":%[2]q,"domain":"global","reason":%[3]q}]}}`, status, message, reason)
}

// text is an answer with an error as it comes where the body of an object was asked for.
func text(status int, message string) string {
	return wiretest.Raw(status, "Content-Type: text/html; charset=UTF-8\r\nX-Guploader-Uploadid: 4711\r\n", message)
}
