package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold/leasehold/store"
	"github.com/leasehold/leasehold/store/storeurl"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"status", "shards", "run", "epochs", "marker", "--ttl", "gc"}
	for written, want := range map[string]string{
		"stauts": "status", "statu": "status", "sttus": "status", "rnu": "run", "runn": "run", "epoch": "epochs",
		"makrer": "marker", "--tll": "--ttl", "nonsense": "", "": "", "r": "", "x": "",
		"xy": "", "rx": "", "xyc": "", // of which nothing is left, and which leave nothing
	} {
		if got := nearest(written, words, 2); got != want {
			t.Errorf("%q is near %q, want %q", written, got, want)
		}
	}
	for written, words := range map[string][]string{"statuz": {"status", "stats"}, "runx": {"runa", "runb"}} {
		want := words[0]
		for range 2 { // in whichever order they are
			if got := nearest(written, words, 2); got != want {
				t.Errorf("of %q, %q is near %q, want %q", words, written, got, want)
			}
			slices.Reverse(words)
		}
	}
}

// TestSlips: they are counted by their definition, letter by letter. To stop counting when there are too many changes nothing
// that is at most as many.
func TestSlips(t *testing.T) {
	t.Parallel()
	words := []string{"", "s3", "3s", "run", "rnu", "urn", "status", "stauts", "satsut", "tsatus", "LEASEHOLD_TTL", "LAESEHOLD_TLT", "LEASHOLD_LTT", "PATH"}
	for _, a := range words {
		for _, b := range words {
			all := slips(a, b, len(a)+len(b))
			if len(a)+len(b) <= 12 { // it takes long
				if want := defined(a, b); all != want {
					t.Errorf("%q and %q: %d slips, want %d", a, b, all, want)
				}
			}
			for most := range 8 {
				if n := slips(a, b, most); n != all && (all <= most || n <= most) {
					t.Errorf("%q and %q: %d slips if %d are allowed, and %d", a, b, n, most, all)
				}
			}
		}
	}
}

// defined is how many slips there are between two words.
func defined(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	taken := 1
	if a[0] == b[0] {
		taken = 0
	}
	n := min(defined(a[1:], b)+1, defined(a, b[1:])+1, defined(a[1:], b[1:])+taken)
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		n = min(n, defined(a[2:], b[2:])+1)
	}
	return n
}

