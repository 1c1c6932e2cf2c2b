package terraform

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold"
)

// A LockInfo describes a lock in Terraform's JSON. It is the body of LOCK and UNLOCK, and of
// answers with the lock's holder.
type LockInfo struct {
	ID        string // names the lock; force-unlock asks for it
	Operation string
	Info      string
	Who       string // USER@HOST
	Version   string // of Terraform
	Created   time.Time
	Path      string
}

// Limits of a LockInfo in bytes. A longer ID is refused; other values are cut.
const (
	maxID   = 128
	maxWho  = 256
	maxText = 512
)

// parseLockInfo reads the body of LOCK or UNLOCK. An empty body gives the zero LockInfo.
func parseLockInfo(body []byte) (LockInfo, error) {
	var i LockInfo
	if len(body) == 0 {
		return i, nil
	}
	if err := json.Unmarshal(body, &i); err != nil {
		return i, fmt.Errorf("the body is not the JSON of a lock: %s", misfit(err))
	}
	if len(i.ID) > maxID {
		return i, fmt.Errorf("the ID of the lock has more than %d bytes", maxID)
	}
	i.Who, i.Operation, i.Version = clip(i.Who, maxWho), clip(i.Operation, maxWho), clip(i.Version, maxWho)
	i.Info, i.Path = clip(i.Info, maxText), clip(i.Path, maxText)
	return i, nil
}

// misfit returns what is wrong with JSON, without Go's names for types.
func misfit(err error) string {
	if e, is := errors.AsType[*json.UnmarshalTypeError](err); is {
		if e.Field == "" {
			return "it is no object, but: " + e.Value
		}
		return fmt.Sprintf("%q cannot be: %s", e.Field, e.Value)
	}
	return err.Error()
}

// clip cuts a text to at most n bytes, between two characters, and makes it valid UTF-8.
func clip(s string, n int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= n {
		return s
	}
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// meta returns the LockInfo as the meta data of the lock's record, with Terraform's names.
func (i LockInfo) meta() map[string]string {
	m := map[string]string{"ID": i.ID, "Operation": i.Operation, "Info": i.Info, "Who": i.Who, "Version": i.Version, "Path": i.Path}
	if !i.Created.IsZero() {
		m["Created"] = i.Created.UTC().Format(time.RFC3339Nano)
	}
	for name, text := range m {
		if text == "" {
			delete(m, name)
		}
	}
	return m
}

func (i LockInfo) holder() string {
	if i.Who == "" {
		return "terraform"
	}
	return i.Who
}

// lockInfoOf returns the lock in a record as a LockInfo. If the holder is not Terraform, but
// for example `leasehold run`, the ID is made from the token, so that force-unlock can name
// one.
func lockInfoOf(i leasehold.Info) LockInfo {
	m := i.Meta
	created, err := time.Parse(time.RFC3339Nano, m["Created"])
	if err != nil {
		created = i.AcquiredAt
	}
	l := LockInfo{
		ID: m["ID"], Operation: m["Operation"], Info: m["Info"], Who: m["Who"], Version: m["Version"], Created: created, Path: m["Path"],
	}
	if l.ID == "" {
		l.ID = fmt.Sprintf("leasehold-%d", int64(i.Token))
	}
	if l.Who == "" {
		l.Who = i.Holder
	}
	if i.Held && i.Abandoned {
		l.Info = strings.TrimSpace(l.Info + " (the process that keeps this lock looks to be gone: it can be had in a little over " + i.TTL.String() + ")")
	}
	return l
}
