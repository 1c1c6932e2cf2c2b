package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/leasehold/leasehold/store/storeurl"
)

// nearest is the nearest of the words that are at most so many slips of the pen away from
// the written one, or "". A word of which nothing would be left is not meant.
func nearest(written string, words []string, most int) (word string) {
	for _, w := range words {
		n := slips(written, w, most)
		if n <= most && n < len(w) && n < len(written) && (n < most || word == "" || w < word) {
			word, most = w, n
		}
	}
	return word
}

// slips is how many letters were left out, put in, taken for others, or exchanged with
// their neighbours, or any number above most if they are more: the distance of Damerau and
// Levenshtein.
func slips(a, b string, most int) int {
	if len(a)-len(b) > most || len(b)-len(a) > most {
		return most + 1 // each is one letter more or less at most
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		if slices.Min(row) > most {
			return most + 1 // the one before it has most at least, and the next comes from these two, and so on
		}
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			other := 1
			if a[i-1] == b[j-1] {
				other = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+other)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// schemes are those of the stores' URLs.
var schemes = []string{"s3", "gs", "azblob", "file", "mem", "quorum"}

// otherSchemes are what a URL of a bucket begins with in other tools, and what is meant. One that stands
// for another form of URL besides is left to storeurl, which says how to write it.
var otherSchemes = map[string]string{
	"s3a": "s3", "s3n": "s3", "gcs": "gs", "az": "azblob", "azure": "azblob",
	"abfs": "abfs", "abfss": "abfss", "wasb": "wasb", "wasbs": "wasbs", "http": "http", "https": "https",
}

// meantScheme is the scheme that a word is meant for, or "" if it need not be one at all.
func meantScheme(word, divided string) string {
	word = strings.ToLower(word)
	if slices.Contains(schemes, word) {
		return word
	}
	if meant := otherSchemes[word]; meant != "" && (divided != ":" || meant != "azblob") { // az:7 may be a zone
		return meant
	}
	near := nearest(word, schemes, 1)
	for _, s := range schemes {
		if slices.Equal(letters(s), letters(word)) && slips(word, s, 1) <= 1 {
			near = s // 3s is s3 with its letters exchanged, and not gs with another
		}
	}
	if divided == ":" && (near == "gs" || !slices.Equal(letters(near), letters(word))) {
		return "" // a name, such as tile:7 or sg:7
	}
	return near
}

func letters(word string) []byte { return slices.Sorted(slices.Values([]byte(word))) }

// likeURL is what begins as if it were to be a URL, with its colon or its slashes.
var likeURL = onDemand(`^([A-Za-z][A-Za-z0-9+.-]*|3s)(://+|:/|:|//+)(.*)$`)

// onDemand is an expression that is compiled when it is first used. Most processes use none:
// all of them together would be a large part of the time in which the command starts.
func onDemand(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// checkName refuses a name that looks to be meant for a URL or a path, and is none. Taken
// for the name of a lock, it would be one that no other machine knows.
func checkName(name string) error {
	name, _, _ = strings.Cut(name, "?") // what comes then may be a secret
	if path, is := pathLike(name); is {
		return fmt.Errorf("%s is a path, and neither a name nor a URL: did you mean %s?", name, fileURL(path))
	}
	parts := likeURL().FindStringSubmatch(name)
	if parts == nil {
		return checkShape(name)
	}
	word, divided, rest := parts[1], parts[2], parts[3]
	meant := meantScheme(word, divided)
	isURL := strings.HasPrefix(divided, "://")
	switch {
	case isURL && (meant == "" || meant == strings.ToLower(word)):
		return nil // what is wrong with a URL is for storeurl to say
	case slices.Contains(schemes, meant):
		return fmt.Errorf("%s is not a URL: did you mean %s?", shown(name), shown(completed(meant, divided, rest)))
	case len(word) == 1 && divided == ":/": // a drive of Windows
		return fmt.Errorf("%s is a path, and neither a name nor a URL: did you mean %s?", name, fileURL(name))
	case meant != "":
		_, _, err := storeurl.SplitLock(completed(meant, divided, rest))
		return err // since we have no such store
	case divided == ":/":
		return fmt.Errorf("%s is neither a name nor a URL: a URL has two slashes after its colon, as in s3://bucket/key, and a name has no slash after a colon", shown(name))
	}
	return checkShape(name)
}

// checkShape refuses what a name cannot be, because in other tools it stands for a bucket, a host or a directory.
func checkShape(name string) error {
	var why string
	first, _, slash := strings.Cut(name, "/")
	switch {
	case strings.Contains(name, "://"):
		return nil
	case strings.HasPrefix(name, "~"):
		why = "a name does not begin with ~"
	case strings.Contains(name, ":"):
		why = "a name has no colon"
	case slash && strings.Contains(first, "."):
		why = "a name has no dot before its first slash"
	default:
		return nil
	}
	if meant := meantURL(name); meant != "" {
		return fmt.Errorf("%s is neither a name nor a URL: %s: did you mean %s?", shown(name), why, meant)
	}
	return fmt.Errorf("%s is neither a name nor a URL: %s, and a URL begins with its store, as in s3://bucket/key", shown(name), why)
}

// places are how other tools write where an object is, and the URL that is meant.
var places = []struct {
	written func() *regexp.Regexp
	meant   string
}{
	{onDemand(`^arn:[a-z-]+:s3:::([^/:]+/.+)$`), "s3://$1"},
	{onDemand(`^([a-z0-9.-]+)\.s3[.-](?:[a-z0-9.-]+\.)?amazonaws\.com(?::443)?/(.+)$`), "s3://$1/$2"},
	{onDemand(`^s3[.-](?:[a-z0-9.-]+\.)?amazonaws\.com(?::443)?/([^/]+/.+)$`), "s3://$1"},
	{onDemand(`^storage\.(?:googleapis|cloud\.google)\.com(?::443)?/([^/]+/.+)$`), "gs://$1"},
	{onDemand(`^([a-z0-9]+)\.blob\.core\.windows\.net(?::443)?/([^/]+/.+)$`), "azblob://$2?account=$1"},
	{onDemand(`^((?:localhost|127\.[0-9.]+|\[::1\])(?::[0-9]+)?)/([^/]+/.+)$`), "s3://$2?endpoint=http://$1"},
	{onDemand(`^([A-Za-z0-9.-]+:[0-9]+|\[[0-9a-f:]+\](?::[0-9]+)?)/([^/]+/.+)$`), "s3://$2?endpoint=https://$1"},
}

// meantURL is the URL that a name is meant for, or "" if that cannot be known.
func meantURL(name string) string {
	if rest, found := strings.CutPrefix(name, "~/"); found {
		if dir, err := os.UserHomeDir(); err == nil {
			return fileURL(filepath.Join(dir, filepath.FromSlash(rest)))
		}
	}
	for _, p := range places {
		written := p.written()
		if m := written.FindStringSubmatchIndex(name); m != nil {
			return string(written.ExpandString(nil, p.meant, name, m))
		}
	}
	return ""
}

// pathLike reports that a name looks to be a path of this machine's, and makes it absolute.
func pathLike(name string) (path string, is bool) {
	for _, beginning := range []string{"/", "./", "../", `.\`, `..\`} {
		if strings.HasPrefix(name, beginning) {
			path, err := filepath.Abs(filepath.FromSlash(name))
			return path, err == nil
		}
	}
	return "", false
}

// fileURL is the URL of a path.
func fileURL(path string) string {
	return (&url.URL{Scheme: "file", Path: "/" + strings.TrimLeft(filepath.ToSlash(path), "/")}).String()
}

// completed is the URL that is meant by its parts.
func completed(scheme, divided, rest string) string {
	if scheme != "file" {
		return scheme + "://" + strings.TrimLeft(rest, "/")
	}
	if divided == ":" { // file:x is beside us
		if path, err := filepath.Abs(filepath.FromSlash(rest)); err == nil {
			return fileURL(path)
		}
	}
	return "file:///" + strings.TrimLeft(rest, "/")
}

// shown is a URL, or a word that was meant to be one, without possible secrets.
func shown(url string) string {
	url, _, _ = strings.Cut(url, "?")
	if at := strings.LastIndex(url, "@"); at >= 0 {
		return "…" + url[at:]
	}
	return url
}
