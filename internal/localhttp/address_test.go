package localhttp_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/localhttp"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text, want string // the address as it reads itself
		local      bool
		err        string
	}{
		{text: "127.0.0.1:4040", want: "127.0.0.1:4040", local: true},
		{text: "127.9.9.9:0", want: "127.9.9.9:0", local: true},
		{text: "[::1]:0", want: "[::1]:0", local: true},
		{text: "localhost:80", want: "localhost:80", local: true},
		{text: "unix:/run/x.sock", want: "unix:/run/x.sock", local: true},
		{text: "unix:///run/x.sock", want: "unix:/run/x.sock", local: true},
		{text: "unix:x.sock", want: "unix:x.sock", local: true},
		{text: ":4040", want: ":4040"},
		{text: "0.0.0.0:4040", want: "0.0.0.0:4040"},
		{text: "[::]:4040", want: "[::]:4040"},
		{text: "10.0.0.1:65535", want: "10.0.0.1:65535"},
		{text: "localhost.example:1", want: "localhost.example:1"},
		{text: "", err: `"" is not an address: missing port`},
		{text: "4040", err: "missing port"},
		{text: "127.0.0.1", err: "missing port"},
		{text: "::1:80", err: "too many colons"},
		{text: "127.0.0.1:http", err: `the port "http" is not a number from 0 to 65535`},
		{text: "127.0.0.1:65536", err: `the port "65536"`},
		{text: "127.0.0.1:-1", err: `the port "-1"`},
		{text: "http://127.0.0.1:80", err: "too many colons"},
		{text: "unix:", err: "names no file"},
		{text: "unix:@abstract", err: "names no file"},
		{text: "unix:/" + strings.Repeat("x", 200), err: "the path /xxx"},
	} {
		a, err := localhttp.ParseAddress(tc.text)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q: %v, %v; want an error with %q", tc.text, a, err, tc.err)
			}
			continue
		}
		if runtime.GOOS == "windows" {
			tc.want = filepath.FromSlash(tc.want)
		}
		if err != nil || a.String() != tc.want || a.Local() != tc.local {
			t.Errorf("%q: %v, local %v, %v", tc.text, a, a.Local(), err)
			continue
		}
		if err := localhttp.Check(a, localhttp.Token{}); errors.Is(err, localhttp.ErrTokenNeeded) == tc.local {
			t.Errorf("%q without a token: %v", tc.text, err)
		}
	}
}

func TestReadToken(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text string
		mode os.FileMode
		err  string
	}{
		{"secret", 0o600, ""},
		{"secret\r\n", 0o440, ""},
		{"", 0o600, "is empty"},
		{"\n", 0o600, "is empty"},
		{"two words", 0o600, "a character at byte 3"},
		{"one\ntwo", 0o600, "a character at byte 3"},
		{"gehe\u00efm", 0o600, "a character at byte 4"},
		{strings.Repeat("x", 4096), 0o600, ""},
		{strings.Repeat("x", 4097), 0o600, "more than 4096 bytes"},
		{"secret", 0o604, "is open to all users of this machine (mode 0604): chmod o= "},
		{"secret", 0o602, "is open to all users"},
	} {
		if runtime.GOOS == "windows" && tc.mode&0o006 != 0 {
			continue // there is no such mode
		}
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, tc.mode); err != nil {
			t.Fatal(err)
		}
		_, err := localhttp.ReadToken(file)
		switch {
		case (err == nil) != (tc.err == ""):
			t.Errorf("%.10q, mode %o: %v", tc.text, tc.mode, err)
		case err != nil && (!strings.Contains(err.Error(), tc.err) || !strings.Contains(err.Error(), file)):
			t.Errorf("%.10q, mode %o: %v, want %q of %s", tc.text, tc.mode, err, tc.err, file)
		}
	}
	if _, err := localhttp.ReadToken(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}
