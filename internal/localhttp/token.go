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

// longestToken bounds the file of a token, in bytes.
const longestToken = 4096

type tokenSum [sha256.Size]byte

// A Token is a secret that each request must bear. The zero Token is none: all are answered.
type Token struct {
	sum *atomic.Pointer[tokenSum] // which changes when the file does
}

// ReadToken reads the token that is the only line of a file. It fails if the file cannot be
// read, is empty or has anything in it that a header cannot carry, and if users that are neither
// its owner nor in its group may read or write it.
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

// sumOf is the hash of the token that a file has.
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

// refusal says why a request is refused that does not bear the token, and has the answer say what is asked for. The
// token may be the password of a user of any name, too: a browser asks its user for nothing else, and some clients
// can send nothing else.
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
	// Of the hashes, so that not even the length of the token shows in the time that it takes. No token is empty.
	sum := sha256.Sum256([]byte(given))
	if subtle.ConstantTimeCompare(sum[:], t.sum.Load()[:]) == 1 {
		return ""
	}
	w.Header().Add("WWW-Authenticate", bearer)
	w.Header().Add("WWW-Authenticate", `Basic realm="leasehold", charset="UTF-8"`)
	return why
}
