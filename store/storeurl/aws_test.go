package storeurl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/testenv"
	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

// A bucket is a server of S3 without an object. It keeps who asked.
type bucket struct {
	*httptest.Server
	mu   sync.Mutex
	keys []string // the access keys of the requests
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	b := &bucket{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, credential, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ := strings.Cut(credential, "/")
		b.mu.Lock()
		b.keys = append(b.keys, key)
		b.mu.Unlock()
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "<Error><Code>NoSuchKey</Code></Error>")
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *bucket) asked() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys
}

// withoutAWS takes every source of credentials away.
func withoutAWS(t *testing.T) (credentialsFile string) {
	t.Helper()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("USERPROFILE", dir)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	return filepath.Join(dir, "credentials")
}

func openBucket(t *testing.T, b *bucket) store.Store {
	t.Helper()
	st, err := storeurl.Open(t.Context(), "s3://bucket?endpoint="+b.URL)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

const grantedKeys = `{"AccessKeyId":"AKIDSERVICE","SecretAccessKey":"secret","Token":"t","Expiration":%q}`

// TestServiceForAWSCredentialsFails: a service that cannot answer is a store that cannot, and only an answer that it
// would give again ends the wait.
func TestServiceForAWSCredentialsFails(t *testing.T) {
	withoutAWS(t)
	const inContainers, onEC2 = "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT"
	for _, tt := range []struct {
		name, variable string
		status         int // 0: nothing listens; -1: it hangs
		want           error
		says           string
	}{
		{"500", inContainers, 500, store.ErrUnavailable, "answers 500 and gives no AWS credentials for now"},
		{"429", inContainers, 429, store.ErrUnavailable, "gives no AWS credentials for now"},
		{"a page", inContainers, 200, store.ErrUnavailable, "gives no AWS credentials for now"},
		{"refused", inContainers, 0, store.ErrUnavailable, "gives no AWS credentials for now"},
		{"hanging", inContainers, -1, store.ErrUnavailable, "gives no AWS credentials for now"},
		{"403", inContainers, 403, store.ErrDenied, inContainers},
		{"404", inContainers, 404, store.ErrDenied, inContainers},
		{"EC2 fails", onEC2, 501, store.ErrUnavailable, "EC2"},
		{"EC2 without a role", onEC2, 404, store.ErrDenied, "no role is attached"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			end := make(chan struct{})
			service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tt.status < 0 {
					giveUp()
					<-end
					return
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, "<html>words")
			}))
			defer service.Close()
			defer close(end)
			url := service.URL
			if tt.status == 0 {
				url = "http://" + testenv.Refused
			}
			t.Setenv(tt.variable, url)
			if tt.variable == onEC2 {
				t.Setenv("AWS_EC2_METADATA_DISABLED", "")
			}
			b := newBucket(t)
			_, err := openBucket(t, b).Get(ctx, "k", "")
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %v and %q", err, tt.want, tt.says)
			}
			if len(b.asked()) > 0 {
				t.Error("the store was asked without credentials")
			}
		})
	}
}

