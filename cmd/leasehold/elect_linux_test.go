package main

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/leasehold/leasehold/internal/clitest"
)

// TestElectOutlastsASlowStore: a campaign fails when four claims in a row took longer than half a TTL. A
// candidate that has led says so and campaigns again, until the store is faster.
func TestElectOutlastsASlowStore(t *testing.T) {
	t.Parallel()
	memory := s3mem.New()
	if err := memory.CreateBucket("bucket"); err != nil {
		t.Fatal(err)
	}
	s3 := gofakes3.New(memory).Server()
	var slow atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		s3.ServeHTTP(answer, r)
		if slow.Load() && r.Method == http.MethodPut {
			<-r.Context().Done() // it has landed, and its answer never comes
			return
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	defer server.Close()
	cmd := clitest.Command(t, "", "elect", "--ttl", "3s", "s3://bucket/l?endpoint="+server.URL, "--", "true")
	cmd.Env = append(cmd.Env, awsEnv()...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stages := []struct {
		says string
		then func()
	}{
		{"campaigning again in", func() { slow.Store(true) }},
		{"the store takes longer to answer than half a TTL", func() { slow.Store(false) }},
		{"leading s3://bucket/l", func() { _ = cmd.Process.Signal(syscall.SIGTERM) }},
	}
	var said []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said = append(said, lines.Text())
		if len(stages) > 0 && strings.Contains(lines.Text(), stages[0].says) {
			stages[0].then()
			stages = stages[1:]
		}
	}
	if err := cmd.Wait(); len(stages) > 0 {
		t.Errorf("it ends with %v, before it says %q:\n%s", err, stages[0].says, strings.Join(said, "\n"))
	}
}
