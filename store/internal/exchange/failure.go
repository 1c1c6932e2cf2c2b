package exchange

import (
	"net/url"
	"regexp"
	"strings"
	"sync"
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

var (
	userInfo = onDemand(`://[^/\s"'<>?#@]*@`)
	queries  = onDemand(`\?[^\s"'<>?=]*=(?:[^\s"'<>]*[^\s"'<>:;,.)])?`)
	settings = onDemand(`(?i)\b(sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|(?:access_|session_)?token|password|secret|accountkey|sharedaccesssignature|client_secret)=[^\s&"'<>,)]+`)
	headers  = onDemand(`(?i)\b(bearer|basic|sharedkey) [\w+/=.:~-]{12,}`)
)

// onDemand is an expression that is compiled when it is first used. Most processes use none:
// all of them together would be a large part of the time in which the command starts.
func onDemand(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// Redact takes the secrets out of a text that others have written: users and parameters of URLs, in which a signature
// may be, and what else looks like a credential. Proxies repeat what they were asked in their error pages.
func Redact(text string) string {
	text = userInfo().ReplaceAllString(text, "://")
	text = queries().ReplaceAllString(text, "?…")
	text = settings().ReplaceAllString(text, "$1=…")
	return headers().ReplaceAllString(text, "$1 …")
}
