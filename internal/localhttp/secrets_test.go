package localhttp_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/localhttp"
	"github.com/leasehold/leasehold/internal/reread"
	"github.com/leasehold/leasehold/internal/servers"
)

// secretFiles are files of a token, a certificate, its key and the authority of clients.
func secretFiles(t *testing.T) (localhttp.Files, *servers.Authority) {
	t.Helper()
	dir, authority := t.TempDir(), servers.NewAuthority(t)
	authority.Write(t, dir, "127.0.0.1")
	f := localhttp.Files{Token: filepath.Join(dir, "token")}
	for _, to := range []struct {
		field *string
		name  string
	}{{&f.Cert, "me.pem"}, {&f.Key, "me.key"}, {&f.ClientCA, "ca.pem"}} {
		*to.field = filepath.Join(dir, to.name)
		if _, err := os.Stat(*to.field); err != nil {
			t.Fatal(err)
		}
	}
	write(t, f.Token, "secret\n")
	return f, authority
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// with asks with a token and a certificate, and gives the status; 0: there was no connection.
func with(t *testing.T, address, token string, trusts *servers.Authority, shows tls.Certificate) int {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusts.PEM())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{shows}, MinVersion: tls.VersionTLS12}}}
	r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	a, err := client.Do(r)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, a.Body)
	_ = a.Body.Close()
	return a.StatusCode
}

// A token, a certificate and the authorities of clients that are replaced count from the next reading on, for a server that
// runs; what cannot be used changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	f, old := secretFiles(t)
	secrets, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := serveWith(t, "127.0.0.1:0", localhttp.Options{Token: secrets.Token, TLS: secrets.TLS}, hello)
	wants := func(what, token string, trusts *servers.Authority, shows tls.Certificate, code int) {
		t.Helper()
		if got := with(t, s.Address(), token, trusts, shows); got != code {
			t.Errorf("%s: %d, want %d", what, got, code)
		}
	}
	reload := func(change bool, fails string) {
		t.Helper()
		changed, err := secrets.Reload()
		if changed != change || (err == nil) != (fails == "") || err != nil && !strings.Contains(err.Error(), fails) {
			t.Errorf("reloaded: %t, %v; want %t, %q", changed, err, change, fails)
		}
	}
	mine := old.Issue(t, "client")
	wants("at first", "secret", old, mine, 200)
	reload(false, "")

	write(t, f.Token, "another\n")
	wants("before it is read", "secret", old, mine, 200)
	reload(true, "")
	wants("the token of before", "secret", old, mine, 401)
	wants("the token of now", "another", old, mine, 200)

	next := servers.NewAuthority(t)
	theirs := next.Issue(t, "client")
	wants("a client of another authority", "another", old, theirs, 0)
	write(t, f.ClientCA, string(old.PEM())+string(next.PEM()))
	reload(true, "")
	wants("a client of another authority", "another", old, theirs, 200)
	wants("one of the first", "another", old, mine, 200)

	dir := t.TempDir()
	next.Write(t, dir, "127.0.0.1")
	for name, to := range map[string]string{"me.pem": f.Cert, "me.key": f.Key, "ca.pem": f.ClientCA} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, to, string(text))
	}
	reload(true, "")
	wants("who trusts the authority of before", "another", old, theirs, 0)
	wants("who trusts that of now", "another", next, theirs, 200)
	wants("a client of the authority of before", "another", next, mine, 0)

	for what, c := range map[string]struct{ file, text, fails string }{
		"an empty token":      {f.Token, "", "--http-token-file: "},
		"no certificate":      {f.Cert, "x", "--tls-cert "},
		"another key":         {f.Key, "x", "--tls-cert "},
		"no authority":        {f.ClientCA, "x", "--tls-client-ca "},
		"a token of two":      {f.Token, "a b\n", "--http-token-file: "},
		"a huge one":          {f.Token, strings.Repeat("x", 5000), "--http-token-file: "},
		"authorities of 2 MB": {f.ClientCA, strings.Repeat("x", 2<<20), "--tls-client-ca: "},
		"half an authority":   {f.ClientCA, string(next.PEM()) + string(old.PEM()[:200]), "--tls-client-ca "},
	} {
		text, err := os.ReadFile(c.file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, c.file, c.text)
		reload(false, c.fails)
		wants(what, "another", next, theirs, 200)
		write(t, c.file, string(text))
	}
	if err := os.Remove(f.Token); err != nil {
		t.Fatal(err)
	}
	reload(false, "--http-token-file: ")
	wants("a file that is gone", "another", next, theirs, 200)
}

// What others can read is no secret: neither a token nor a key. A certificate is none.
func TestSecretsThatOthersCanRead(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("a mode on Windows says nothing about others")
	}
	for _, secret := range []func(localhttp.Files) string{func(f localhttp.Files) string { return f.Token }, func(f localhttp.Files) string { return f.Key }} {
		for _, mode := range []os.FileMode{0o604, 0o602, 0o644, 0o666} {
			f, _ := secretFiles(t)
			if err := os.Chmod(secret(f), mode); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Open(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("is open to all users of this machine (mode %04o): chmod o= %s", mode, secret(f))) {
				t.Errorf("%s with mode %04o: %v", secret(f), mode, err)
			}
			if _, err := reread.Secret(secret(f)); err == nil {
				t.Errorf("%s with mode %04o is read", secret(f), mode)
			}
		}
	}
	f, _ := secretFiles(t)
	if err := errors.Join(os.Chmod(f.Token, 0o640), os.Chmod(f.Key, 0o440), os.Chmod(f.Cert, 0o644), os.Chmod(f.ClientCA, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open(); err != nil {
		t.Error(err)
	}
	for what, f := range map[string]localhttp.Files{"a certificate without a key": {Cert: f.Cert}, "a key without a certificate": {Key: f.Key}, "authorities alone": {ClientCA: f.ClientCA}} {
		if _, err := f.Open(); err == nil || !strings.Contains(err.Error(), "TLS needs both") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
