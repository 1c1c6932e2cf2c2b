package sim_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/proof/sim"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/s3store"
)

// TestAnswersAreThoseOfARealStore: the simulated store's errors are of the kinds that package
// s3store makes of the same answers of a server. Else the layouts and candidates would be shown
// errors that no store gives.
func TestAnswersAreThoseOfARealStore(t *testing.T) {
	t.Parallel()
	kinds := []error{
		store.ErrNotExist, store.ErrNotModified, store.ErrPrecondition, store.ErrConflict, store.ErrThrottled,
		store.ErrDenied, store.ErrUnknownOutcome, store.ErrTooLarge, store.ErrInvalid, store.ErrNoBucket, store.ErrUnavailable, store.ErrRefused,
	}
	for _, a := range sim.Answers() {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			st := answering(t, a)
			_, got := st.Get(t.Context(), "k", "")
			_, created := st.Put(t.Context(), "k", []byte("body"), store.IfAbsent())
			_, written := st.Put(t.Context(), "k", []byte("body"), store.IfMatch(`"v"`))
			errs := map[string][]error{"get": {got}, "put": {created, written}, "delete": {st.Delete(t.Context(), "k")}}
			for _, err := range st.List(t.Context(), "k", "") {
				errs["list"] = []error{err}
			}
			for _, op := range []string{"get", "put", "delete", "list"} {
				for _, err := range errs[op] {
					for _, kind := range kinds {
						if is, want := errors.Is(err, kind), slices.Contains(a.Kinds(op), kind); is != want {
							t.Errorf("%s: s3store's error matches %q: %t, the simulation's: %t (%v)", op, kind, is, want, err)
						}
					}
				}
			}
		})
	}
}

// answering is a store whose server gives that answer to everything.
func answering(t *testing.T, a sim.Answer) store.Store {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if a.Status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(a.Status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", a.Code)
	}))
	t.Cleanup(server.Close)
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(server.URL), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("user", "secret", ""),
	})
	st, err := s3store.New(client, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	return st
}
