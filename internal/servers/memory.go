package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// memory is gofakes3 inside the test process. It needs no build and starts at once.
type memory struct {
	http *http.Server
	done chan struct{} // closed when it has stopped listening
	mu   sync.Mutex
	gate chan struct{} // closed while requests may pass; open while the server is paused
}

func startMemory(t testing.TB) *Server {
	t.Helper()
	s := &Server{Name: Memory, AccessKey: accessKey, SecretKey: secretKey, answers: listsBuckets}
	t.Cleanup(func() { s.cleanUp(t) })
	for range 5 {
		var err error
		if s.port, err = freePort(); err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		s.Endpoint = "http://" + s.port.addr
		if s.memory, err = listen(t.Context(), s.port.addr); err == nil {
			return s
		}
		s.port.free() // another process took it meanwhile
	}
	t.Fatalf("%s: five free ports were taken before it could listen", s.Name)
	return nil
}

// listen serves an empty gofakes3 on an address.
func listen(ctx context.Context, addr string) (*memory, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	m := &memory{gate: make(chan struct{}), done: make(chan struct{})}
	close(m.gate)
	handler := gofakes3.New(s3mem.New(), gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	m.http = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-m.passes():
				handler.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		}),
		ReadHeaderTimeout: time.Minute,
		ErrorLog:          log.New(io.Discard, "", 0), // it logs clients that hang up
	}
	go func() {
		defer close(m.done)
		if err := m.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("%s on %s: %v", Memory, addr, err))
		}
	}()
	return m, nil
}

// stop closes every connection, and returns when the port refuses new ones. Until Accept has
// returned, the kernel still completes them.
func (m *memory) stop() {
	_ = m.http.Close()
	<-m.done
}

func (m *memory) passes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gate
}

// pause holds requests back until resume.
func (m *memory) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gate = make(chan struct{})
}

func (m *memory) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	select {
	case <-m.gate:
	default:
		close(m.gate)
	}
}

// restartMemory serves an empty gofakes3 on the server's old port.
func (s *Server) restartMemory(ctx context.Context) error {
	var err error
	for range 50 { // freePort in another process may be using the port
		if s.memory, err = listen(ctx, s.port.addr); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
