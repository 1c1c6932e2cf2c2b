package servers

import (
	"context"
	"errors"
	"testing"
)

func TestBuildGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := build(ctx, "gofakes3"); !errors.Is(err, context.Canceled) {
		t.Errorf("build gives %v, want context.Canceled", err)
	}
}
