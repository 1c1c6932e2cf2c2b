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

// refuses answers a request that does not bear the token, and reports that it has.
func (t Token) refuses(w http.ResponseWriter, r *http.Request) bool {
	if !t.set {
		return false
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
		return true
	}
	// Of the hashes, so that not even the length of the token shows in the time that it takes.
	sum := sha256.Sum256([]byte(strings.TrimSpace(given)))
	if subtle.ConstantTimeCompare(sum[:], t.sum[:]) != 1 {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
		http.Error(w, "the bearer token is wrong", http.StatusUnauthorized)
		return true
	}
	return false
}
