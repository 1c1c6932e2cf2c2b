package clitest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// fetch METHOD CODE ADDRESS PATH [TOKEN] asks what listens on HOST:PORT or unix:PATH again and
// again, for a minute, until the answer has that code. stdout is its body then, and the file
// headers has its headers. A token of the form USER:TOKEN goes as a password.
func fetch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 && len(args) != 5 {
		ts.Fatalf("usage: fetch METHOD CODE ADDRESS PATH [TOKEN]")
	}
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	token := append(args, "")[4]
	address := args[2]
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		address = "unix:" + ts.MkAbs(path)
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		got, err := Ask(context.Background(), args[0], address, args[3], token)
		if err == nil && got.Code == want {
			_, _ = io.WriteString(ts.Stdout(), got.Body)
			ts.Check(os.WriteFile(filepath.Join(ts.Getenv("WORK"), "headers"), []byte(got.Headers), 0o600))
			return
		}
		if time.Now().After(limit) {
			ts.Fatalf("not within a minute: %+v, %v", got, err)
		}
	}
}

// An Answer is what an HTTP server has said.
type Answer struct {
	Code          int
	Headers, Body string
}

// Ask is the answer to one request, with a connection of its own.
func Ask(ctx context.Context, method, address, path, token string) (Answer, error) {
	network := "tcp"
	host := address
	if socket, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address, host = "unix", socket, "leasehold"
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+host+path, nil)
	if err != nil {
		return Answer{}, err
	}
	if user, password, basic := strings.Cut(token, ":"); basic {
		r.SetBasicAuth(user, password)
	} else if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w, err := transport.RoundTrip(r)
	if err != nil {
		return Answer{}, err
	}
	body, err := io.ReadAll(w.Body)
	var headers strings.Builder
	err = errors.Join(err, w.Header.Write(&headers), w.Body.Close())
	return Answer{w.StatusCode, headers.String(), string(body)}, err
}

// addressfrom VAR FILE sets a variable to the first line of a file.
func addressFrom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: addressfrom VAR FILE")
	}
	line, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	ts.Setenv(args[0], line)
}
