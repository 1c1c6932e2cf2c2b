package peer

import (
	"log/slog"
	"testing"
)

// Without a Logger, what no answer tells goes to the default one.
func TestLogsByDefault(t *testing.T) {
	h, err := (*HandlerOptions)(nil).withDefaults()
	if err != nil || h.Logger != slog.Default() {
		t.Errorf("a handler logs to %v, %v", h.Logger, err)
	}
	s, _ := (*ServerOptions)(nil).withDefaults() // it has no certificate
	if s.Logger != slog.Default() {
		t.Errorf("a server logs to %v", s.Logger)
	}
}
