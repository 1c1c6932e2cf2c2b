package storeurl

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/leasehold/leasehold/store"
)

var blobs = policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}}

// managed is an identity of a machine whose service for tokens is at a URL.
func managed(t *testing.T, at string) *identity {
	t.Helper()
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
	t.Setenv("AZURE_CLIENT_ID", "")
	if err := os.Unsetenv("AZURE_CLIENT_ID"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("IDENTITY_ENDPOINT", at)
	t.Setenv("IDENTITY_HEADER", "header")
	i, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// once has the library send each request once, so that the tests need not wait.
func once(t *testing.T) context.Context {
	t.Helper()
	return policy.WithRetryOptions(t.Context(), policy.RetryOptions{MaxRetries: -1})
}

func TestIdentity(t *testing.T) {
	in := time.Now().Add(time.Hour).Unix()
	i := managed(t, answering(t, 200, fmt.Sprintf(`{"access_token":"secret","expires_on":"%d","resource":"https://storage.azure.com/","token_type":"Bearer"}`, in)))
	// The token must not serve another test: the library keeps them for the process, by what they are for.
	other := policy.TokenRequestOptions{Scopes: []string{"https://" + rand.Text() + ".example/.default"}}
	token, err := i.GetToken(once(t), other)
	if err != nil || token.Token != "secret" || token.ExpiresOn.Unix() != in {
		t.Errorf("%v, %v", token, err)
	}
	for _, tt := range []struct {
		name string
		at   string
		kind error
	}{
		{"a refusal", answering(t, 400, `{"statusCode":400,"message":"no identity"}`), store.ErrDenied},
		{"another", answering(t, 403, `{}`), store.ErrDenied},
		{"no answer for now", answering(t, 503, `{}`), store.ErrUnavailable},
		{"too many requests", answering(t, 429, `{}`), store.ErrUnavailable},
		{"nobody there", nobody, store.ErrUnavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := managed(t, tt.at).GetToken(once(t), blobs)
			if !errors.Is(err, tt.kind) || errors.Is(err, store.ErrDenied) && errors.Is(err, store.ErrUnavailable) || strings.ContainsAny(err.Error(), "\n") {
				t.Errorf("it says %v, want %v in one line", err, tt.kind)
			}
		})
	}
	t.Run("a caller whose time is over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(once(t))
		cancel()
		if _, err := managed(t, nobody).GetToken(ctx, blobs); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// A chain is one whose answer is written down.
type chain func() (azcore.AccessToken, error)

func (c chain) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return c()
}

// TestNoIdentity: what tools say, and that there is nothing at all, cannot be told from each other. It is final until
// there was a token.
func TestNoIdentity(t *testing.T) {
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "AZURE_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
	i, err := newIdentity()
	if err != nil {
		t.Fatal(err)
	}
	_, err = i.GetToken(once(t), blobs)
	if !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), `run "az login"`) || !strings.Contains(err.Error(), "AZURE_TENANT_ID") {
		t.Errorf("with nothing set it says %v", err)
	}

	found := i.chain
	i.chain = chain(func() (azcore.AccessToken, error) { return azcore.AccessToken{Token: "secret"}, nil })
	if _, err = i.GetToken(once(t), blobs); err != nil {
		t.Fatal(err)
	}
	i.chain = found
	if _, err = i.GetToken(once(t), blobs); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("after there was a token it says %v", err)
	}
}

// TestNoIdentityInTheStore: the store passes the kind on.
func TestNoIdentityInTheStore(t *testing.T) {
	for at, kind := range map[string]error{answering(t, 400, `{}`): store.ErrDenied, answering(t, 503, `{}`): store.ErrUnavailable} {
		managed(t, at)
		st, err := Open(t.Context(), "azblob://container?endpoint=https://127.0.0.1:9/"+fmt.Sprintf("acct%d", len(kind.Error())))
		if err != nil {
			t.Fatal(err)
		}
		_, err = st.Put(once(t), "key", []byte("x"), store.IfAbsent())
		if failed, ok := errors.AsType[*store.Error](err); !ok || !errors.Is(failed.Kind, kind) {
			t.Errorf("%v, want the kind %v", err, kind)
		}
	}
}
