package layout

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasehold/leasehold/internal/record"
)

// A tfLock is what Terraform and OpenTofu keep in KEY.tflock, the lock of their S3 backend with
// use_lockfile: one object that exists while the lock is held, like a marker. They read our
// marker to say who holds the lock, and wait for it only if it has an ID.
type tfLock struct {
	ID        string
	Operation string
	Info      string
	Who       string
	Version   string
	Created   time.Time
	Path      string
}

// maxTFText is the most bytes that such a field gets of a text. The record must not become too
// large by repeating it.
const maxTFText = 256

// withTFLock adds the fields of Terraform and OpenTofu to the record of a marker at KEY.tflock, as
// unknown fields. They read no other marker, so others do without. The ID is the lease's own, so a
// force-unlock with it ends no later lease.
func withTFLock(r record.Record, key string) record.Record {
	if !strings.HasSuffix(key, ".tflock") {
		return r
	}
	lock := tfLock{
		ID: fmt.Sprintf("%s-%d", r.Incarnation(), r.AcquiredAt.UnixMilli()), Operation: "leasehold",
		Info: "held by leasehold until " + r.ExpiresAt.UTC().Format(time.RFC3339) + " unless it is renewed",
		Who:  clip(r.Holder), Version: "leasehold", Created: r.AcquiredAt.UTC().Truncate(time.Millisecond), Path: key,
	}
	r.Unknown = maps.Clone(r.Unknown)
	if r.Unknown == nil {
		r.Unknown = map[string]json.RawMessage{}
	}
	for name, value := range map[string]any{
		"ID": lock.ID, "Operation": lock.Operation, "Info": lock.Info, "Who": lock.Who, "Version": lock.Version,
		"Created": lock.Created, "Path": lock.Path,
	} {
		text, err := json.Marshal(value)
		if err != nil {
			delete(r.Unknown, name) // a year that RFC 3339 cannot write
			continue
		}
		r.Unknown[name] = text
	}
	return r
}

// otherHolder returns a name for the holder of another tool's marker.
func otherHolder(body []byte) string {
	var lock tfLock
	if json.Unmarshal(body, &lock) != nil || lock.ID == "" || lock.Who == "" {
		return "another tool"
	}
	return fmt.Sprintf("%s (Terraform, lock ID %s)", clip(lock.Who), clip(lock.ID))
}

// clip cuts a text between two characters.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxTFText {
		return s
	}
	n := maxTFText
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
