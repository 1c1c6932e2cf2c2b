package azstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/leasehold/leasehold/store/azstore"
	"github.com/leasehold/leasehold/store/internal/wiretest"
)

// A faulty server answers every request with whatever bytes it was given.
type faulty struct{ *wiretest.Server }

func newFaulty(t *testing.T, answer string, end wiretest.Ending) *faulty {
	t.Helper()
	return &faulty{wiretest.New(t, answer, end)}
}

func (f *faulty) store(t *testing.T, set ...func(*azstore.Options)) *azstore.Store {
	t.Helper()
	return newStore(t, "http://"+f.Addr, set...)
}

// secret is the part of a SAS that no message may show.
const secret = "sig=c2VjcmV0"

// newStore gives the store at an endpoint, with a SAS, as its URL would have it.
func newStore(t *testing.T, endpoint string, set ...func(*azstore.Options)) *azstore.Store {
	t.Helper()
	o := azstore.Options{Retry: policy.RetryOptions{MaxRetries: 2, RetryDelay: time.Nanosecond}}
	for _, f := range set {
		f(&o)
	}
	url := endpoint + "/account/container"
	if o.SharedKey == nil && o.Token == nil {
		url += "?sp=rcwdl&" + secret
	}
	st, err := azstore.New(url, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	return st
}

func withKey(t *testing.T) func(*azstore.Options) {
	t.Helper()
	key, err := container.NewSharedKeyCredential("account", "a2V5")
	if err != nil {
		t.Fatal(err)
	}
	return func(o *azstore.Options) { o.SharedKey = key }
}

// coded is an answer with an error code, in the form of Azure.
func coded(status int, code string) string { return detailed(status, code, "") }

func detailed(status int, code, detail string) string {
	return wiretest.Raw(status, "Content-Type: application/xml\r\nx-ms-request-id: id\r\nx-ms-error-code: "+code+"\r\n",
		"\ufeff<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>"+code+"</Code><Message>words.\nRequestId:id\nTime:now</Message>"+detail+"</Error>")
}

// drain reads a listing to its end.
func drain(ctx context.Context, st *azstore.Store, prefix, after string) (keys []string, err error) {
	for entry, e := range st.List(ctx, prefix, after) {
		if e != nil {
			return keys, e
		}
		keys = append(keys, entry.Key)
	}
	return keys, nil
}
