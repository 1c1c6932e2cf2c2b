package clitest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// A stub is an S3 server in this process that answers all requests of a kind in the same
// way, to show what the program does then.
type stub struct {
	gone chan struct{} // closed at the end of the script

	mu       sync.Mutex
	requests []string // their methods
}

// stubStore VAR METHOD=STATUS[:CODE]… starts one, and sets a variable to the URL of a lock
// in it. A status of 0 is no answer, and @FILE for a CODE answers with a file, by way of a proxy
// that hides the store's clock. GET is 404:NoSuchKey and PUT 503:SlowDown unless given.
func stubStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: stub VAR METHOD=STATUS[:CODE]…")
	}
	answers := map[string]string{http.MethodGet: "404:NoSuchKey", http.MethodPut: "503:SlowDown"}
	for _, arg := range args[1:] {
		method, answer, _ := strings.Cut(arg, "=")
		answers[method] = answer
	}
	files := map[string][]byte{}
	for _, answer := range answers {
		if _, name, found := strings.Cut(answer, "@"); found {
			files[name] = []byte(ts.ReadFile(name))
		}
	}
	s := &stub{gone: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method)
		s.mu.Unlock()
		number, code, _ := strings.Cut(answers[r.Method], ":")
		status, err := strconv.Atoi(number)
		if err != nil || status == 0 {
			select {
			case <-s.gone:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("X-Amz-Request-Id", "REQUEST-1")
		name, body := strings.CutPrefix(code, "@")
		if body {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Via", "1.1 proxy.example")
		}
		w.WriteHeader(status)
		switch {
		case body:
			_, _ = w.Write(files[name])
		case code != "":
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>the words of the server</Message><RequestId>REQUEST-1</RequestId></Error>", code)
		}
	}))
	ts.Defer(func() {
		close(s.gone)
		server.Close()
	})
	stubs.Store(ts.Getenv("WORK")+args[0], s)
	ts.Setenv(args[0], "s3://bucket/l?endpoint="+server.URL+ts.Getenv("MORE"))
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_EC2_METADATA_DISABLED": "true"} {
		ts.Setenv(name, value)
	}
}

// stubs are those of all scripts, by the script's directory and the variable.
var stubs sync.Map

// requests VAR METHOD LEAST MOST waits until a stub has had so many requests, and checks
// that there are no more than that.
func requests(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: requests VAR METHOD LEAST MOST")
	}
	v, ok := stubs.Load(ts.Getenv("WORK") + args[0])
	s, is := v.(*stub)
	if !ok || !is {
		ts.Fatalf("there is no stub %s", args[0])
	}
	least, err := strconv.Atoi(args[2])
	ts.Check(err)
	most, err := strconv.Atoi(args[3])
	ts.Check(err)
	var n int
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if n = s.count(args[1]); n >= least || time.Now().After(limit) {
			break
		}
	}
	if n < least || n > most {
		ts.Fatalf("%d requests %s, want %d to %d", n, args[1], least, most)
	}
}

// count is how many requests of a method there were, or of all.
func (s *stub) count(method string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.requests {
		if m == method || method == "all" {
			n++
		}
	}
	return n
}
