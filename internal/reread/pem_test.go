package reread_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/internal/reread"
	"github.com/leasehold/leasehold/internal/servers"
)

// A part of a file that is still being written is not taken for the whole: the parsers of the standard library skip what is
// incomplete, so half of a bundle would have been a bundle with fewer authorities.
func TestPEM(t *testing.T) {
	t.Parallel()
	one, two := servers.NewAuthority(t), servers.NewAuthority(t)
	dir := t.TempDir()
	one.Write(t, dir, "127.0.0.1")
	file := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	cert, key := file("me.pem"), file("me.key")
	two.Write(t, dir, "127.0.0.1")
	other := file("me.key")
	join := func(texts ...[]byte) []byte { return bytes.Join(texts, nil) }
	half := two.PEM()[:len(two.PEM())/2]
	broken := bytes.Replace(two.PEM(), []byte("MII"), []byte("AAA"), 1)
	if bytes.Equal(broken, two.PEM()) {
		t.Fatal("nothing is broken")
	}
	for name, tt := range map[string]struct {
		text  []byte
		fails string
	}{
		"one":                   {one.PEM(), ""},
		"two with a comment":    {join([]byte("# ours\n"), one.PEM(), []byte("\n# theirs\n"), two.PEM()), ""},
		"one and half a one":    {join(one.PEM(), half), "1 of 2 PEM blocks in it are complete"},
		"half a one and one":    {join(half, []byte("\n"), one.PEM()), "1 of 2 PEM blocks in it are complete"},
		"one that is no more":   {join(one.PEM(), broken), "certificate 2 in it cannot be parsed"},
		"a key":                 {key, "there is no certificate in it"},
		"nothing":               {nil, "there is no certificate in it"},
		"the beginning of one":  {[]byte("-----BEGIN CERTIF"), "0 of 1 PEM blocks in it are complete"},
		"a line that is no PEM": {[]byte("see -----BEGIN CERTIFICATE-----\n"), "there is no certificate in it"},
	} {
		pool, err := reread.CAs(tt.text)
		if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) || (pool != nil) != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, tt := range map[string]struct {
		cert, key []byte
		fails     string
	}{
		"alone":               {cert, key, ""},
		"with a chain":        {join(cert, one.PEM()), key, ""},
		"with half a chain":   {join(cert, half), key, "1 of 2 PEM blocks in it are complete"},
		"with another's key":  {cert, other, "does not match"},
		"with half a key":     {cert, key[:len(key)/2], "key"},
		"half of it":          {cert[:len(cert)/2], key, "certificate"},
		"with a broken chain": {join(cert, broken), key, "certificate 2 in it cannot be parsed"},
	} {
		pair, err := reread.KeyPair(tt.cert, tt.key)
		if (err == nil) != (tt.fails == "") || err != nil && !strings.Contains(err.Error(), tt.fails) || (len(pair.Certificate) > 0) != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