// A name with a colon or slashes as in a URL is refused, with the URL that is meant; all else is left to what knows more: a name to store.CheckKey, a URL to storeurl.
func TestCheckName(t *testing.T) {
	t.Parallel()
	beside, err := filepath.Abs("x")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"s3:/b/x": "did you mean s3://b/x?", "s3//b/x": "did you mean s3://b/x?", "s3:b/x": "did you mean s3://b/x?", "S3:/b/x": "did you mean s3://b/x?",
		"s3a://b/x": "did you mean s3://b/x?", "s3n:b/x": "did you mean s3://b/x?", "3s://b/x": "did you mean s3://b/x?", "ss3://b/x": "did you mean s3://b/x?", "s3://b/x": "", "S3://b/x": "", "s3:///b/x": "",
		"s3:/b/x?region=r": "did you mean s3://b/x?", "file:/d/x": "did you mean file:///d/x?", "file//d/x": "did you mean file:///d/x?", "ifel://d/x": "", "fiel:d/x": "did you mean file:///",
		"file:x": "did you mean " + fileURL(beside) + "?", "file:///d/x": "", "fiel:///d/x": "did you mean file:///d/x?", "mem:x": "did you mean mem://x?",
		"gs:/b/x": "did you mean gs://b/x?", "gs:b/x": "did you mean gs://b/x?", "gs://b/x": "", "gcs://b/x": "did you mean gs://b/x?", "GCS://b/x": "did you mean gs://b/x?", "gcs:b/x": "did you mean gs://b/x?", "sg:7": "a name has no colon",
		"azblob:/c/x": "did you mean azblob://c/x?", "azblob://c/x": "", "az://c/x": "did you mean azblob://c/x?", "az:7": "a name has no colon", "azure:deploy": "a name has no colon", "azure://c/x": "did you mean azblob://c/x?", "1://c/x": "",
		"abfss://c@a/x": "", "abfs:/c/x": "write azblob://CONTAINER/KEY?account=ACCOUNT", "abfss:/c/x": "write azblob://CONTAINER/KEY?account=ACCOUNT", "wasbs:/c/x": "write azblob://CONTAINER/KEY?account=ACCOUNT", "wasb:/c/x": "write azblob://CONTAINER/KEY?account=ACCOUNT", "https://storage.googleapis.com/b/x": "", "http:/x/y": "unknown scheme http://", "https:/x/y": "unknown scheme https://", "ftp://x/y": "",
		"host:/x": "neither a name nor a URL: a URL has two slashes after its colon", "/x": "did you mean file:///x?", "./x": "did you mean " + fileURL(beside) + "?", "D:/x": "did you mean file:///D:/x?", "D:x": "a name has no colon",
		"": "", "l": "", "jobs/l": "", "s3/b": "", "s3": "", "file": "", "x//y": "",
		"tile:7": "a name has no colon", "files:a": "a name has no colon", "db:a/b": "a name has no colon", "a b:c": "a name has no colon",
		"arn:aws:s3:::b/locks/a": "did you mean s3://b/locks/a?", "arn:aws-cn:s3:::b/a": "did you mean s3://b/a?",
		"arn:aws:s3:eu-west-1:1:accesspoint/x": "a URL begins with its store", "arn:aws:s3:::b": "a name has no colon",
		"b.s3.amazonaws.com/locks/a": "did you mean s3://b/locks/a?", "b.s3.eu-west-1.amazonaws.com/a": "did you mean s3://b/a?", "s3.eu-west-1.amazonaws.com/b/a": "did you mean s3://b/a?",
		"storage.googleapis.com/b/a": "did you mean gs://b/a?", "acct.blob.core.windows.net/c/a": "did you mean azblob://c/a?account=acct?",
		"localhost:9000/b/a": "did you mean s3://b/a?endpoint=http://localhost:9000?", "127.0.0.1:9000/b/a": "did you mean s3://b/a?endpoint=http://127.0.0.1:9000?",
		"minio.example:9000/b/a": "did you mean s3://b/a?endpoint=https://minio.example:9000?", "[::1]:9000/b/a": "did you mean s3://b/a?endpoint=http://[::1]:9000?",
		"minio.example/b/a": "no dot before its first slash", ".a/b": "no dot before its first slash",
		"~/locks/a": "did you mean file:///", "~other/a": "does not begin with ~", "~": "does not begin with ~",
		"a.b": "", "jobs/a.b": "", "a~": "", "jobs/~a": "", "v1.2": "",
	} {
		err := checkName(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

// FuzzCheckName: a name that passes is a URL, or one that has nothing of a URL at its
// beginning; and a possible secret is not repeated.
func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"s3:/b/x", "s3//b", "file:x", "C:/x", "tile:7", "/x", "s3://b/x", "gs:/x", "x:/hunter2@y", "a?b", "fiel:///"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := checkName(name)
		for _, scheme := range schemes {
			rest, found := strings.CutPrefix(strings.ToLower(name), scheme)
			if err == nil && found && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, "//")) && !strings.HasPrefix(rest, "://") && !strings.Contains(name, "\n") {
				t.Errorf("%q is taken for a name", name)
			}
		}
		if err == nil && strings.Contains(name, ":/") && !strings.Contains(name, "://") && likeURL().MatchString(name) && store.CheckKey("lock", name) == nil && likeURL().FindStringSubmatch(name)[2] == ":/" {
			t.Errorf("%q is taken for a name", name)
		}
		if secret, _, err := "hunter2", 0, checkName(name+"?key=hunter2"); err != nil && !strings.Contains(name, secret) && strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", name, err)
		}
	})
}

// The schemes are those that storeurl knows.
func TestSchemes(t *testing.T) {
	t.Parallel()
	_, _, err := storeurl.SplitLock("nonsense://x/y")
	if err == nil {
		t.Fatal("a scheme that nobody knows is no error")
	}
	_, known, _ := strings.Cut(err.Error(), "knows ")
	for word := range strings.SplitSeq(known, ", ") {
		if meantScheme(strings.TrimSuffix(word, "://"), "://") != strings.TrimSuffix(word, "://") || checkName(strings.TrimSuffix(word, "//")+"/b/x") == nil {
			t.Errorf("%s is not among the schemes %q", word, schemes)
		}
	}
	if n := strings.Count(known, "://"); n != len(schemes) {
		t.Errorf("storeurl knows %d schemes, and we %d", n, len(schemes))
	}
}
