package main

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const first = 5 * time.Second
	for _, tc := range []struct{ last, first, ran, want time.Duration }{
		{0, first, 0, first},
		{0, first, time.Hour, first},
		{first, first, 0, 2 * first},
		{2 * first, first, time.Minute, 4 * first},
		{8 * first, first, time.Second, time.Minute},
		{time.Minute, first, time.Second, time.Minute},
		{time.Minute, first, time.Minute + 1, first},
		// With a TTL of more than three minutes, the first pause is the longest.
		{time.Hour, time.Hour, time.Minute, time.Hour},
	} {
		if got := backoff(tc.last, tc.first, tc.ran); got != tc.want {
			t.Errorf("after a pause of %v and a command that ran for %v: a pause of %v, want %v", tc.last, tc.ran, got, tc.want)
		}
	}
}
