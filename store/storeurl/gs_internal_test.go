package storeurl

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"

	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
)

// privateKey takes a while.
var privateKey = sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })

// serviceAccount writes the key of a service account whose tokens come from a URL.
func serviceAccount(t *testing.T, tokenURL string) (file string) {
	t.Helper()
	key, err := privateKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "a@b.example", "token_uri": tokenURL,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return written(t, string(text))
}

func written(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "credentials.json")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// answering is the URL of a server with one answer.
func answering(t *testing.T, status int, body string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After-Ms", "1") // for the tests of Azure
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// nobody is a URL at which no server is.
const nobody = "http://" + testenv.Refused

const grant = `{"access_token":"secret","expires_in":3600,"token_type":"Bearer"}`

// TestGoogleToken: what becomes of what a service for tokens says. The store is asked nothing, so that its address, at
// which nobody is, does no harm.
func TestGoogleToken(t *testing.T) {
	user := func(at string) string {
		return written(t, `{"type":"authorized_user","client_id":"id","client_secret":"hunter2","refresh_token":"hunter2","token_uri":"`+at+`"}`)
	}
	account := func(at string) string { return serviceAccount(t, at) }
	// A token of a file is changed at one service for another token, of which the library says no more than the text.
	federated := func(at string) string {
		subject := written(t, "hunter2")
		return written(t, fmt.Sprintf(`{"type":"external_account","audience":"a","subject_token_type":"urn:ietf:params:oauth:token-type:jwt","token_url":%q,"credential_source":{"file":%q}}`, at, subject))
	}
	for _, tt := range []struct {
		name string
		file string
		kind error
		says string
	}{
		{"a service account whose key was deleted", account(answering(t, 400, `{"error":"invalid_grant","error_description":"Invalid JWT Signature."}`)), store.ErrDenied, "400 Bad Request, invalid_grant: Invalid JWT Signature."},
		{"a service account that is unknown", account(answering(t, 401, `{}`)), store.ErrDenied, "401 Unauthorized"},
		{"a service that cannot answer", account(answering(t, 503, `later`)), store.ErrUnavailable, "503"},
		{"a service that wants fewer requests", account(answering(t, 429, `{}`)), store.ErrUnavailable, "429"},
		{"a service out of reach", account(nobody), store.ErrUnavailable, "refused"},
		{"an answer that is none", account(answering(t, 200, `<html>`)), store.ErrUnavailable, "cannot fetch token"},
		{"a key that is none", written(t, `{"type":"service_account","private_key":"hunter2"}`), store.ErrDenied, "private key"},
		{"a user whose login has ended", user(answering(t, 400, `{"error":"invalid_grant","error_description":"Token has been expired or revoked."}`)), store.ErrDenied, "expired or revoked"},
		{"a user and a service out of reach", user(nobody), store.ErrUnavailable, "refused"},
		{"a federation that refuses", federated(answering(t, 403, `{"error":"unauthorized_client"}`)), store.ErrDenied, "403"},
		{"a federation that cannot answer", federated(answering(t, 500, `{}`)), store.ErrUnavailable, "500"},
		{"a federation out of reach", federated(nobody), store.ErrUnavailable, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(gsCredentials, tt.file)
			st, err := Open(t.Context(), "gs://bucket?endpoint=https://127.0.0.1:9")
			if err != nil {
				t.Fatal(err)
			}
			_, err = st.Put(t.Context(), "key", []byte("x"), store.IfAbsent())
			failed, ok := errors.AsType[*store.Error](err)
			if !ok || !errors.Is(failed.Kind, tt.kind) || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says %v, want the kind %v and %q in one line", err, tt.kind, tt.says)
			}
			if !strings.Contains(err.Error(), tt.file) {
				t.Errorf("it does not say whose credentials these are: %v", err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("it shows a secret: %v", err)
			}
			if store.Final(err) != errors.Is(tt.kind, store.ErrDenied) {
				t.Errorf("final: %t", store.Final(err))
			}
		})
	}
}

