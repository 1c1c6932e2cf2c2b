package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	osexec "os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold/leasehold/internal/clitest"
	"github.com/leasehold/leasehold/internal/leasetest"
)

// A budget is how many requests a command sends at most to a store that fails whatever it is asked. URL, OTHER and
// QUORUM in the arguments are of a lock on that store. A command that does not end by itself gets a rate.
type budget struct {
	args     string
	requests int
	rate     bool // so many in a second; it is killed a second after the first
}

// budgets has every command. One that asks no store has none.
var budgets = map[string]budget{
	"acquire":         {"acquire --ttl 1m URL", 20, true},
	"break":           {"break --token 1 URL", 5, false},
	"doctor":          {"doctor URL", 20, false},
	"elect":           {"elect URL -- true", 20, true},
	"fence claim":     {"fence claim --token 1 URL", 20, true},
	"fence delete":    {"fence delete --token 1 URL", 20, true},
	"fence get":       {"fence get URL", 20, false},
	"fence put":       {"fence put --token 1 URL", 20, true},
	"gc":              {"gc URL", 5, false},
	"history":         {"history URL", 5, false},
	"init":            {"init URL", 5, false},
	"list":            {"list URL", 5, false},
	"move":            {"move URL OTHER", 20, true},
	"quorum collect":  {"quorum collect QUORUM", 30, false},
	"quorum init":     {"quorum init QUORUM", 30, false},
	"quorum repair":   {"quorum repair QUORUM", 30, false},
	"quorum replace":  {"quorum replace QUORUM URL OTHER", 30, false},
	"quorum status":   {"quorum status QUORUM", 30, false},
	"run":             {"run URL -- true", 20, true},
	"serve":           {"serve --http 127.0.0.1:0 URL", 20, true},
	"shards":          {"shards URL", 5, false},
	"status":          {"status URL", 5, false},
	"watch":           {"watch URL", 20, true},
	"release":         {}, // of a lease, which there is none of without a store
	"renew":           {},
	"conformance":     {}, // its stores are of its own
	"cost":            {},
	"demo":            {},
	"version":         {},
	"completion bash": {}, "completion fish": {}, "completion powershell": {}, "completion zsh": {},
	"man": {}, "help": {}, "events": {},
}

// TestRequestBudgets: whatever a store answers, a command sends few requests. One that leads to itself got 10,000 in a
// second from status, and doctor sent a million.
func TestRequestBudgets(t *testing.T) {
	if clitest.UnderTest != leasetest.Object {
		t.Skip("the budgets are those of the layout object")
	}
	eachCommand(newRoot(), func(cmd *cobra.Command) {
		name := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "leasehold"), " ")
		if _, ok := budgets[name]; !ok && !cmd.HasSubCommands() && !cmd.Hidden {
			t.Errorf("the command %q has no budget", name)
		}
	})
	for name, answer := range map[string]http.HandlerFunc{
		"to itself": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
		},
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all sync.WaitGroup
			for _, b := range budgets {
				if b.args != "" {
					all.Go(func() { b.check(t, answer) })
				}
			}
			all.Wait()
		})
	}
}

func (b budget) check(t *testing.T, answer http.HandlerFunc) {
	t.Helper()
	var asked atomic.Int64
	first := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			close(first)
		}
		answer(w, r)
	}))
	defer server.Close()
	lock := func(key string) string { return "s3://bucket/" + key + "?region=us-east-1&endpoint=" + server.URL }
	members := strings.NewReplacer(":", "%3A", "/", "%2F", "?", "%3F", "&", "%26", "=", "%3D").Replace
	quorum := fmt.Sprintf("quorum:///?member=%s&member=%s&member=%s", members(lock("a")), members(lock("b")), members(lock("c")))
	args := strings.Fields(strings.NewReplacer("URL", lock("a"), "OTHER", lock("d"), "QUORUM", quorum).Replace(b.args))
	cmd := osexec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Args[0] = "leasehold" // by which the test's own main knows it
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true")
	var said strings.Builder
	cmd.Stderr = &said
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return
	}
	ended := make(chan struct{})
	if b.rate {
		go func() {
			select {
			case <-first:
				time.Sleep(time.Second)
				_ = cmd.Process.Kill()
			case <-ended:
			}
		}()
	}
	_ = cmd.Wait()
	close(ended)
	most := int64(b.requests)
	if b.rate {
		most += most * int64(time.Since(began)/time.Second)
	}
	if n := asked.Load(); n > most || n == 0 {
		t.Errorf("%s: %d requests, want 1 to %d; it says\n%s", b.args, n, most, said.String())
	}
}
