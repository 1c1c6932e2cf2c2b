package s3store_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

func TestContextEndsInFlight(t *testing.T) {
	for name, answer := range map[string]string{
		"no answer":   "",
		"cut headers": wiretest.CutHeaders(wiretest.Raw(200, "ETag: \"v2\"\r\n", "")),
	} {
		for op, do := range operations {
			t.Run(name+"/"+op, func(t *testing.T) {
				t.Parallel()
				server := newFaulty(t, answer, wiretest.Hang)
				ctx, cancel := context.WithCancelCause(t.Context())
				go func() {
					<-server.Arrived
					cancel(errOwnCause)
				}()
				err := do(ctx, server.store(t))
				want := store.ErrUnavailable
				if slices.Contains(writes, op) {
					want = store.ErrUnknownOutcome
				}
				wiretest.CheckError(t, op, err, want)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v does not match context.Canceled", err)
				}
				if n := len(server.Seen()); n != 1 {
					t.Errorf("%d requests reached the server, want 1", n)
				}
			})
		}
	}
}

var errOwnCause = errors.New("a cause of its own")

// cancelling is an HTTP client that ends a context once it has an answer, whose body
// may still be on its way.
type cancelling struct{ cancel context.CancelCauseFunc }

func (c cancelling) Do(req *http.Request) (*http.Response, error) {
	answer, err := http.DefaultClient.Do(req)
	c.cancel(errOwnCause)
	return answer, err
}

func TestContextEndsWithinTheBody(t *testing.T) {
	for _, op := range reads {
		t.Run(op, func(t *testing.T) {
			server := newFaulty(t, wiretest.Cut(wiretest.Raw(200, "ETag: \"v2\"\r\n", "<x></x>"), 3), wiretest.Hang)
			ctx, cancel := context.WithCancelCause(t.Context())
			err := operations[op](ctx, server.store(t, func(o *s3.Options) { o.HTTPClient = cancelling{cancel} }))
			wiretest.CheckError(t, op, err, store.ErrUnavailable)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not match context.Canceled", err)
			}
		})
	}
}

// The answer came first: the context has not ended the call, whatever it did
// afterwards.
func TestContextEndsAfterTheAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"whole": wiretest.Raw(412, "", ""),
		"cut":   wiretest.Cut(coded(412, "PreconditionFailed"), 20),
	} {
		t.Run(name, func(t *testing.T) {
			server := newFaulty(t, answer, wiretest.Hang)
			ctx, cancel := context.WithCancelCause(t.Context())
			err := operations["update"](ctx, server.store(t, func(o *s3.Options) { o.HTTPClient = cancelling{cancel} }))
			wiretest.CheckError(t, "update", err, store.ErrPrecondition)
			if name == "whole" && errors.Is(err, context.Canceled) {
				t.Errorf("%v matches context.Canceled", err)
			}
		})
	}
}

func TestContextEndedBefore(t *testing.T) {
	for op, do := range operations {
		t.Run(op, func(t *testing.T) {
			server := newFaulty(t, wiretest.Raw(200, "ETag: \"v2\"\r\n", ""), wiretest.Hang)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			err := do(ctx, server.store(t))
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v does not match context.Canceled", err)
			}
			if op == "create" || op == "update" {
				wiretest.CheckError(t, op, err, store.ErrUnavailable)
			}
			if n := len(server.Seen()); n != 0 {
				t.Errorf("%d requests reached the server, want none", n)
			}
		})
	}
}
