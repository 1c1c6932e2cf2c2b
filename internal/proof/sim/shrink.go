package sim

import (
	"bytes"
	"slices"
)

// Shrink looks for a shorter list of choices that breaks the same promise, by playing up to so
// many histories, and returns what came of the best one.
func Shrink(r Result, cfg Config, tries int) Result {
	cfg.Arm, cfg.Layout = r.Arm, r.Layout
	better := func(choices []byte) bool {
		tries--
		c, _ := play(listed(choices), cfg, false)
		c.Choices = slices.Clip(bytes.TrimRight(c.Choices, "\x00"))
		if c.Promise != r.Promise || !simpler(c.Choices, r.Choices) {
			return false
		}
		r = c
		return true
	}
	for size := len(r.Choices); size > 0 && tries > 0; size /= 2 {
		for at := 0; at < len(r.Choices) && tries > 0; {
			end := min(at+size, len(r.Choices))
			left := slices.Concat(r.Choices[:at], r.Choices[end:])
			dull := slices.Concat(r.Choices[:at], make([]byte, end-at), r.Choices[end:])
			if !better(left) && (bytes.Equal(dull, r.Choices) || !better(dull)) {
				at += size
			}
		}
	}
	return r
}

// simpler reports that a list is shorter than another, or has fewer that are not dull.
func simpler(a, b []byte) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return bytes.Count(a, []byte{0}) > bytes.Count(b, []byte{0})
}
