//go:build unix

package servers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasehold/leasehold/internal/servers"
)

func TestPauseHoldsAnswersBack(t *testing.T) {
	srv := servers.Start(t, "gofakes3")
	client := srv.Client()
	srv.Pause(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := client.ListBuckets(ctx, nil, once); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server: %v, want no answer", err)
	}
	srv.Resume(t)
	if _, err := client.ListBuckets(t.Context(), nil, once); err != nil {
		t.Errorf("after Resume: %v", err)
	}
}
