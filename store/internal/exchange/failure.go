package exchange

import (
	"net/url"
	"strings"
)

// A Failure words an error anew, and matches what that matches. In the words of a client the
// cause comes last, after much that only helps those who wrote the client.
type Failure struct {
	Text string
	Err  error
}

func (f *Failure) Error() string { return f.Text }
func (f *Failure) Unwrap() error { return f.Err }

// Readable is a URL for people: without its user and its parameters, which can be secret, and
// with the characters that stand for themselves.
func Readable(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		raw, _, _ = strings.Cut(raw, "?")
		return raw
	}
	if u.Host == "" {
		return u.Path
	}
	return u.Scheme + "://" + u.Host + u.Path
}
