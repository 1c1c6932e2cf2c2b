package integration

import (
	"crypto/tls"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddytest"
)

// TestMain has Caddy store the certificates that tests ask for as soon as they have configured them. Caddy obtains those
// that it has not stored in the background, and gives up when the next test configures it.
func TestMain(m *testing.M) {
	// Caddy adds its root certificate to those that the machine trusts, by programs, unless a test forbids it.
	os.Setenv("PATH", "")
	os.Unsetenv("JAVA_HOME")
	flag.Parse()
	caddytest.NewTester(tb{}).InitServer(`
	{
		skip_install_trust
		local_certs
		admin localhost:2999
		http_port 9080
		https_port 9443
	}
	localhost, example.com {
		respond ok
	}
	`, "caddyfile")
	for _, name := range []string{"localhost", "example.com"} {
		for {
			conn, err := tls.Dial("tcp", "127.0.0.1:9443", &tls.Config{ServerName: name, InsecureSkipVerify: true})
			if err == nil {
				conn.Close()
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	os.Exit(m.Run())
}

// tb is for a server outside of tests.
type tb struct{ testing.TB }

func (tb) Helper()             {}
func (tb) Logf(string, ...any) {}
func (tb) Cleanup(func())      {}
