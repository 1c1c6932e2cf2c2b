package terraform

import (
	"log/slog"
	"testing"

	"github.com/leasehold/leasehold/store/memstore"
)

// Without a Logger, what no answer tells goes to the default one.
func TestLogsByDefault(t *testing.T) {
	h, err := New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if h.log != slog.Default() {
		t.Errorf("it logs to %v", h.log)
	}
}