func TestGoogleTokenIsHad(t *testing.T) {
	t.Setenv(gsCredentials, serviceAccount(t, answering(t, 200, grant)))
	token, err := googleToken(t.Context())
	if err != nil || token.AccessToken != "secret" || time.Until(token.Expiry) < 50*time.Minute {
		t.Errorf("%v, %v", token, err)
	}
}

// inMetadata is the variable in which a process of TestMetadataServer finds what the error must say.
const inMetadata = "LEASEHOLD_TEST_METADATA_SAYS"

// TestMetadataServer: a library looks once in a process whether there is one, so each case has a process of its own.
func TestMetadataServer(t *testing.T) {
	if want := os.Getenv(inMetadata); want != "" {
		kind, text, _ := strings.Cut(want, "|")
		token, err := googleToken(t.Context())
		got := fmt.Sprint(token != nil, errors.Is(err, store.ErrDenied), errors.Is(err, store.ErrUnavailable))
		if kind == "none" && metadata.OnGCE() {
			t.Logf("this machine is Google's: %v", err)
			return
		}
		wants := map[string]string{"token": "true false false", "denied": "false true false", "none": "false true false", "unavailable": "false false true"}
		if got != wants[kind] || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("%v, %v (%s), want %s", token, err, got, want)
		}
		return
	}
	for _, tt := range []struct{ name, host, want string }{
		{"a token", answering(t, 200, grant), "token|"},
		{"no service account", answering(t, 404, "no"), "denied|give this machine a service account"},
		{"no right to ask", answering(t, 403, "no"), "denied|403"},
		{"no machine of Google's", "", `none|there are no credentials: GOOGLE_APPLICATION_CREDENTIALS is not set`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMetadataServer$", "-test.v")
			cmd.Env = append(os.Environ(), inMetadata+"="+tt.want, gsCredentials+"=", "HOME="+home, "USERPROFILE="+home, "APPDATA="+home, "GCE_METADATA_HOST="+strings.TrimPrefix(tt.host, "http://"))
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// services give tokens that are valid for an hour, one for each request, unless they are down.
type services struct {
	mu    sync.Mutex
	asked int
	down  bool
	takes time.Duration
}

func (s *services) token(ctx context.Context) (*oauth2.Token, error) {
	s.mu.Lock()
	s.asked++
	n, down, takes := s.asked, s.down, s.takes
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if down {
		return nil, errors.New("down")
	}
	return &oauth2.Token{AccessToken: fmt.Sprint(n), Expiry: time.Now().Add(time.Hour)}, nil
}

func (s *services) be(down bool, takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down, s.takes = down, takes
}

// TestTokens: one request for all that wait, and another before the token ends, for which nobody waits.
func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &services{takes: time.Second}
		keep := &kept[string]{fetch: func(ctx context.Context) (string, validity, error) { return valid(s.token(ctx)) }}
		want := func(what, token string, asked int) {
			t.Helper()
			began := time.Now()
			got, err := keep.get(t.Context())
			took := time.Since(began)
			synctest.Wait() // until a request that began goes its way
			s.mu.Lock()
			defer s.mu.Unlock()
			if err != nil || got != token || s.asked != asked || took > 0 {
				t.Errorf("%s: %q, %v, after %d requests and %v; want %q after %d at once", what, got, err, s.asked, took, token, asked)
			}
		}
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if token, err := keep.get(t.Context()); token != "1" || err != nil {
					t.Errorf("%q, %v", token, err)
				}
			})
		}
		all.Wait()
		want("of ten at once", "1", 1)

		time.Sleep(time.Hour - gsEarly)
		s.be(true, time.Second)
		want("before it ends", "1", 2)
		time.Sleep(2 * time.Second)
		want("after a failure", "1", 2)
		time.Sleep(earlier)
		s.be(false, time.Second)
		want("at the next try", "1", 3)
		time.Sleep(2 * time.Second)
		want("after a success", "3", 3)

		time.Sleep(time.Hour)
		s.be(true, time.Second)
		if token, err := keep.get(t.Context()); err == nil {
			t.Errorf("a token that has ended is used: %q", token)
		}
		s.be(false, time.Hour) // it hangs
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := keep.get(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
			t.Errorf("a caller whose time is over: %v after %v", err, time.Since(began))
		}
		if _, err := keep.get(t.Context()); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != fetchWithin {
			t.Errorf("another that waits for the same: %v after %v", err, time.Since(began))
		}
	})
}

