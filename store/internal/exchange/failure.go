package exchange

import (
	"net/url"
	"regexp"
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

var (
	userInfo = regexp.MustCompile(`://[^/\s"'<>?#@]*@`)
	queries  = regexp.MustCompile(`\?[^\s"'<>?=]*=(?:[^\s"'<>]*[^\s"'<>:;,.)])?`)
	settings = regexp.MustCompile(`(?i)\b(sig|signature|x-(?:amz|goog)-(?:signature|credential|security-token)|(?:access_|session_)?token|password|secret|accountkey|sharedaccesssignature|client_secret)=[^\s&"'<>,)]+`)
	headers  = regexp.MustCompile(`(?i)\b(bearer|basic|sharedkey) [\w+/=.:~-]{12,}`)
)

// Redact takes the secrets out of a text that others have written: users and parameters of URLs, in which a signature
// may be, and what else looks like a credential. Proxies repeat what they were asked in their error pages.
func Redact(text string) string {
	text = userInfo.ReplaceAllString(text, "://")
	text = queries.ReplaceAllString(text, "?…")
	text = settings.ReplaceAllString(text, "$1=…")
	return headers.ReplaceAllString(text, "$1 …")
}
