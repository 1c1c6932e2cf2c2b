package clitest

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// AwaitAnswer waits for an answer with a code and a body.
func AwaitAnswer(t *testing.T, address, path string, code int, body string) {
	t.Helper()
	wanted := regexp.MustCompile("^" + body + "$")
	var got Answer
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err = Ask(t.Context(), http.MethodGet, address, path, ""); got.Code == code && wanted.MatchString(strings.TrimSpace(got.Body)) {
			return
		}
	}
	t.Errorf("%s is %+v, %v; want %d %s", path, got, err, code, body)
}

// AwaitHolder waits until the lock l is held under a name.
func AwaitHolder(t *testing.T, store, name string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if out, _ := Command(t, store, "status", "l").Output(); strings.Contains(string(out), "holder") && strings.Contains(string(out), " "+name+"\n") {
			return
		}
	}
	t.Fatalf("%s never holds it", name)
}
