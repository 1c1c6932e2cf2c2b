package localhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/leasehold/leasehold/internal/reread"
)

const longestToken = 4096

type tokenSum [sha256.Size]byte

// A Token is a secret required of each request. The zero Token means none: all requests are
// answered.
type Token struct {
	sum *atomic.Pointer[tokenSum] // changes when the file does
}

// ReadToken reads a token, the only line of a file. It fails if the file cannot be read, is
// empty, has characters not allowed in a header, or is accessible to users other than its owner
// and group.
func ReadToken(file string) (Token, error) {
	text, err := reread.Secret(file)
	if err != nil {
		return Token{}, err
	}
	sum, err := sumOf(file, text)
	if err != nil {
		return Token{}, err
	}
	t := Token{new(atomic.Pointer[tokenSum])}
	t.sum.Store(&sum)
	return t, nil
}

// sumOf returns the hash of the token in a file.
func sumOf(file string, text []byte) (tokenSum, error) {
	if len(text) > longestToken {
		return tokenSum{}, fmt.Errorf("%s has more than %d bytes, which no token needs", file, longestToken)
	}
	token := strings.TrimRight(string(text), "\r\n")
	if err := checkToken(token); err != nil {
		return tokenSum{}, fmt.Errorf("%s %w", file, err)
	}
	return sha256.Sum256([]byte(token)), nil
}

func checkToken(text string) error {
	if text == "" {
		return errors.New("is empty: write a long random token to it")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
		return fmt.Errorf("has a character at byte %d that is not visible ASCII: a token is one line without spaces", i)
	}
	return nil
}

// refusal returns why a request without the right token is refused, or "", and adds the headers
// asking for it. The token may also be the password of any user, because browsers ask for
// nothing else, and some clients can send nothing else.
func (t Token) refusal(w http.ResponseWriter, r *http.Request) string {
	if t.sum == nil {
		return ""
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	why, bearer := "the token is wrong", `Bearer error="invalid_token"`
	switch _, password, basic := r.BasicAuth(); {
	case basic:
		given = password
	case strings.EqualFold(scheme, "Bearer"):
		given = strings.TrimSpace(given)
	default:
		why, bearer = "a token is needed, as a bearer token or as the password of any user", "Bearer"
		given = ""
	}
	// It compares hashes, so that timing does not reveal even the length of the token. No token
	// is empty.
	sum := sha256.Sum256([]byte(given))
	if subtle.ConstantTimeCompare(sum[:], t.sum.Load()[:]) == 1 {
		return ""
	}
	w.Header().Add("WWW-Authenticate", bearer)
	w.Header().Add("WWW-Authenticate", `Basic realm="leasehold", charset="UTF-8"`)
	return why
}
