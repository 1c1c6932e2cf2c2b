package peer

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/openfiles"
	"github.com/leasehold/leasehold/semaphore"
	"github.com/leasehold/leasehold/store/memstore"
)

// TestDefaults: the options have the defaults that their documentation says. Without a Logger, what no answer tells goes
// to the default one.
func TestDefaults(t *testing.T) {
	h, err := (*HandlerOptions)(nil).withDefaults()
	if err != nil || h.Logger != slog.Default() || h.MaxWait != time.Minute || h.MaxWaiting != 20_000 {
		t.Errorf("a handler has %+v, %v", h, err)
	}
	s, _ := (*ServerOptions)(nil).withDefaults() // it has no certificate
	if s.Logger != slog.Default() || s.Addr != ":8443" || s.Path != "/health/leadership" || s.MaxConns != min(24_000, openfiles.Limit()*3/4) {
		t.Errorf("a server has %+v", s)
	}
	c, err := (*ClientOptions)(nil).withDefaults()
	if err != nil || c.Path != "/health/leadership" || c.Timeout != 3*time.Second || c.MaxAnswer != 131_072 {
		t.Errorf("a client has %+v, %v", c, err)
	}
}

// TestRefusalIsLogged: the log says at its debug level who was refused, and why.
func TestRefusalIsLogged(t *testing.T) {
	t.Parallel()
	queue, err := semaphore.NewLock(memstore.New(), "jobs/l", nil)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	h := NewHandler(&HandlerOptions{
		Queues: []Queue{queue}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "PUT", DefaultPath, nil))
	if want := `level=DEBUG msg="question refused" from=192.0.2.1:1234 status=405 reason="use GET or HEAD"`; !strings.Contains(log.String(), want) {
		t.Errorf("the log says %s", log.String())
	}
}