// TestConnectionsToGoogleAreBounded as those to S3 are.
func TestConnectionsToGoogleAreBounded(t *testing.T) {
	tr := gsTransport()
	if tr.MaxConnsPerHost != 2048 || tr.MaxIdleConnsPerHost != 10 || tr.MaxIdleConns != 100 || tr.IdleConnTimeout.Seconds() != 90 || tr.Protocols.HTTP2() ||
		tr.TLSHandshakeTimeout.Seconds() != 10 || tr.Proxy == nil || tr.DialContext == nil {
		t.Errorf("it is %+v", tr)
	}
}

// TestWhyThereIsNoGoogleToken: what may pass is told from what a person has to change, and whose credentials it is about.
func TestWhyThereIsNoGoogleToken(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "APPDATA", "USERPROFILE"} {
		t.Setenv(name, home)
	}
	answered := func(status int) *outcome { return &outcome{asked: true, status: status} }
	for _, tt := range []struct {
		file string
		err  error
		o    *outcome
		kind error
		says string
	}{
		{"", &metadata.Error{Code: 503, Message: "later"}, &outcome{}, store.ErrUnavailable, ""},
		{"", &metadata.Error{Code: 403, Message: "no"}, &outcome{}, store.ErrDenied, ""},
		{"", errors.New("dial: refused"), &outcome{}, store.ErrUnavailable, "dial: refused"},
		{"", metadata.NotDefinedError("x"), &outcome{}, store.ErrDenied, "; give this machine a service account"},
		{"/key", errors.New("bad\nkey"), &outcome{}, store.ErrDenied, "bad key"},
		{"/key", errors.New("refused"), answered(400), store.ErrDenied, "refused"},
		{"/key", errors.New("refused"), answered(500), store.ErrUnavailable, "refused"},
		{"/key", errors.New("refused"), answered(0), store.ErrUnavailable, "refused"},
		{"/key", &oauth2.RetrieveError{Response: &http.Response{Status: "400 Bad Request"}, Body: []byte(`{"error":"e","error_description":"d"}`)}, answered(400), store.ErrDenied, "400 Bad Request, e: d"},
		{"/key", &oauth2.RetrieveError{Response: &http.Response{Status: "400 Bad Request"}, Body: []byte(`{}`), ErrorDescription: "d"}, answered(400), store.ErrDenied, "400 Bad Request: d"},
	} {
		t.Setenv(gsCredentials, tt.file)
		where := tt.file
		if where == "" {
			where = "the metadata server of Google Cloud"
		}
		err := noGoogleToken(tt.err, tt.o)
		if e, ok := errors.AsType[*tokenError](err); !ok || e.kind != tt.kind || !strings.HasPrefix(e.text, "no token by the credentials of "+where+": ") || !strings.HasSuffix(e.text, tt.says) { //nolint:errorlint // the kind itself
			t.Errorf("%v with %+v: %v, want %v that ends with %q", tt.err, tt.o, err, tt.kind, tt.says)
		}
	}
}

// TestOneLine: what others say is shown in one line, and not all of what has no end.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"a\n\tb  c\xff":          "a b c?",
		strings.Repeat("ü", 600): strings.Repeat("ü", 600),
		strings.Repeat("ü", 601): strings.Repeat("ü", 600) + "…",
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
