package s3store_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/processcreds"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold/leasehold/store"
)

// A gate lets requests in, except those of the access key OLD while it refuses that with a code.
type gate struct {
	status  int
	code    string // of refusals; "": everything is let in
	refused int
}

func (g *gate) Do(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: 200, Header: http.Header{"Etag": {`"v1"`}}, Body: io.NopCloser(strings.NewReader("body")), ContentLength: 4, Request: r}
	if strings.Contains(r.Header.Get("Authorization"), "Credential=OLD/") && g.code != "" {
		g.refused++
		text := xmlError(g.code, "words")
		answer.StatusCode, answer.Body, answer.ContentLength = g.status, io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
	return answer, nil
}

// TestRefusedCredentialsAreFetchedAgain: a store that refused credentials before their end used to be asked with them
// until that end, and waiting commands ended.
func TestRefusedCredentialsAreFetchedAgain(t *testing.T) {
	for _, refusal := range []gate{
		{status: 400, code: "ExpiredToken"},
		{status: 403, code: "ExpiredTokenException"},
		{status: 403, code: "RequestExpired"},
		{status: 400, code: "TokenRefreshRequired"},
		{status: 403, code: "InvalidAccessKeyId"},
		{status: 400, code: "InvalidToken"},
		{status: 401, code: "Unauthorized"},
	} {
		t.Run(refusal.code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key, fetched := "OLD", 0
				g := &gate{}
				st := newStore(t, client("http://s3.test", func(o *s3.Options) {
					o.HTTPClient = g
					o.Credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
						fetched++
						return aws.Credentials{AccessKeyID: key, SecretAccessKey: "s", SessionToken: "t", CanExpire: true, Expires: time.Now().Add(24 * time.Hour)}, nil
					}))
				}))
				if _, err := st.Get(t.Context(), "k", ""); err != nil {
					t.Fatal(err)
				}
				*g = refusal
				for range 600 { // one minute
					if _, err := st.Get(t.Context(), "k", ""); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), refusal.code) || !strings.Contains(err.Error(), "words") {
						t.Fatalf("with refused credentials: %v", err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				if fetched < 2 || fetched > 13 {
					t.Errorf("credentials were fetched %d times in a minute", fetched)
				}
				key = "NEW"
				time.Sleep(5 * time.Second)
				_, _ = st.Get(t.Context(), "k", "")
				if _, err := st.Get(t.Context(), "k", ""); err != nil {
					t.Errorf("with new credentials: %v", err)
				}
			})
		})
	}
}

// TestRefusedForGood: of a key that a person has set there are no others, and one that the server never took is the
// wrong one.
func TestRefusedForGood(t *testing.T) {
	for _, tt := range []struct {
		name, code string
		creds      aws.Credentials
		want       error
	}{
		{"a session that was set", "ExpiredToken", aws.Credentials{SessionToken: "t"}, store.ErrDenied},
		{"a key that was set", "InvalidAccessKeyId", aws.Credentials{}, store.ErrDenied},
		{"a role that never had access", "InvalidAccessKeyId", aws.Credentials{CanExpire: true, Expires: time.Now().Add(time.Hour)}, store.ErrDenied},
		{"a role", "ExpiredToken", aws.Credentials{CanExpire: true, Expires: time.Now().Add(time.Hour)}, store.ErrUnavailable},
		{"a program", "ExpiredToken", aws.Credentials{Source: processcreds.ProviderName}, store.ErrUnavailable},
		{"what it allows", "AccessDenied", aws.Credentials{CanExpire: true, Expires: time.Now().Add(time.Hour)}, store.ErrDenied},
	} {
		tt.creds.AccessKeyID, tt.creds.SecretAccessKey = "OLD", "s"
		st := newStore(t, client("http://s3.test", func(o *s3.Options) {
			o.HTTPClient = &gate{status: 403, code: tt.code}
			o.Credentials = credentials.StaticCredentialsProvider{Value: tt.creds}
		}))
		if _, err := st.Get(t.Context(), "k", ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}
