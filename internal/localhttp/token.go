package localhttp

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
)

// longestToken bounds the file of a token, in bytes.
const longestToken = 4096

// A Token is a secret that each request must bear. The zero Token is none: all are answered.
type Token struct {
	set bool
	sum [sha256.Size]byte
}

// ReadToken reads the token that is the only line of a file. It fails if the file cannot be
// read, is empty or has anything in it that a header cannot carry, and if users that are neither
// its owner nor in its group may read or write it.
func ReadToken(file string) (Token, error) {
	f, err := os.Open(file)
	if err != nil {
		return Token{}, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Token{}, err
	}
	// A mode on Windows says nothing about others.
	if others := info.Mode().Perm() & 0o006; others != 0 && runtime.GOOS != "windows" {
		return Token{}, fmt.Errorf("%s is open to all users of this machine (mode %04o): chmod o= %[1]s", file, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, longestToken+1))
	if err != nil {
		return Token{}, err
	}
	if len(text) > longestToken {
		return Token{}, fmt.Errorf("%s has more than %d bytes, which no token needs", file, longestToken)
	}
	token, err := newToken(strings.TrimRight(string(text), "\r\n"))
	if err != nil {
		return Token{}, fmt.Errorf("%s %w", file, err)
	}
	return token, nil
}

func newToken(text string) (Token, error) {
	if text == "" {
		return Token{}, errors.New("is empty: write a long random token to it")
	}
	if i := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
		return Token{}, fmt.Errorf("has a character at byte %d that is not visible ASCII: a token is one line without spaces", i)
	}
	return Token{true, sha256.Sum256([]byte(text))}, nil
}

// refusal says why a request is refused that does not bear the token, and has the answer say what is asked for. The
// token may be the password of a user of any name, too: a browser asks its user for nothing else, and some clients
// can send nothing else.
func (t Token) refusal(w http.ResponseWriter, r *http.Request) string {
	if !t.set {
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
	if subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
		return ""
	}
	w.Header().Add("WWW-Authenticate", bearer)
	w.Header().Add("WWW-Authenticate", `Basic realm="leasehold", charset="UTF-8"`)
	return why
}
