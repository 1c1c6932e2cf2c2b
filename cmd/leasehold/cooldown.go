package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold/leasehold"
)

// A cooldown is when this machine first saw that a lock rests. A run without --wait counts a rest from then if the
// store does not tell how long ago it began: a count from the run's own start would never end.
type cooldown struct {
	Token leasehold.Token `json:"token"` // of the lease that left the rest
	Since time.Time       `json:"since"`
}

// cooldownFile is where that is kept between runs.
func cooldownFile(lock string) (string, error) {
	dir, err := stateDir()
	if err != nil {
		return "", err
	}
	name := sha256.Sum256([]byte(lock))
	return filepath.Join(dir, "leasehold-cooldowns", hex.EncodeToString(name[:16])+".json"), nil
}

// coolingSince returns since when this machine has known of a rest, and keeps that for the next run.
func coolingSince(lock string, token leasehold.Token, now time.Time) (time.Time, error) {
	path, err := cooldownFile(lock)
	if err != nil {
		return now, err
	}
	var c cooldown
	text, _ := os.ReadFile(path) // of what cannot be read, nothing is known
	if json.Unmarshal(text, &c) == nil && c.Token == token && !c.Since.After(now) {
		return c.Since, nil
	}
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return now, err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".leasehold-*")
	if err != nil {
		return now, err
	}
	_, err = temp.WriteString(toJSON(cooldown{token, now}))
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return now, err
}

// cooled ends the rest because of which err has refused the lock, if this machine has known of it for long enough. It
// reports whether the lock can be tried again.
func (h *runCmd) cooled(ctx context.Context, err error) bool {
	held, rests := errors.AsType[*leasehold.HeldError](err)
	c, isLock := h.contest.(*lockContest)
	if !rests || !isLock || held.Info.Rest <= 0 || held.Info.Age >= 0 {
		return false
	}
	now := time.Now()
	if h.cooling, h.uncounted = coolingSince(h.target.url, held.Info.Token, now); h.uncounted != nil || now.Sub(h.cooling) < held.Info.Rest {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, h.uncounted = breakThrough(ctx, c.Lock, held.Info.Token); h.uncounted != nil {
		return false
	}
	if path, err := cooldownFile(h.target.url); err == nil {
		_ = os.Remove(path)
	}
	return true
}