// TestNoAWSCredentials: what a person must change is said at once, and how.
func TestNoAWSCredentials(t *testing.T) {
	for name, tt := range map[string]struct{ config, credentials, says string }{
		"nothing":            {"", "", "set AWS_ACCESS_KEY_ID"},
		"no login":           {"[default]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n[sso-session s]\nsso_region = us-east-1\nsso_start_url = https://example.test/start\n", "", "aws sso login"},
		"a program":          {"[default]\ncredential_process = exit 3\n", "", "credential_process"},
		"an end of a line":   {"", "[default]\naws_access_key_id = AKID\naws_secret_access_key = s\naws_session_token = one\ttwo\n", "SharedConfigCredentials"},
		"a missing web file": {"[default]\nrole_arn = arn:aws:iam::1:role/r\nweb_identity_token_file = /nosuch/token\n", "", "AWS_WEB_IDENTITY_TOKEN_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			file := withoutAWS(t)
			t.Setenv("AWS_REGION", "us-east-1")
			write(t, file, tt.credentials)
			write(t, os.Getenv("AWS_CONFIG_FILE"), tt.config)
			_, err := openBucket(t, newBucket(t)).Get(t.Context(), "k", "")
			if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%v, want %v and %q", err, store.ErrDenied, tt.says)
			}
		})
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestValidAWSCredentialsAreUsed while the service that gave them fails. The SDK drops those of containers five
// minutes before they end.
func TestValidAWSCredentialsAreUsed(t *testing.T) {
	withoutAWS(t)
	var fails atomic.Bool
	var asked atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, grantedKeys, time.Now().Add(4*time.Minute).UTC().Format(time.RFC3339))
	}))
	defer service.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.URL)
	b := newBucket(t)
	st := openBucket(t, b)
	for range 5 {
		if _, err := st.Get(t.Context(), "k", ""); !errors.Is(err, store.ErrNotExist) {
			t.Errorf("with valid credentials: %v", err)
		}
		fails.Store(true)
	}
	if keys := b.asked(); len(keys) != 5 || keys[4] != "AKIDSERVICE" {
		t.Errorf("the store was asked by %q", keys)
	}
	if n := asked.Load(); n > 6 {
		t.Errorf("the service was asked %d times", n)
	}
}

// TestRotatedAWSCredentialsFile: a file is read again when it changes, and what stood in it is used as long as it
// cannot be read.
func TestRotatedAWSCredentialsFile(t *testing.T) {
	file := withoutAWS(t)
	keys := func(id string) string {
		return "[default]\naws_access_key_id = " + id + "\naws_secret_access_key = secret\n"
	}
	write(t, file, keys("AKID1"))
	b := newBucket(t)
	st := openBucket(t, b)
	for _, step := range []struct{ text, want string }{
		{"", "AKID1"},
		{keys("AKID22"), "AKID22"},
		{"[default", "AKID22"},
		{"[default]\n", "AKID22"},
		{keys("AKID333"), "AKID333"},
	} {
		if step.text != "" {
			write(t, file+".new", step.text)
			if err := os.Rename(file+".new", file); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := st.Get(t.Context(), "k", ""); !errors.Is(err, store.ErrNotExist) {
			t.Fatalf("with %q: %v", step.text, err)
		}
		if asked := b.asked(); asked[len(asked)-1] != step.want {
			t.Errorf("with %q the store was asked by %q, want %q", step.text, asked[len(asked)-1], step.want)
		}
	}
}

// TestUnknownProfile names the profile, and the files.
func TestUnknownProfile(t *testing.T) {
	file := withoutAWS(t)
	t.Setenv("AWS_PROFILE", "nosuch")
	_, err := storeurl.Open(t.Context(), "s3://bucket?region=us-east-1")
	if err == nil || !strings.Contains(err.Error(), "nosuch") || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want the profile and the files", err)
	}
}

// TestServiceForAWSCredentialsLeadsToItself: the clients of the SDK would ask it thousands of times in a second.
func TestServiceForAWSCredentialsLeadsToItself(t *testing.T) {
	withoutAWS(t)
	var asked atomic.Int32
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 100 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
	}))
	defer service.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.URL)
	_, err := openBucket(t, newBucket(t)).Get(t.Context(), "k", "")
	if n := asked.Load(); !errors.Is(err, store.ErrUnavailable) || n > 5 {
		t.Errorf("%v, after %d requests", err, n)
	}
}

// TestAWSLogsNothing: the SDK would write to stderr that it cannot read a date, amid what a program reads there.
func TestAWSLogsNothing(t *testing.T) {
	withoutAWS(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", "yesterday")
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer server.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	st, err := storeurl.Open(t.Context(), "s3://bucket?endpoint="+server.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = st.Get(t.Context(), "k", ""); !errors.Is(err, store.ErrUnavailable) {
		t.Error(err)
	}
	if said, err := os.ReadFile(file.Name()); err != nil || len(said) > 0 {
		t.Errorf("stderr got %q, %v", said, err)
	}
}
