package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/certmagic"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/leasehold/leasehold/adapter/certmagic/internal/authority"
)

// certmagic keeps its default cache, and what maintains it, for as long as the process runs.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.(*Cache).maintainAssets"))
}

// TestExample: the program of the README obtains certificates, and finds them there the second time.
func TestExample(t *testing.T) {
	issuer := authority.New("example")
	certmagic.Default.Issuers, certmagic.Default.Logger = []certmagic.Issuer{issuer}, zap.NewNop()
	for range 2 {
		os.Args = []string{"example", "mem://example", "example.com", "*.example.com"}
		said := output(t, main)
		if want := "certificates of [example.com *.example.com]\n"; said != want {
			t.Errorf("it says %q, want %q", said, want)
		}
	}
	if n := issuer.Issued(); n != 2 {
		t.Errorf("%d certificates were issued, want 2", n)
	}
}

func output(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer func(was *os.File) { os.Stdout = was }(os.Stdout)
	os.Stdout = w
	f()
	w.Close()
	said, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// TestReadme: what the README shows is this program.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```\n") {
		t.Error("README.md does not show example/main.go as it is")
	}
}
